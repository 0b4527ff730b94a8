"""The guest: Debian's kernel, an initramfs with this machine's glibc, the module, libcuda.so.1 and the agent."""
import functools
import hashlib
import lzma
import pathlib
import shutil
import subprocess

from lab.cpio import Archive
from lab.paths import BUILD, CUPTI, PTX_PRELOAD, REPO, cache
from lab.shell import Failure, run, step

KERNEL_MODULES = ["virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci",
                  "virtio_console"]
# In the image, but loaded only by who asks: encrypted block devices, ciphers to compare with, and AF_ALG to reach them.
CRYPTO_MODULES = ["dm-mod", "dm-crypt", "brd", "gf128mul", "xts", "ecb", "cryptd", "crypto_simd", "aesni-intel",
                  "af_alg", "algif_skcipher"]
GUEST_LIBRARIES = "/usr/lib/x86_64-linux-gnu"
LIBC = ["ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0",
        "libresolv.so.2", "libstdc++.so.6", "libgcc_s.so.1"]

INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts /tmp /run; mount -t tmpfs shm /dev/shm; mount -t devpts pts /dev/pts; chmod 1777 /tmp
for module in %(modules)s virtio_vgpu; do
  [ -e /lib/modules/$module.ko ] && insmod /lib/modules/$module.ko
done
echo "guest: up"
for i in 1 2 3 4 5 6 7 8 9 10; do
  for port in /sys/class/virtio-ports/*; do
    [ "$(cat $port/name 2>/dev/null)" = org.bandsaw.agent ] && agent=/dev/${port##*/}
  done
  [ -n "$agent" ] && break
  sleep 0.2
done
while true; do /sbin/agent $agent; echo "guest: agent ended"; sleep 1; done
"""


def carried() -> pathlib.Path | None:
    """A folder with kernel, module, busybox and agent, if they were made elsewhere and brought here (see pack.py)."""
    path = cache() / "carried"
    return path if path.exists() else None


def kernel_version() -> str:
    """The release whose headers are installed: the module is built for it."""
    found = sorted(pathlib.Path("/usr/src").glob("linux-headers-*-amd64"))
    if not found:
        raise Failure("no kernel headers under /usr/src; install linux-headers-amd64")
    return found[-1].name.removeprefix("linux-headers-")


def kernel() -> pathlib.Path:
    """A folder with vmlinuz and the modules the guest loads."""
    if (folder := carried()) is not None:
        return folder / "kernel"
    version, wanted = kernel_version(), [*KERNEL_MODULES, *CRYPTO_MODULES]
    folder = cache() / f"kernel-{version}"
    listed = folder / "modules"  # what was looked for: some are built in
    if listed.exists() and listed.read_text().split() == wanted:
        return folder
    work = cache() / "kernel.new"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    with step(f"fetching the guest's kernel {version} (70 MB)"):
        run(["apt-get", "update", "-qq"])
        run(["apt-get", "download", "-qq", f"linux-image-{version}"], cwd=work)
        run(["dpkg-deb", "-x", *work.glob("*.deb"), work / "root"])
    shutil.copy(next((work / "root/boot").glob("vmlinuz-*")), work / "vmlinuz")
    for name in wanted:
        for module in (work / "root").rglob(f"{name}.ko*"):
            content = module.read_bytes()
            (work / f"{name}.ko").write_bytes(lzma.decompress(content) if module.suffix == ".xz" else content)
    (work / "modules").write_text(" ".join(wanted))
    shutil.rmtree(work / "root")
    for package in work.glob("*.deb"):
        package.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    work.rename(folder)
    return folder


def _busybox() -> pathlib.Path:
    folder = carried()
    found = folder / "busybox" if folder else pathlib.Path("/usr/bin/busybox")
    if not found.exists():
        raise Failure("no /usr/bin/busybox; install busybox-static")
    return found


def _host_library(name: str) -> pathlib.Path:
    path = pathlib.Path("/lib64" if name.startswith("ld-") else GUEST_LIBRARIES) / name
    if not path.exists():
        raise Failure(f"this machine has no {path}, which programs in the guest need")
    return path.resolve()


def base() -> pathlib.Path:
    """The part of the initramfs that does not change: busybox, and this machine's C and C++ libraries, because programs
    that are built here run in the guest."""
    busybox = _busybox()
    libraries = {name: _host_library(name) for name in LIBC}
    digest = hashlib.sha256(busybox.read_bytes())
    for library in libraries.values():
        digest.update(library.read_bytes())
    target = cache() / f"guest-base-{digest.hexdigest()[:16]}.cpio"
    if not target.exists():
        _make_base(busybox, libraries).write(target)
    return target


def _make_base(busybox: pathlib.Path, libraries: dict[str, pathlib.Path]) -> Archive:
    archive = Archive()
    for name in ["bin", "sbin", "lib", "lib64"]:
        archive.folder(f"usr/{name}")
        archive.link(name, f"usr/{name}")
    for name in ["dev", "proc", "sys", "tmp", "root", "run", "etc"]:
        archive.folder(name)
    archive.file("usr/bin/busybox", busybox.read_bytes(), 0o755)
    for applet in run([busybox, "--list"]).split():
        if applet != "busybox":
            archive.link(f"usr/bin/{applet}", "busybox")
    for name, library in libraries.items():
        archive.file(f"{GUEST_LIBRARIES[1:]}/{name}", library.read_bytes(), 0o755)
    archive.link("usr/lib64/ld-linux-x86-64.so.2", f"{GUEST_LIBRARIES}/ld-linux-x86-64.so.2")
    return archive


def calls_header() -> pathlib.Path:
    """vgpu_calls.h, which the kernel's Makefile makes only where the generator is beside it."""
    header = BUILD / "vgpu_calls.h"
    text = run(["/usr/bin/python3", REPO / "tools/gen", "wire_calls"], what="generating vgpu_calls.h")
    if not header.exists() or header.read_text() != text:
        header.write_text(text)
    return header


def build_module(version: str | None = None, name: str = "virtio_vgpu",
                 calls: pathlib.Path | None = None) -> pathlib.Path:
    """The guest's modules for a kernel whose headers are installed, built outside the source tree: which of them.
    `calls`: another vgpu_calls.h, as another release's; they are built beside it."""
    if (folder := carried()) is not None and calls is None:
        return folder / f"{name}.ko"
    version = version or kernel_version()
    work = calls.parent if calls else BUILD / f"module-{version}"
    changed = False
    for part in ["kernel", "uapi"]:
        source = REPO / "guest-driver" / part
        target = work / "guest-driver" / part
        target.mkdir(parents=True, exist_ok=True)
        for file in [*source.iterdir(), *([calls or calls_header()] if part == "uapi" else [])]:
            # Keep times, so that make builds only what changed.
            if file.is_file() and (not (target / file.name).exists()
                                   or file.stat().st_mtime > (target / file.name).stat().st_mtime):
                shutil.copy2(file, target / file.name)
                changed = True
    module = work / f"guest-driver/kernel/{name}.ko"
    if module.exists() and not changed:
        return module
    module.unlink(missing_ok=True)
    run(["make", "-C", work / "guest-driver/kernel", f"KERNELRELEASE_WANTED={version}",
         f"KDIR=/lib/modules/{version}/build" if pathlib.Path(f"/lib/modules/{version}/build").exists()
         else f"KDIR=/usr/src/linux-headers-{version}"], log=work / "build.log", what="building the guest's modules")
    return module


def agent() -> pathlib.Path:
    if (folder := carried()) is not None:
        return folder / "agent"
    source = REPO / "tools/lab/agent/agent.c"
    program = BUILD / "agent"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-o", program, source])
    return program


@functools.cache
def initramfs() -> pathlib.Path:
    """The whole initramfs, made again only when something in it changed."""
    kernel_folder, base_archive = kernel(), base()
    with step("making the guest image"):
        files = {f"usr/lib/modules/{name}.ko": kernel_folder / f"{name}.ko"
                 for name in [*KERNEL_MODULES, *CRYPTO_MODULES]}
        files["usr/lib/modules/virtio_vgpu.ko"] = build_module()
        files["usr/lib/modules/vgpu_crypto.ko"] = build_module(name="vgpu_crypto")
        files["usr/lib/firmware/bandsaw/aes_xts.ptx"] = BUILD / "guest-driver/kernel/aes_xts.ptx"
        files = {target: source for target, source in files.items() if source.exists()}
        files["usr/sbin/agent"] = agent()
        files[f"{GUEST_LIBRARIES[1:]}/libcuda.so.1"] = BUILD / "guest-driver/libcuda/libcuda.so.1"
        if (nvml := BUILD / "guest-driver/nvml/libnvidia-ml.so.1").exists():
            files[f"{GUEST_LIBRARIES[1:]}/libnvidia-ml.so.1"] = nvml
        if CUPTI.exists():
            files[f"{GUEST_LIBRARIES[1:]}/{CUPTI.name}"] = CUPTI
        if PTX_PRELOAD.exists():
            files[f"{GUEST_LIBRARIES[1:]}/{PTX_PRELOAD.name}"] = PTX_PRELOAD
        init = INIT % {"modules": " ".join(KERNEL_MODULES)}
        digest = hashlib.sha256(init.encode() + base_archive.name.encode())
        for target, source in sorted(files.items()):
            digest.update(target.encode() + source.read_bytes())
        image = cache() / f"guest-{digest.hexdigest()[:16]}.img"
        if image.exists():
            return image
        for old in cache().glob("guest-*.img"):
            old.unlink()
        _assemble(init, files, base_archive, image)
    return image


def stripped(library: pathlib.Path) -> bytes:
    """Its bytes without what only a debugger reads."""
    copy = cache() / "stripped.new"
    done = subprocess.run(["strip", "--strip-debug", "-o", copy, library], check=False, capture_output=True)
    content = copy.read_bytes() if done.returncode == 0 else library.read_bytes()
    copy.unlink(missing_ok=True)
    return content


def _assemble(init: str, files: dict, base_archive: pathlib.Path, image: pathlib.Path) -> None:
    overlay = Archive()
    # Folders are the base's: it has /lib and /sbin as links into /usr.
    for target, source in files.items():
        content = stripped(source) if source.name.startswith("lib") or target.endswith(".ko") else source.read_bytes()
        overlay.file(target, content, 0o755)
    overlay.file("init", init.encode(), 0o755)
    path = cache() / "guest-overlay.cpio"
    overlay.write(path)
    temporary = image.with_suffix(".new")
    temporary.write_bytes(base_archive.read_bytes() + path.read_bytes())
    temporary.rename(image)
    path.unlink()
