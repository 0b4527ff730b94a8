"""What tools/pack packed, put to its places on a machine without a network: `python3 -m lab.unpack [FOLDER]`."""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

from lab.paths import REPO, cache
from lab.shell import main, need_root, run, step

CARRY = REPO / ".carry"


def unpack_if_needed() -> None:
    """Where the guest's module can be built, what was carried would only be older."""
    if not list(pathlib.Path("/usr/src").glob("linux-headers-*-amd64")):
        unpack()


def unpack(folder: pathlib.Path = CARRY) -> None:
    """Does what is not yet done; nothing where nothing was carried."""
    for archive, place in (("qemu.tar.xz", "qemu-root"), ("guest.tar.xz", "carried")):
        source, target = folder / archive, cache() / place
        if not source.exists() or _stamp(target) == _content(source):
            continue
        # A root that was made here, libvirt and all, is better than the one that was carried.
        if target.exists() and not (target / ".carried").exists():
            continue
        with step(f"unpacking {archive}"):
            _replace(source, target)
    _install(sorted(folder.glob("debs/*.deb")))


def _content(archive: pathlib.Path) -> str:
    return hashlib.sha256(archive.read_bytes()).hexdigest()


def _stamp(target: pathlib.Path) -> str:
    stamp = target / ".carried"
    return stamp.read_text() if stamp.exists() else ""


def _replace(source: pathlib.Path, target: pathlib.Path) -> None:
    temporary = target.with_name(target.name + ".new")
    shutil.rmtree(temporary, ignore_errors=True)
    with tarfile.open(source) as archive:
        if hasattr(tarfile, "tar_filter"):
            archive.extractall(temporary, filter="tar")
        else:
            archive.extractall(temporary)
    (temporary / ".carried").write_text(_content(source))
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)


def _installed(package: str) -> bool:
    done = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status}", package], capture_output=True, text=True,
                          check=False)
    return done.stdout == "installed"


def _install(packages: list[pathlib.Path]) -> None:
    missing = [file for file in packages if not _installed(file.name.split("_")[0])]
    if not missing:
        return
    need_root("installing packages")
    with step(f"installing {len(missing)} carried packages"):
        # They come from a Debian of another release; what they depend on is there under names of its own.
        run(["dpkg", "-i", "--force-depends", *missing], env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


if __name__ == "__main__":
    main(lambda: unpack(*[pathlib.Path(path).resolve() for path in sys.argv[1:2]]))
