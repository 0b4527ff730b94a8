"""A place with QEMU >= 10.1 and libvirt: the host itself, or a private Debian 13 root beside it. A root that was
carried here (see pack.py) has no libvirt: QEMU is then started by hand."""
import pathlib
import re
import shutil
import subprocess

from lab import bare_root
from lab.machine import debian_mirror
from lab.paths import cache

QEMU_WANTED = (10, 1)


def _version_of(command: list[str]) -> tuple:
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ()
    match = re.search(r"version (\d+)\.(\d+)", text)
    return tuple(int(part) for part in match.groups()) if match else ()


def host_suffices() -> bool:
    return _version_of(["qemu-system-x86_64", "--version"]) >= QEMU_WANTED and shutil.which("libvirtd") is not None


def root() -> pathlib.Path:
    """'/' if the host's own QEMU will do, else the private root, made if it is missing."""
    if host_suffices():
        return pathlib.Path("/")
    path = cache() / "qemu-root"
    if not made():
        _make(path)
    return path


def available() -> bool:
    """Whether `root` has one or could make one."""
    return host_suffices() or made() or shutil.which("mmdebstrap") is not None


def made() -> bool:
    return (cache() / "qemu-root/usr/bin/qemu-system-x86_64").exists()


def has_libvirt() -> bool:
    return (root() / "usr/sbin/libvirtd").exists()


def program(name: str) -> list[str]:
    """How one of QEMU's programs is started outside the root."""
    place = root()
    if place == pathlib.Path("/"):
        return [name]
    return [str(place / "lib64/ld-linux-x86-64.so.2"), "--library-path", str(place / "usr/lib/x86_64-linux-gnu"),
            str(place / "usr/bin" / name)]


def command() -> list[str]:
    """The same of QEMU itself."""
    share = root() / "usr/share"
    firmware = [] if root() == pathlib.Path("/") else ["-L", str(share / "seabios"), "-L", str(share / "qemu")]
    return [*program("qemu-system-x86_64"), *firmware]


def _make(path: pathlib.Path) -> None:
    mirror = debian_mirror()
    install = 'chroot "$1" apt-get install -y --no-install-recommends '
    bare_root.make(
        path, "trixie", [f"deb {mirror} trixie main", f"deb {mirror} trixie-backports main"], [],
        "a private Debian 13 root with QEMU 11 and libvirt (about 260 MB, half a minute)",
        bare_root.WITHOUT_DOCUMENTS,
        [f"{install} -t trixie-backports qemu-system-x86 qemu-utils",
         f"{install} libvirt-daemon-driver-qemu libvirt-daemon libvirt-daemon-log libvirt-clients",
         bare_root.WITHOUT_ARCHIVE])
