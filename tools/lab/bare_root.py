"""Roots of Debian releases as mmdebstrap makes them, and how they are removed."""
import pathlib
import typing

from lab.machine import install_packages
from lab.shell import need_root, run, step

# An option: without what people read.
WITHOUT_DOCUMENTS = [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale", "info")]
# A hook: apt's lists name the archive that this machine uses; a root that is packed and carried must not.
WITHOUT_ARCHIVE = 'rm -rf "$1"/etc/apt/sources.list* "$1"/var/lib/apt/lists/*'


def make(path: pathlib.Path, release: str, sources: list[str], packages: list[str], text: str,
         options: typing.Sequence[str] = (), hooks: typing.Sequence[str] = ()) -> None:
    """In place of what `path` was before. `sources`: lines for apt. `text`: what it is, for people. `hooks`: commands
    of a shell that has the root's folder as $1, run when its packages are there."""
    need_root(f"making {text.partition(' (')[0]}")
    install_packages(["mmdebstrap"])
    temporary = path.with_name(path.name + ".new")
    remove(temporary)
    with step(f"making {text}"):
        # What mmdebstrap mounts ends with it, also when it is killed.
        run(["unshare", "--mount", "mmdebstrap", "--mode=root", "--variant=minbase", "--skip=check/qemu",
             '--aptopt=Acquire::Check-Valid-Until "false"', *options,
             *([f"--include={','.join(packages)}"] if packages else []),
             *(f"--customize-hook={hook}" for hook in hooks), release, temporary, *sources],
            log=path.with_name(path.name + ".log"), what="mmdebstrap")
    remove(path)
    temporary.rename(path)


def remove(path: pathlib.Path) -> None:
    """Also what is still mounted in it; what lies behind a mount stays."""
    if not path.exists():
        return
    mounted = [line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    for place in reversed([place for place in mounted if pathlib.Path(place).is_relative_to(path)]):
        run(["umount", "--lazy", place])
    run(["rm", "-rf", "--one-file-system", path])
