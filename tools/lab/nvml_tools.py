"""Programs that watch GPUs through NVML, as anybody gets them: from PyPI, and Debian's nvidia-smi."""
import pathlib
import shutil
import subprocess

from lab.machine import debian_mirror
from lab.paths import cache
from lab.shell import Failure, run, step

PACKAGES = ["nvidia-ml-py==13.615.71", "nvitop==1.7.2", "gpustat==1.1.1"]
SUITE = "trixie"


def python() -> pathlib.Path:
    """The Python of an environment that has them."""
    folder = cache() / ("nvml-" + "-".join(PACKAGES).replace("==", "-"))
    if not (folder / "bin/gpustat").exists():
        shutil.rmtree(folder, ignore_errors=True)  # scripts name the folder: it cannot be made elsewhere and moved
        with step("installing " + ", ".join(PACKAGES)):
            run(["/usr/bin/python3", "-m", "venv", folder])
            run([folder / "bin/pip", "install", "-q", "--no-cache-dir", *PACKAGES])
    return folder / "bin/python"


def nvidia_smi() -> pathlib.Path:
    """Debian's, not installed: what the package has, in a folder."""
    folder = cache() / f"nvidia-smi-{SUITE}"
    program = folder / "usr/lib/nvidia/current/nvidia-smi"
    if not program.exists():
        with step("downloading Debian's nvidia-smi"):
            _unpack("nvidia-smi", folder)
    if not program.exists():
        raise Failure(f"Debian's package has no {program.relative_to(folder)}")
    return program


def _unpack(package: str, folder: pathlib.Path) -> None:
    """With package lists of its own, because nvidia-smi is in a part of Debian that few machines have in theirs."""
    apt = folder.with_suffix(".apt")
    shutil.rmtree(apt, ignore_errors=True)
    for part in ["lists/partial", "archives/partial"]:
        (apt / part).mkdir(parents=True)
    (apt / "sources.list").write_text(
        f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {debian_mirror()} {SUITE} non-free\n")
    options = [f"Dir::Etc::SourceList={apt}/sources.list", "Dir::Etc::SourceParts=-", f"Dir::State::Lists={apt}/lists",
               f"Dir::Cache={apt}", "APT::Sandbox::User=root"]
    apt_get = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
    run([*apt_get, "update"])
    run([*apt_get, "download", package], cwd=apt)
    for archive in apt.glob(f"{package}_*.deb"):
        subprocess.run(["dpkg", "-x", archive, folder], check=True)
    shutil.rmtree(apt)
