"""tools/setup: everything the other tools need, in one go."""
import argparse
import concurrent.futures

from lab import build, image, machine, qemu_root, unpack, xen_root
from lab.shell import main, say


def prepare(lab: bool = True, tests: bool = False, optimized: bool = False, xen: bool = False) -> None:
    """`tests` builds the unit tests too, which running a program does not need; `optimized`: see build.optimize; `xen`:
    what boots Xen too."""
    machine.install_packages(machine.BUILD_PACKAGES + (machine.LAB_PACKAGES if lab else []))
    machine.toolkit()
    if optimized:
        build.optimize()
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        fetched = beside.submit(_fetch, xen) if lab else None
        build.build(*([] if tests else ["programs"]))
        if fetched:
            fetched.result()
    if lab:
        image.initramfs()


def _fetch(xen: bool) -> None:
    """What is mostly downloads, and goes on while the compiler has the processors."""
    qemu_root.root()
    image.kernel()
    if xen:
        xen_root.root()


def prepare_gpu(lab: bool = True) -> None:
    """On a machine with a GPU, perhaps without a network: what it lacks of the software device and libvirt is left out.
    `lab`: as far as QEMU was carried here or can be made."""
    unpack.unpack_if_needed()
    machine.require_least_build()
    build.configure(options=(*build.OPTIMIZED, *machine.least_options()))
    build.build("programs")
    if lab and qemu_root.available():
        qemu_root.root()
        image.initramfs()


def prepare_for(device: str) -> None:
    """What programs in direct mode need: on the software device ("soft"), or on a GPU."""
    if device == "soft":
        prepare(lab=False)
    else:
        prepare_gpu(lab=False)


def run() -> int:
    parser = argparse.ArgumentParser(prog="tools/setup", description=__doc__)
    parser.add_argument("--no-lab", action="store_true", help="leave out QEMU and the guest image")
    parser.add_argument("--optimized", action="store_true", help="optimise all of it, as what is installed should be")
    options = parser.parse_args()
    prepare(lab=not options.no_lab, tests=True, optimized=options.optimized)
    say("ready: try tools/demo")
    return 0


if __name__ == "__main__":
    main(run)
