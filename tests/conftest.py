"""What the Python tests share. tools/test runs them all; `python3 -m pytest tests/direct -k faults` runs some of them,
on what tools/setup has built (BANDSAW_BUILD, or build/default)."""
import os

import pytest

from lab import host


@pytest.fixture(scope="session")
def vgpud():
    """The lab's vgpud, on the device that BANDSAW_LAB_DEVICE names."""
    host.start_vgpud()
    yield
    host.stop_vgpud()


@pytest.fixture(scope="session")
def libvirt(vgpud):
    """The lab's libvirt, whose domains can have virtual GPUs of the lab's vgpud."""
    host.start_libvirt()
    yield
    host.stop_libvirt()


@pytest.fixture(scope="session")
def device() -> str:
    """As vgpud names it: soft, cuda:0."""
    return host.current_device() or os.environ.get("BANDSAW_LAB_DEVICE", "soft")
