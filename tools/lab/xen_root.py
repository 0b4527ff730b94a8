"""Xen's host in a folder: Debian 13 with Xen, its tools, a kernel for dom0 and guests, and what builds the module."""
import lzma
import pathlib
import shutil
import subprocess

from lab import bare_root, image
from lab.machine import debian_mirror
from lab.paths import REPO, cache
from lab.shell import Failure, run, step

PACKAGES = """linux-image-amd64 linux-headers-amd64 xen-system-amd64 xen-utils qemu-system-xen busybox-static kmod gcc
    libc6-dev make""".split()
MODULE_SOURCES = ["guest-driver/kernel", "guest-driver/uapi"]


def root() -> pathlib.Path:
    path = cache() / "xen-root"
    if make(path, PACKAGES, "with Xen 4.20 (about 200 MB to fetch, one to four minutes)"):
        shutil.rmtree(cache() / "xen-boot", ignore_errors=True)  # kernels of the root before
    return path


def _made_of(path: pathlib.Path) -> list[str]:
    """The packages that this root was asked to have; empty: there is none, or an older one that does not say."""
    stamp = path / "etc/bandsaw-packages"
    return stamp.read_text().split() if stamp.exists() else []


def make(path: pathlib.Path, packages: list[str], what: str) -> bool:
    """A Debian 13 root with these packages and little else, unless it is there. Whether it was made."""
    if _made_of(path) == packages:
        return False
    bare_root.make(
        path, "trixie", [f"deb {debian_mirror()} trixie main"], packages, f"a Debian 13 root {what}",
        ['--aptopt=APT::Install-Recommends "false"', *bare_root.WITHOUT_DOCUMENTS],
        [bare_root.WITHOUT_ARCHIVE, f'echo {" ".join(packages)} > "$1"/etc/bandsaw-packages'])
    return True


def kernel_version() -> str:
    found = sorted(path.name for path in (root() / "usr/lib/modules").iterdir())
    if not found:
        raise Failure(f"{root()} has no kernel; remove it, and it is made again")
    return found[-1]


def hypervisor() -> pathlib.Path:
    """Xen itself, as QEMU takes it."""
    target = cache() / "xen-boot" / "xen"
    if not target.exists():
        packed = sorted((root() / "boot").glob("xen-*.gz"))[-1]
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(subprocess.run(["gzip", "-dc", packed], check=True, capture_output=True).stdout)
    return target


def vmlinuz() -> pathlib.Path:
    return root() / "boot" / f"vmlinuz-{kernel_version()}"


def vmlinux() -> pathlib.Path:
    """The same kernel without its wrapping: the emulated processor unpacks slowly."""
    target = cache() / "xen-boot" / f"vmlinux-{kernel_version()}"
    if not target.exists():
        image = vmlinuz().read_bytes()
        start = image.find(b"\x28\xb5\x2f\xfd")
        if start < 0:
            raise Failure(f"{vmlinuz()} has no zstd part; this tool knows no other packing")
        target.parent.mkdir(exist_ok=True)
        # Bytes after the end of the packed part are not zstd's, which it says after it has given all it has.
        done = subprocess.run(["zstd", "-dcq"], input=image[start:], capture_output=True, check=False)
        if not done.stdout.startswith(b"\x7fELF"):
            raise Failure(f"{vmlinuz()} does not unpack: {done.stderr.decode(errors='replace')[:200]}")
        target.write_bytes(done.stdout)
    return target


def kernel_module(name: str) -> bytes | None:
    """A module of that kernel, by its file's name without the end; None: it is built in."""
    folder = root() / "usr/lib/modules" / kernel_version()
    found = list((folder / "kernel").rglob(f"{name}.ko*"))
    if not found and f"/{name}.ko\n" in (folder / "modules.builtin").read_text():
        return None
    if not found:
        raise Failure(f"the kernel in {root()} has no module {name}")
    content = found[0].read_bytes()
    return lzma.decompress(content) if found[0].suffix == ".xz" else content


def vgpu_module() -> pathlib.Path:
    """virtio_vgpu.ko for that kernel, built in the root because its compiler is the kernel's."""
    work = root() / "usr/src/bandsaw"
    changed = False
    for folder in MODULE_SOURCES:
        target = work / folder
        target.mkdir(parents=True, exist_ok=True)
        for file in [*(REPO / folder).iterdir(), *([image.calls_header()] if folder.endswith("uapi") else [])]:
            copy = target / file.name
            if file.is_file() and (not copy.exists() or copy.read_bytes() != file.read_bytes()):
                shutil.copy(file, copy)
                changed = True
    module = work / "guest-driver/kernel/virtio_vgpu.ko"
    if changed or not module.exists():
        module.unlink(missing_ok=True)
        with step("building the guest's module for Xen's kernel"):
            run(["chroot", root(), "make", "-C", "/usr/src/bandsaw/guest-driver/kernel",
                 f"KDIR=/usr/src/linux-headers-{kernel_version()}"], log=cache() / "xen-module.log",
                what="building virtio_vgpu.ko")
    return module


def _needed(program: pathlib.Path, inside: pathlib.Path) -> list[str]:
    """The paths that ldd names, where the program lies: in the root, or on this machine."""
    command = ["ldd", str(program)]
    if program.is_relative_to(inside):
        command = ["chroot", str(inside), "ldd", f"/{program.relative_to(inside)}"]
    words = [line.split() for line in run(command).splitlines()]
    paths = [line[2] if "=>" in line and len(line) > 2 else line[0] for line in words]
    return [path for path in paths if path.startswith("/")]


def libraries(programs: list[pathlib.Path], inside: pathlib.Path | None = None) -> dict[str, pathlib.Path]:
    """Where each library lies that these programs of this machine or of the root (`inside`: of that one) need, by name:
    the root's own goes before this machine's, because its C library is the newer one."""
    inside = inside or root()
    found: dict[str, pathlib.Path] = {}
    waiting = list(programs)
    while waiting:
        for path in _needed(waiting.pop(), inside):
            name = pathlib.Path(path).name
            if name in found:
                continue
            own = inside / "usr/lib/x86_64-linux-gnu" / name
            found[name] = own.resolve() if own.exists() else pathlib.Path(path).resolve()
            if own.exists():
                waiting.append(found[name])  # it may need what this machine's does not
    return found
