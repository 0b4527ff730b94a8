"""tools/pack: what a machine with a GPU but without a network lacks, in the ignored folder .carry: Debian packages for
the build, QEMU, and the parts of the guest that are made with a network or with kernel headers. `.carry/install` (or
`tools/test --gpu` itself) puts them to their places there."""
import argparse
import pathlib
import shutil
import subprocess

from lab import build, image, machine, qemu_root
from lab.paths import REPO, cache
from lab.shell import Failure, main, run, say, step
from lab.unpack import CARRY

PACKAGES = ["nlohmann-json3-dev", "libcli11-dev", "libtomlplusplus-dev", "libtomlplusplus3",
            "prometheus-cpp-dev", "libprometheus-cpp-core1.0", "libncurses-dev",
            # For the Python tests. matplotlib is too large: charts are drawn elsewhere, from the JSON of a benchmark.
            "python3-pytest", "python3-attr", "python3-iniconfig", "python3-packaging", "python3-pluggy"]
FIRMWARE = ["seabios/bios-256k.bin", "qemu/kvmvapic.bin", "qemu/linuxboot_dma.bin"]
LIMIT = 45 << 20

INSTALL = """#!/usr/bin/env bash
# Puts what lies here to its places: Debian packages, QEMU, parts of the guest.
here=$(cd "$(dirname "$0")" && pwd)
PYTHONPATH="$here/../tools" PYTHONDONTWRITEBYTECODE=1 exec /usr/bin/python3 -m lab.unpack "$here"
"""


def _packages(target: pathlib.Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    if all(any(target.glob(f"{package}_*.deb")) for package in PACKAGES):
        return
    with step("downloading packages"):
        run(["apt-get", "update", "-qq"])
        run(["apt-get", "download", "-qq", *PACKAGES], cwd=target)


def _libraries(root: pathlib.Path) -> list[pathlib.Path]:
    """What the loader maps for QEMU, and the loader."""
    folder = root / "usr/lib/x86_64-linux-gnu"
    loader = root / "lib64/ld-linux-x86-64.so.2"
    text = run([loader, "--library-path", folder, "--list", root / "usr/bin/qemu-system-x86_64"])
    found = [pathlib.Path(line.split(" => ")[1].split(" (")[0]) for line in text.splitlines() if " => " in line]
    if strangers := [path for path in found if root not in path.parents]:
        raise Failure(f"QEMU's root lacks {', '.join(map(str, strangers))}")
    return found


def _qemu(target: pathlib.Path) -> None:
    root = cache() / "qemu-root"
    if not qemu_root.made():
        raise Failure(f"no private root with QEMU under {root}: run tools/setup on a host whose own QEMU is too old")
    tree = cache() / "qemu-slim"
    shutil.rmtree(tree, ignore_errors=True)
    copies = {"usr/bin/qemu-system-x86_64": root / "usr/bin/qemu-system-x86_64",
              "lib64/ld-linux-x86-64.so.2": root / "lib64/ld-linux-x86-64.so.2"}
    copies |= {f"usr/lib/x86_64-linux-gnu/{library.name}": library for library in _libraries(root)}
    copies |= {f"usr/share/{name}": root / "usr/share" / name for name in FIRMWARE}
    for name, source in copies.items():
        place = tree / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source.resolve(), place)
        if not name.startswith("usr/share"):
            subprocess.run(["strip", "--strip-unneeded", place], check=False, capture_output=True)
    _archive(tree, target)


def _guest(target: pathlib.Path) -> None:
    tree = cache() / "guest-slim"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(image.kernel(), tree / "kernel")
    for name, source in {"virtio_vgpu.ko": image.build_module(),
                         "vgpu_crypto.ko": image.build_module(name="vgpu_crypto"), "agent": image.agent(),
                         "busybox": pathlib.Path("/usr/bin/busybox")}.items():
        shutil.copy(source, tree / name)
    for file in (tree / "agent", *tree.glob("*.ko"), *tree.glob("kernel/*.ko")):
        run(["strip", "--strip-debug", file])
    _archive(tree, target)


def _archive(tree: pathlib.Path, target: pathlib.Path) -> None:
    with step(f"packing {target.name}"):
        command = f"tar --sort=name --mtime=@0 --owner=0 --group=0 -C {tree} -c . | xz -T0 -9 > {target}.new"
        run(["bash", "-o", "pipefail", "-c", command])
    pathlib.Path(f"{target}.new").rename(target)
    shutil.rmtree(tree)


def pack() -> int:
    parser = argparse.ArgumentParser(prog="tools/pack", description=__doc__)
    parser.add_argument("--no-vm", action="store_true", help="packages for the build only")
    options = parser.parse_args()
    _packages(CARRY / "debs")
    if not options.no_vm:
        machine.install_packages(machine.LAB_PACKAGES)
        qemu_root.root()
        build.configure()  # the module and the agent are built in its folder
        if not (CARRY / "qemu.tar.xz").exists():
            _qemu(CARRY / "qemu.tar.xz")
        _guest(CARRY / "guest.tar.xz")
    (CARRY / "install").write_text(INSTALL)
    (CARRY / "install").chmod(0o755)
    size = sum(file.stat().st_size for file in CARRY.rglob("*") if file.is_file())
    if size > LIMIT:
        raise Failure(f"{CARRY} has {size >> 20} MiB, more than {LIMIT >> 20}")
    say(f"{CARRY.relative_to(REPO)}: {size / (1 << 20):.1f} MiB; .carry/install puts it to its places")
    return 0


if __name__ == "__main__":
    main(pack)
