"""A pytest worker that has a sticky CUDA error ends with the test that made it, and another takes its place: what comes
after would all fail for one test's fault."""
import ctypes
import os

import pytest

# A fault, a trap, a failed assertion, and the like: every later call of the process returns them.
STICKY = {214, 220, 700, 702, 710, 713, 714, 715, 716, 717, 718, 719, 999}


def sticky_error() -> int:
    """Of the context that is current, where one is; 0 without."""
    if "libcuda.so.1" not in open("/proc/self/maps", encoding="ascii", errors="replace").read():
        return 0
    status = ctypes.CDLL("libcuda.so.1").cuCtxSynchronize()
    return status if status in STICKY else 0


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish(nodeid: str) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ and (status := sticky_error()):
        os.write(2, f"{nodeid} leaves the CUDA error {status}; its worker ends\n".encode())
        os._exit(1)
