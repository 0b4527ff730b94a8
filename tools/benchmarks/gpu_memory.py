"""What is used of a GPU's memory, by whomever."""
import shutil
import subprocess


def used(device: str) -> int | None:
    """Bytes, as the GPU's driver says; None on the software device."""
    if device == "soft" or shutil.which("nvidia-smi") is None:
        return None
    done = subprocess.run(["nvidia-smi", f"--id={device.partition(':')[2]}", "--query-gpu=memory.used",
                           "--format=csv,noheader,nounits"], capture_output=True, text=True, check=False)
    return int(done.stdout) << 20 if done.returncode == 0 else None
