"""tools/package: Debian packages, each release's built in a root of that release."""
import argparse
import email.utils
import hashlib
import os
import pathlib
import re
import shutil
import subprocess

from lab import debian_root
from lab.machine import nvml_include
from lab.paths import REPO
from lab.shell import Failure, main, say, step

PLACE = "/build/bandsaw"  # in the root: the path is in no file, but the compiler cache knows it
# The packages and what describes them; the rest (.buildinfo) says when and where they were built.
SAME = ("*.deb", "*.dsc", "*.tar.xz")


def output(release: str) -> pathlib.Path:
    return REPO / "build" / "packages" / release


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", REPO, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def version(release: str) -> str:
    """The changelog's, the last commit's time and name, and the release: later commits and releases sort later."""
    text = (REPO / "debian/changelog").read_text()
    match = re.match(r"bandsaw \(([^)]+)\)", text)
    if not match:
        raise Failure("debian/changelog does not begin with `bandsaw (VERSION)`")
    when = _git("log", "-1", "--date=format-local:%Y%m%d%H%M%S", "--format=%cd.%h")
    of_release = "" if release == "sid" else f"~deb{debian_root.RELEASES[release]}"  # newer than any release's
    return f"{match.group(1)}+git{when}{of_release}"


def _prepare(root: pathlib.Path, release: str) -> None:
    """The tree in the root, with the changelog's entry for this build: dpkg takes SOURCE_DATE_EPOCH from it."""
    tree = root / PLACE.lstrip("/")
    debian_root.copy_tree(tree)
    date = email.utils.formatdate(int(_git("log", "-1", "--format=%ct")))
    changelog = tree / "debian/changelog"
    changelog.write_text(f"bandsaw ({version(release)}) {release}; urgency=medium\n\n"
                         f"  * Built from the tree as of commit {_git('log', '-1', '--format=%h')}.\n\n"
                         f" -- Bandsaw developers <developers@bandsaw.dev>  {date}\n\n" + changelog.read_text())
    nvml = nvml_include()
    (root / "build/nvml").mkdir(exist_ok=True)
    if nvml is None:
        raise Failure("nvml.h can be had neither from the CUDA Toolkit nor from PyPI")
    shutil.copy(nvml / "nvml.h", root / "build/nvml/nvml.h")


def _build(root: pathlib.Path, release: str, compile_anew: bool, text: str) -> None:
    _prepare(root, release)
    for old in (root / "build").glob("bandsaw*"):
        if old.is_file():
            old.unlink()
    variables = ["BANDSAW_NVML=/build/nvml", f"CCACHE_BASEDIR={PLACE}",
                 f"DEB_BUILD_OPTIONS=parallel={os.cpu_count()} terse noautodbgsym",
                 *(["CCACHE_RECACHE=1"] if compile_anew else [])]
    with step(text) as progress:
        debian_root.run_in(root, ["env", "-C", PLACE, *variables, "nice", "dpkg-buildpackage", "-us", "-uc"],
                           log=output(release).with_suffix(".log"), what="dpkg-buildpackage", progress=progress)


def _digests(folder: pathlib.Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for pattern in SAME for file in sorted(folder.glob("bandsaw" + pattern))}


def _collect(root: pathlib.Path, release: str) -> None:
    target = output(release)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in (root / "build").glob("bandsaw*"):
        if file.is_file():
            shutil.copy(file, target)


def lint(release: str) -> str:
    """What lintian says, errors and warnings only; empty: nothing."""
    root = debian_root.build_root(release)
    changes = next(iter((root / "build").glob("bandsaw*.changes")), None)
    if changes is None:
        raise Failure(f"nothing is built for {release}: run tools/package")
    with step(f"lintian, Debian {debian_root.RELEASES[release]}"):
        return debian_root.run_in(root, ["sh", "-c", f"lintian --allow-root --tag-display-limit 0 --fail-on none "
                                         f"/build/{changes.name} 2>&1"]).strip()


def build(release: str, compile_anew: bool = False) -> list[pathlib.Path]:
    """The packages, in output(release)."""
    root = debian_root.build_root(release)
    _build(root, release, compile_anew, f"building packages for Debian {debian_root.RELEASES[release]}")
    _collect(root, release)
    return sorted(output(release).glob("*.deb"))


def differences(release: str, compile_anew: bool = False) -> list[str]:
    """Builds what is built once more; the files that are not the same."""
    root = debian_root.build_root(release)
    before = _digests(output(release))
    _build(root, release, compile_anew, f"building them again for Debian {debian_root.RELEASES[release]}")
    after = _digests(root / "build")
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def is_current(release: str) -> bool:
    """Whether what lies in output(release) is of this tree, as it is committed."""
    clean = not _git("status", "--porcelain")
    return clean and any(output(release).glob(f"bandsaw_{version(release)}_*.deb"))


def run_tool() -> int:
    parser = argparse.ArgumentParser(prog="tools/package", description=__doc__)
    parser.add_argument("--release", choices=debian_root.RELEASES, action="append", help="one release (default: all)")
    parser.add_argument("--once", action="store_true", help="do not build a second time to compare")
    parser.add_argument("--compile-anew", action="store_true", help="without what the compiler cache has")
    options = parser.parse_args()
    wrong = 0
    for release in options.release or debian_root.RELEASES:
        build(release, options.compile_anew)
        if complaints := lint(release):
            print(complaints)
            wrong = 1
        if not options.once and (differ := differences(release, options.compile_anew)):
            print(f"error: a second build differs in {', '.join(differ)}; `diffoscope` says in what")
            wrong = 1
        say(f"packages for Debian {debian_root.RELEASES[release]}: {os.path.relpath(output(release), REPO)}")
    return wrong


if __name__ == "__main__":
    main(run_tool)
