"""Which lines of a program's two outputs count as different."""
from lab.gpu_tests import differing


def test_order_does_not_matter_and_what_is_listed_is_left_out():
    assert not differing("a -> 0\nb -> 1\n", "libcuda (bandsaw): cuMemcpy3D is slow\nb -> 1\na -> 0\n")


def test_lines_of_one_alone_are_told_with_whose_they_are():
    assert differing("a -> 0\nb -> 1\n", "a -> 0\nb -> 2\nb -> 2\n") == ["< b -> 1", "> b -> 2"]
