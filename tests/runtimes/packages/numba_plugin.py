"""What numba-cuda's own tests expect of the conftest.py in its repository, which its wheel does not have."""
import pytest


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    request.cls._dump_failed_filechecks = False
