"""Packages of this tree, and a fresh Debian root for all tests of one file and release."""
import collections.abc
import pathlib

import pytest

from lab import debian_root, package
from lab.booted_root import BootedRoot
from lab.shell import step


@pytest.fixture(scope="module", params=debian_root.RELEASES)
def release(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def packages(release: str) -> pathlib.Path:
    """The folder with the packages for the release."""
    if not package.is_current(release):
        package.build(release)
    return package.output(release)


@pytest.fixture(scope="module")
def booted(release: str, packages: pathlib.Path) -> collections.abc.Iterator[BootedRoot]:
    with step(f"booting a fresh Debian {debian_root.RELEASES[release]}"):
        root = BootedRoot(release, packages)
    with root:
        root.apt("update")
        yield root
