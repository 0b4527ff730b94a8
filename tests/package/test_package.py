"""What is built: free of complaints, and the same each time."""
import pathlib

from lab import package


def test_lintian_has_nothing_to_say(release: str, packages: pathlib.Path):
    assert packages
    assert package.lint(release) == ""


def test_a_second_build_gives_the_same_bytes(release: str, packages: pathlib.Path):
    assert packages
    assert package.differences(release) == []
