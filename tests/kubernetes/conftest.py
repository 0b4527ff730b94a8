"""One node for the tests of a file: a vgpud, a folder of the kubelet's, and modules of PyPI for its stand-ins."""
import importlib.util
import pathlib
import sys

import pytest

from lab.kubernetes_node import Node, python_folder

sys.path[:0] = [str(python_folder())]

CONFIG = """
[profiles.small]
memory = "256M"
compute = 20
copy = 20
[profiles.large]
memory = "768M"
compute = 60
"""


@pytest.fixture(scope="session")
def stand_in():
    """Modules beside the tests, by their names."""
    def load(name: str):
        found = importlib.util.spec_from_file_location(name, pathlib.Path(__file__).with_name(f"{name}.py"))
        assert found and found.loader
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        return module
    return load


@pytest.fixture(scope="module")
def node():
    made = Node(CONFIG)
    yield made
    made.close()
