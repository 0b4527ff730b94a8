"""The guest: Debian's kernel, an initramfs with glibc, the module, libcuda.so.1 and the agent."""
import hashlib
import os
import pathlib
import shutil
import subprocess

from lab.machine import debian_mirror
from lab.paths import BUILD, REPO, cache
from lab.shell import Failure, need_root, run, step

KERNEL_MODULES = ["virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci",
                  "virtio_console"]
GUEST_LIBRARIES = "/usr/lib/x86_64-linux-gnu"

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


def kernel_version() -> str:
    """The release whose headers are installed: the module is built for it."""
    found = sorted(pathlib.Path("/usr/src").glob("linux-headers-*-amd64"))
    if not found:
        raise Failure("no kernel headers under /usr/src; install linux-headers-amd64")
    return found[-1].name.removeprefix("linux-headers-")


def kernel() -> pathlib.Path:
    """A folder with vmlinuz and the modules the guest loads."""
    version = kernel_version()
    folder = cache() / f"kernel-{version}"
    if (folder / "vmlinuz").exists():
        return folder
    work = cache() / "kernel.new"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    with step(f"fetching the guest's kernel {version} (70 MB)"):
        run(["apt-get", "update", "-qq"])
        run(["apt-get", "download", "-qq", f"linux-image-{version}"], cwd=work)
        run(["dpkg-deb", "-x", *work.glob("*.deb"), work / "root"])
    shutil.copy(next((work / "root/boot").glob("vmlinuz-*")), work / "vmlinuz")
    for name in KERNEL_MODULES:
        for module in (work / "root").rglob(f"{name}.ko*"):
            shutil.copy(module, work / f"{name}.ko")
    shutil.rmtree(work / "root")
    for package in work.glob("*.deb"):
        package.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    work.rename(folder)
    return folder


def _cpio(tree: pathlib.Path, target: pathlib.Path) -> None:
    command = f"find . -print0 | cpio --null --quiet --owner 0:0 -o -H newc | zstd -q -T0 -10 -f -o {target}.new"
    run(["bash", "-o", "pipefail", "-c", command], cwd=tree)
    pathlib.Path(f"{target}.new").rename(target)


def base() -> pathlib.Path:
    """The part of the initramfs that does not change: libc, libstdc++, busybox."""
    archive = cache() / "guest-base-1.cpio.zst"
    if archive.exists():
        return archive
    need_root("making the guest's root")
    tree = cache() / "guest-base.new"
    shutil.rmtree(tree, ignore_errors=True)
    mirror = debian_mirror()
    with step("making the guest's root (libc, libstdc++, busybox)"):
        release = run(["sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME"]).strip()
        run(["mmdebstrap", "--mode=root", "--variant=extract", "--include=libc6,libstdc++6,libgcc-s1,busybox-static",
             '--aptopt=Acquire::Check-Valid-Until "false"', release, tree, f"deb {mirror} {release} main"],
            log=cache() / "guest-base.log", what="mmdebstrap")
        for name in ["usr/share/doc", "usr/share/man", "usr/share/locale", "var/lib/apt", "var/cache", "etc/apt"]:
            shutil.rmtree(tree / name, ignore_errors=True)
        _merge_usr(tree)
        for name in ["dev", "proc", "sys", "tmp", "root", "run", "etc"]:
            (tree / name).mkdir(exist_ok=True)
        run(["chroot", tree, "/bin/busybox", "--install", "-s", "/usr/bin"])
        _cpio(tree, archive)
    shutil.rmtree(tree)
    return archive


def _merge_usr(tree: pathlib.Path) -> None:
    for name in ["bin", "sbin", "lib", "lib64"]:
        old, new = tree / name, tree / "usr" / name
        new.mkdir(parents=True, exist_ok=True)
        if old.is_dir() and not old.is_symlink():
            shutil.copytree(old, new, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(old)
        if not old.is_symlink():
            old.symlink_to(f"usr/{name}")


def build_module(version: str | None = None) -> pathlib.Path:
    """virtio_vgpu.ko for a kernel whose headers are installed, built outside the source tree."""
    version = version or kernel_version()
    work = BUILD / f"module-{version}"
    for part in ["kernel", "uapi"]:
        source = REPO / "guest-driver" / part
        target = work / "guest-driver" / part
        target.mkdir(parents=True, exist_ok=True)
        for file in source.iterdir():
            # Keep times, so that make builds only what changed.
            if file.is_file() and (not (target / file.name).exists()
                                   or file.stat().st_mtime > (target / file.name).stat().st_mtime):
                shutil.copy2(file, target / file.name)
    run(["make", "-C", work / "guest-driver/kernel", f"KERNELRELEASE_WANTED={version}",
         f"KDIR=/lib/modules/{version}/build" if pathlib.Path(f"/lib/modules/{version}/build").exists()
         else f"KDIR=/usr/src/linux-headers-{version}"], log=work / "build.log", what="building virtio_vgpu.ko")
    return work / "guest-driver/kernel/virtio_vgpu.ko"


def agent() -> pathlib.Path:
    source = REPO / "tools/lab/agent/agent.c"
    program = BUILD / "agent"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-o", program, source])
    return program


def initramfs() -> pathlib.Path:
    """The whole initramfs, made again only when something in it changed."""
    kernel_folder, base_archive = kernel(), base()
    with step("making the guest image"):
        files = {f"lib/modules/{name}.ko": kernel_folder / f"{name}.ko" for name in KERNEL_MODULES}
        files = {target: source for target, source in files.items() if source.exists()}
        files["lib/modules/virtio_vgpu.ko"] = build_module()
        files["sbin/agent"] = agent()
        files[GUEST_LIBRARIES.lstrip("/") + "/libcuda.so.1"] = BUILD / "guest-driver/libcuda/libcuda.so.1"
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


def _assemble(init: str, files: dict, base_archive: pathlib.Path, image: pathlib.Path) -> None:
    tree = cache() / "guest-overlay"
    shutil.rmtree(tree, ignore_errors=True)
    # The base has /lib and /sbin as links into /usr; an archive unpacked over it must not replace them.
    for target, source in files.items():
        place = tree / (target if target.startswith("usr/") else f"usr/{target}")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)
        if place.name.startswith("lib"):
            subprocess.run(["strip", "--strip-debug", place], check=False)
    (tree / "init").write_text(init)
    os.chmod(tree / "init", 0o755)
    overlay = cache() / "guest-overlay.cpio.zst"
    _cpio(tree, overlay)
    temporary = image.with_suffix(".new")
    temporary.write_bytes(base_archive.read_bytes() + overlay.read_bytes())
    temporary.rename(image)
    shutil.rmtree(tree)
