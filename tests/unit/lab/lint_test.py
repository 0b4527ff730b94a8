"""What tools/test --only lint asks of the titles of commits."""
import pytest

from lab.lint import wrong_title


@pytest.mark.parametrize("title", ["runner: records are counted", "uapi, virtio: a page each", "whole tree: new words"])
def test_titles_that_are_right(title):
    assert wrong_title(title) == ""


@pytest.mark.parametrize(("title", "why"), [
    ("changes", "form"), ("runner:", "form"), ("runner:no space", "form"), ("kitchen: a new stove", "kitchen"),
    ("runner, kitchen: both", "kitchen"), ("Runner: a capital", "Runner")])
def test_titles_that_are_wrong(title, why):
    assert why in wrong_title(title)
