"""The host side of the lab: vgpud, libvirtd, and commands to both."""
import contextlib
import json
import os
import pathlib
import subprocess
import time

from lab import qemu_root
from lab.paths import BUILD, environment, lab_dir
from lab.shell import Failure, need_root, run, step, wait_until

QEMU_CONF = """security_driver = "none"
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
namespaces = [ ]
cgroup_controllers = [ ]
stdio_handler = "file"
"""

ENTER_ROOT = """set -e
root=$1 lab=$2
mkdir -p $root$lab $root/run/libvirt $root/run/host
mount --rbind / $root/run/host
mount --rbind /dev $root/dev
mount -t proc proc $root/proc
mount -t sysfs sysfs $root/sys
mount --bind $lab $root$lab
mount --bind $lab/root-hooks $root/etc/libvirt/hooks
exec chroot $root /usr/sbin/libvirtd
"""

# The hook that `vgpuctl hook --install` wrote runs in the host's root, where vgpuctl, its libraries and vgpud are.
HOOK = """#!/bin/sh
exec /usr/sbin/chroot /run/host '{script}' "$@"
"""
HOOK_PATH = "qemu.d/bandsaw-lab"


def built(name: str) -> pathlib.Path:
    """A program of this build, by its place there."""
    if not (BUILD / name).exists():
        raise Failure(f"{BUILD / name} is not there; tools/setup builds Bandsaw")
    return BUILD / name


def vgpuctl(*arguments: str, check: bool = True, variables: dict | None = None) -> subprocess.CompletedProcess:
    result = subprocess.run([built("tools/vgpuctl/vgpuctl"), *arguments], capture_output=True, text=True, check=False,
                            env={**environment(), **_libvirt_variables(), **(variables or {})})
    if check and result.returncode != 0:
        raise Failure(f"vgpuctl {' '.join(arguments)} failed: {(result.stderr or result.stdout).strip()}")
    return result


def vgpuctl_json(*arguments: str):
    return json.loads(vgpuctl(*arguments, "--json").stdout)


def live(name: str) -> dict:
    """What the session of a virtual GPU says of itself; empty while there is none."""
    return vgpuctl_json("show", name).get("live") or {"processes": [], "memory_used": 0, "pid": 0}


def current_device(run_dir: pathlib.Path | None = None) -> str:
    """The device of the vgpud that answers: "soft", "cuda:0"; empty if none does."""
    done = subprocess.run([built("tools/vgpuctl/vgpuctl"), "status", "--json"], capture_output=True, check=False,
                          env=environment(run_dir))
    return json.loads(done.stdout)["device"].get("id", "other") if done.returncode == 0 else ""


def _configuration(folder: pathlib.Path, device: str) -> pathlib.Path:
    kind, _, index = device.partition(":")
    path = folder / "vgpud.toml"
    # Tests start many programs at once, and making a GPU's runner takes a third of a second.
    warm = "" if kind == "soft" else "[session]\nwarm_runners = 2\n"
    path.write_text(f'[device]\nname = "{kind}"\nindex = {index or 0}\n[swap]\nmemory = "8G"\n{warm}')
    return path


def use_device(device: str) -> None:
    """The device that vgpud is started on from now on, in this process and those that it starts. What a person has set
    (BANDSAW_LAB_DEVICE=cuda:1, or soft to try a tool without a GPU) stays."""
    os.environ.setdefault("BANDSAW_LAB_DEVICE", device)


def await_end(run_dir: pathlib.Path | None = None) -> None:
    """Until no vgpud answers in this folder."""
    wait_until(lambda: current_device(run_dir) == "", 20, "the end of the vgpud that runs")


def start_vgpud(device: str = "", run_dir: pathlib.Path | None = None) -> None:
    """Starts vgpud on `device` ("soft", "cuda", "cuda:1"; by default that of use_device, or "soft") unless it answers
    already; one on another device is ended."""
    device = device or os.environ.get("BANDSAW_LAB_DEVICE", "soft")
    wanted = "cuda:0" if device == "cuda" else device
    found = current_device(run_dir)
    if found == wanted:
        return
    variables = environment(run_dir)
    folder = pathlib.Path(variables["BANDSAW_RUN"]).parent
    pathlib.Path(variables["BANDSAW_RUN"]).mkdir(parents=True, exist_ok=True)
    if found:
        subprocess.run([built("tools/vgpuctl/vgpuctl"), "shutdown", "--force"], capture_output=True, check=False,
                       env=variables)
        await_end(run_dir)
    log_path = folder / "vgpud.log"
    with open(log_path, "ab") as log:
        start = log.tell()
        daemon = subprocess.Popen([built("backend/vgpud/vgpud"), "--config", _configuration(folder, device)],
                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables,
                                  start_new_session=True)
    deadline = time.monotonic() + 40  # a GPU's driver may have to wake
    while time.monotonic() < deadline:
        if current_device(run_dir) == wanted:
            return
        if daemon.poll() is not None:
            break
        time.sleep(0.1)
    tail = "\n".join(log_path.read_bytes()[start:].decode(errors="replace").splitlines()[-15:])
    raise Failure(f"vgpud does not answer; its log {log_path} ends with\n{tail}")


def ensure_vgpu(name: str, memory: str, compute: int, copy: int) -> None:
    """A virtual GPU on the device that vgpud has now."""
    shown = vgpuctl("show", name, "--json", check=False)
    if shown.returncode == 0:
        if json.loads(shown.stdout)["device"] == current_device():
            return
        vgpuctl("destroy", name, "--force")
    vgpuctl("create", name, "--memory", memory, "--compute", str(compute), "--copy", str(copy))


def destroy_unused() -> None:
    """What an earlier run left behind holds shares that the tests ask for; what has a VM that runs, or programs, stays.
    A run that was killed leaves virtual GPUs of domains that are gone."""
    start_vgpud()
    for vgpu in vgpuctl_json("list"):
        now = vgpu.get("live") or {}
        if not now.get("processes") and not now.get("vm", {}).get("connected"):
            vgpuctl("destroy", vgpu["name"], "--force", check=False)


def session_log(vgpu: str) -> pathlib.Path:
    """What the session and the runners of a virtual GPU have to say."""
    return lab_dir() / "run" / vgpu / "session.log"


def stop_vgpud() -> None:
    """It is over when this returns: else the next start_vgpud would take the one that ends for one that runs."""
    vgpuctl("shutdown", "--force", check=False)
    wait_until(lambda: not current_device(), 20, "the end of vgpud")


def _libvirt_variables() -> dict[str, str]:
    # A root is made by those who need a VM, not by those who ask vgpud.
    return {"LIBVIRT_DEFAULT_URI": libvirt_uri()} if qemu_root.host_suffices() or qemu_root.made() else {}


def libvirt_uri() -> str:
    root = qemu_root.root()
    if root == pathlib.Path("/"):
        return "qemu:///system"
    return f"qemu+unix:///system?socket={root}/run/libvirt/libvirt-sock"


def _libvirtd_pid(root: pathlib.Path) -> int:
    try:
        pid = int((root / "run/libvirtd.pid").read_text())
        os.kill(pid, 0)
        return pid
    except (OSError, ValueError) as error:
        raise Failure("libvirtd of the lab does not run") from error


def virsh(*arguments: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess:
    root = qemu_root.root()
    command = ["virsh", "-q", "-c", "qemu:///system", *arguments]
    if root != pathlib.Path("/"):
        # In libvirtd's own mount namespace, where the lab's folder is visible.
        command = ["nsenter", f"--mount=/proc/{_libvirtd_pid(root)}/ns/mnt", "chroot", str(root), *command]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout,
                            stdin=subprocess.DEVNULL)
    if check and result.returncode != 0:
        raise Failure(f"virsh {' '.join(arguments)} failed: {result.stderr.strip()}")
    return result


def _libvirt_answers() -> bool:
    try:
        return virsh("uri", check=False, timeout=60).returncode == 0
    except (subprocess.TimeoutExpired, Failure):
        return False


def _install_hook() -> None:
    vgpuctl("hook", "--install", "--hooks", str(lab_dir() / "hooks"))
    path = lab_dir() / "root-hooks" / HOOK_PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HOOK.format(script=lab_dir() / "hooks/qemu.d/bandsaw"))
    path.chmod(0o755)


def has_hook() -> bool:
    """Whether the libvirtd of the lab runs Bandsaw's hook; a host's own has what its administrator gave it."""
    root = qemu_root.root()
    if root == pathlib.Path("/") or not qemu_root.has_libvirt():
        return False
    return pathlib.Path(f"/proc/{_libvirtd_pid(root)}/root/etc/libvirt/hooks", HOOK_PATH).exists()


def _end_libvirt_without_hook(root: pathlib.Path) -> None:
    # libvirt looks for hooks only when it starts. VMs that run stay.
    stop_libvirt()
    wait_until(lambda: not (root / "run/libvirtd.pid").exists(), 20, "the end of the libvirtd that runs")


def start_libvirt() -> None:
    need_root("running libvirt in the lab")
    root = qemu_root.root()
    if not qemu_root.has_libvirt():
        return  # VMs are plain QEMU here
    if root == pathlib.Path("/"):
        if not _libvirt_answers():
            run(["systemctl", "start", "libvirtd"], what="starting libvirtd")
        return
    _install_hook()
    if (root / "run/libvirt/libvirt-sock").exists() and _libvirt_answers():
        if has_hook():
            return
        _end_libvirt_without_hook(root)
    (root / "etc/libvirt").mkdir(parents=True, exist_ok=True)
    (root / "etc/libvirt/qemu.conf").write_text(QEMU_CONF)
    for stale in ["run/libvirtd.pid", "run/libvirt/libvirt-sock", "run/libvirt/libvirt-sock-ro"]:
        (root / stale).unlink(missing_ok=True)
    with step("starting libvirt (it asks QEMU what it can do: about 8 s the first time)"):
        log = open(lab_dir() / "libvirtd.log", "ab")
        # A mount namespace of its own: when libvirtd is gone, so are the mounts.
        subprocess.Popen(["unshare", "--mount", "--propagation", "private", "bash", "-c", ENTER_ROOT, "enter-root",
                          str(root), str(lab_dir())], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                         start_new_session=True)
        deadline = time.monotonic() + 90
        while not ((root / "run/libvirt/libvirt-sock").exists() and _libvirt_answers()):
            if time.monotonic() > deadline:
                raise Failure(f"libvirtd does not answer; see {lab_dir() / 'libvirtd.log'}")
            time.sleep(0.2)


def stop_libvirt() -> None:
    root = qemu_root.root()
    if root == pathlib.Path("/"):
        return
    pid_file = root / "run/libvirtd.pid"
    if pid_file.exists():
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int(pid_file.read_text()), 15)
