"""Roots of Debian releases: one to build packages in, and fresh ones to try them in. They take what they install from
the archive that this machine's apt already uses."""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import typing

from lab import bare_root
from lab.machine import debian_mirror, toolkit
from lab.paths import REPO, cache
from lab.shell import run

RELEASES = {"bookworm": "12", "trixie": "13", "sid": "unstable"}
BUILD_TOOLS = ["build-essential", "debhelper", "lintian", "ccache"]
# What `unshare` starts, to end in a root that has its own mounts and folders from outside. A line of these is
# outside:inside:options.
ENTER = """set -e
root=$1 folders=$2; shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
while IFS=: read -r outside inside options; do
  mkdir -p "$root$inside"
  mount --bind -o "$options" "$outside" "$root$inside"
done <<< "$folders"
cd /
exec chroot "$root" "$@"
"""
BUILD_ENVIRONMENT = ["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
                     "CCACHE_DIR=/ccache", "CCACHE_DEPEND=1"]


def folder() -> pathlib.Path:
    path = cache() / "package-roots"
    path.mkdir(parents=True, exist_ok=True)
    return path


def archives(release: str, components: str = "main") -> list[str]:
    """Lines for apt: the release, its updates, and its security updates where this machine knows their archive."""
    mirror = debian_mirror().rstrip("/")
    lines = [f"deb {mirror} {release} {components}"]
    if release == "sid":
        return lines
    lines.append(f"deb {mirror} {release}-updates {components}")
    for file in [pathlib.Path("/etc/apt/sources.list"), *sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*"))]:
        text = file.read_text(errors="replace") if file.is_file() else ""
        if match := re.search(r"^\s*(?:URIs:|deb(?:\s+\[[^]]*\])?)\s+(\S*debian-security)/?\s", text, re.MULTILINE):
            return [*lines, f"deb {match.group(1)} {release}-security {components}"]
    return lines


def backports(release: str) -> str:
    return f"deb {debian_mirror().rstrip('/')} {release}-backports main"


def make(path: pathlib.Path, release: str, packages: list[str], size: str, components: str = "main",
         hooks: typing.Sequence[str] = ()) -> None:
    bare_root.make(path, release, archives(release, components), packages, f"a Debian {RELEASES[release]} root, {size}",
                   ["--skip=cleanup/apt/lists"], hooks)


def remove_all(pattern: str) -> None:
    for old in folder().glob(pattern):
        if old.is_dir():
            bare_root.remove(old)


def build_dependencies() -> list[str]:
    """Of debian/control, the first of alternatives, without what build-essential has."""
    control = (REPO / "debian/control").read_text()
    field = re.search(r"^Build-Depends:(.*?)^\S", control, re.MULTILINE | re.DOTALL)
    assert field, "debian/control has no Build-Depends"
    names = [part.split("|")[0].split("(")[0].split(":")[0].strip() for part in field.group(1).split(",")]
    renamed = {"debhelper-compat": "debhelper", "dh-sequence-dkms": "dh-dkms"}  # virtual ones
    return [renamed.get(name, name) for name in names]


def build_root(release: str) -> pathlib.Path:
    """Made once, and again when what the build depends on changes."""
    wanted = sorted({*BUILD_TOOLS, *build_dependencies()})
    digest = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:8]
    path = folder() / f"{release}-build-{digest}"
    if not path.exists():
        remove_all(f"{release}-build-*")
        make(path, release, wanted, "to build in (about 400 MB)")
    return path


def fresh_root(release: str) -> pathlib.Path:
    """With what a small server has: systemd as its first process, apt. Nobody writes to it."""
    path = folder() / f"{release}-fresh"
    if not path.exists():
        make(path, release, ["systemd-sysv", "dbus", "apt", "procps"], "to try packages in (about 80 MB)")
    return path


def entered(path: pathlib.Path, folders: typing.Sequence[tuple[pathlib.Path, str, str]],
            command: list[str]) -> list[str]:
    """The command in the root `path`, with these folders: outside, inside, mount's options. Its mounts end with it."""
    lines = "\n".join(f"{outside}:{inside}:{options}" for outside, inside, options in folders)
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER, "enter", str(path), lines,
            *command]


def run_in(root: pathlib.Path, command: list[str], **options) -> str:
    """Runs a command in a build root, as its root user, with the CUDA Toolkit's headers and the compiler cache."""
    ccache = pathlib.Path(os.environ.get("CCACHE_DIR") or pathlib.Path.home() / ".cache/ccache")
    ccache.mkdir(parents=True, exist_ok=True)
    folders = [(toolkit().resolve(), "/usr/local/cuda", "ro"), (ccache, "/ccache", "rw")]
    return run(entered(root, folders, [*BUILD_ENVIRONMENT, *command]), **options)


def copy_tree(target: pathlib.Path) -> None:
    """What git knows of the working tree, or would."""
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    listed = subprocess.run(["git", "-C", REPO, "ls-files", "-co", "--exclude-standard", "-z"], check=True,
                            capture_output=True).stdout.split(b"\0")
    for name in filter(None, listed):
        source = REPO / os.fsdecode(name)
        if not source.is_file() and not source.is_symlink():
            continue  # removed, and not yet committed
        (target / os.fsdecode(name)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target / os.fsdecode(name), follow_symlinks=False)
