"""Roots of Debian with programs for GPUs from its archive, where a program finds this tree, the lab and its virtual GPU
at the paths that they have outside."""
import dataclasses
import hashlib
import pathlib
import shlex
import tempfile

from lab import debian_root
from lab.machine import wheels
from lab.paths import BUILD, REPO, cache
from lab.shell import run

# Packages of NVIDIA's driver, and one that downloads: a root has Bandsaw's libraries, and cuDNN from PyPI.
STAND_INS = {"libcuda1": "999", "libnvidia-ml1": "999", "nvidia-cudnn": "9.0.0.312~cuda12"}
CONTROL = """Package: {name}
Version: {version}
Architecture: amd64
Maintainer: Bandsaw's tests <root@localhost>
Description: stands for what the root has from elsewhere
"""


@dataclasses.dataclass(frozen=True)
class DebianPackages:
    """What a root has. `wheels` are of libraries alone, which are put where the loader looks."""
    release: str
    packages: tuple[str, ...]
    size: str
    wheels: tuple[str, ...] = ()


def _stand_in(folder: pathlib.Path, name: str, version: str) -> pathlib.Path:
    (folder / name / "DEBIAN").mkdir(parents=True)
    (folder / name / "DEBIAN/control").write_text(CONTROL.format(name=name, version=version))
    run(["dpkg-deb", "-b", folder / name, folder / f"{name}.deb"])
    return folder / f"{name}.deb"


def _libraries(folder: pathlib.Path, wanted: DebianPackages) -> list[pathlib.Path]:
    if wanted.wheels:
        wheels(folder, list(wanted.wheels), f"part of {wanted.size}", alone=True)
    return sorted(folder.glob("nvidia/*/lib/*.so*"))


def root(wanted: DebianPackages) -> pathlib.Path:
    """Made once, and again when what is wanted changes."""
    digest = hashlib.sha256(repr((wanted, sorted(STAND_INS.items()))).encode()).hexdigest()[:8]
    name = f"{wanted.release}-{wanted.packages[0]}"
    path = debian_root.folder() / f"{name}-{digest}"
    if path.exists():
        return path
    debian_root.remove_all(f"{name}-*")
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        stand_ins = [_stand_in(folder, *one) for one in STAND_INS.items()]
        libraries = _libraries(folder / "wheels", wanted)
        install = ["apt-get", "install", "-y", "--no-install-recommends", *(f"/tmp/{one.name}" for one in stand_ins),
                   *wanted.packages]
        hooks = [f'cp {shlex.join(map(str, stand_ins))} "$1/tmp"', f'chroot "$1" {shlex.join(install)}',
                 'rm "$1"/tmp/*.deb && chroot "$1" apt-get clean']
        if libraries:
            hooks.append(f'cp {shlex.join(map(str, libraries))} "$1/usr/lib/x86_64-linux-gnu" && chroot "$1" ldconfig')
        debian_root.make(path, wanted.release, ["apt", "ca-certificates"], wanted.size, "main contrib non-free", hooks)
    return path


def entered(wanted: DebianPackages, command: list[str]) -> list[str]:
    """The command as one of the root, with this process's environment."""
    shared = sorted({REPO, BUILD, cache(), pathlib.Path(tempfile.gettempdir())})
    return debian_root.entered(root(wanted), [(path, str(path), "rw") for path in shared], command)
