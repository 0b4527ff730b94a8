"""NVLink, peers and affinity as libnvidia-ml.so.1 says them, of sessions that say plain values here: links are asked
as NCCL asks for them, affinity and versions as cuda-python and scripts that pin processes do."""
import ctypes
import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading

import pytest

LIBRARY = pathlib.Path(os.environ["BANDSAW_BUILD"]) / "guest-driver/nvml/libnvidia-ml.so.1"
EINVAL, DEVICE, LINKS = 22, 1, 5  # enum vgpu_query_what
SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, VERSION_MISMATCH = 0, 2, 3, 6, 7, 25
GPU_TYPE, SWITCH_TYPE = 0, 2
READ, WRITE, NVLINK, ATOMICS, PCI = range(5)
GOOD, NOT_GOOD = 0, 5
GET_SPEED, GET_STATE, GET_VERSION, COUNT, COMMON_SPEED, SPEED_L1, SPEED_L6 = 164, 165, 166, 91, 90, 85, 132
HIDDEN = b"FFFFFFF:FFFF:FF"


def device_answer(bus: int) -> bytes:
    return struct.pack("<64s16s10I", b"a GPU", bytes([bus] * 16), 0xb500, bus, 0, 9, 0, 13000, 132, 0, 1, 0)


def links_answer(physical=0, active=0, to_switch=0, peers=(), remotes=()) -> bytes:
    return struct.pack("<5I15I18s2x", physical, active, to_switch, 6, 26562, *peers, *[0] * (15 - len(peers)),
                       bytes(remotes))


# By name: two GPUs at switches, of which `same` shares one; two GPUs with a link to each other; two without links;
# one of a host that does not know the question.
SAID = {
    "left": links_answer(1, 0b1011, 0b1011, [2]),
    "right": links_answer(2, 0b0111, 0b0111, [1]),
    "same": links_answer(1, 0b1011, 0b1011, [2]),
    "bridge0": links_answer(3, 0b11, 0, [9, 4], [2, 2]),
    "bridge1": links_answer(4, 0b11, 0, [9, 3], [1, 2]),
    "pci0": links_answer(5, peers=[6]),
    "pci1": links_answer(6, peers=[5]),
    "alone": links_answer(),
    "old": b"",
}
BUS = {name: 1 + i for i, name in enumerate(SAID)}


def _serve(listener: socket.socket, name: str) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            _, _, what, _ = struct.unpack("<4I", connection.recv(64))
            answer = device_answer(BUS[name]) if what == DEVICE else SAID[name] if what == LINKS else b""
            connection.send(struct.pack("<2IQ32s120s", 0 if answer else EINVAL, 0, 0, b"", answer))


@pytest.fixture(name="run", scope="module")
def _run(tmp_path_factory):
    folder, listeners = tmp_path_factory.mktemp("run"), []
    for name in SAID:
        (folder / name).mkdir()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(folder / name / "direct.sock"))
        listener.listen(8)
        threading.Thread(target=_serve, args=(listener, name), daemon=True).start()
        listeners.append(listener)
    yield folder
    for listener in listeners:
        listener.close()


class PciInfo(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16), ("domain", ctypes.c_uint), ("bus", ctypes.c_uint),
                ("device", ctypes.c_uint), ("ids", ctypes.c_uint), ("subsystem", ctypes.c_uint),
                ("text", ctypes.c_char * 32)]


class Field(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong),
                ("latency", ctypes.c_longlong), ("type", ctypes.c_int), ("error", ctypes.c_int),
                ("value", ctypes.c_uint), ("rest", ctypes.c_uint)]


class Library:
    """In a process of its own, since what it is initialised with holds as long as its process."""

    def __init__(self):
        self.nvml = ctypes.CDLL(str(LIBRARY))
        assert self.nvml.nvmlInit_v2() == SUCCESS

    def device(self, index: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        assert self.nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == SUCCESS
        return handle

    def number(self, function: str, *arguments) -> tuple[int, int]:
        value = ctypes.c_uint(77)
        return getattr(self.nvml, function)(*arguments, ctypes.byref(value)), value.value

    def field(self, device, field: int, link: int = 0) -> tuple[int, int]:
        value = Field(id=field, scope=link)
        assert self.nvml.nvmlDeviceGetFieldValues(device, 1, ctypes.byref(value)) == SUCCESS
        return value.error, value.value

    def remote(self, device, link: int, version: str = "") -> tuple[int, PciInfo]:
        info = PciInfo(text=b"untouched")
        return getattr(self.nvml, f"nvmlDeviceGetNvLinkRemotePciInfo{version}")(device, link, ctypes.byref(info)), info

    def peer(self, one: int, other: int) -> list[int]:
        pair = self.device(one), self.device(other)
        said = [self.number("nvmlDeviceGetP2PStatus", *pair, index) for index in range(5)]
        assert {error for error, _ in said} == {SUCCESS}
        return [status for _, status in said]


# What each case checks stands in a function of its name, which runs in a process with the virtual GPUs named.
def nccl_finds_links_to_a_switch(library: Library) -> None:
    device = library.device(0)
    found = {}
    for link in range(18):
        error, can = library.number("nvmlDeviceGetNvLinkCapability", device, link, 0)
        assert error == SUCCESS
        if not can:
            assert library.field(device, GET_STATE, link) == (SUCCESS, 0)
            assert library.number("nvmlDeviceGetNvLinkState", device, link) == (SUCCESS, 0)
            assert library.remote(device, link)[0] == NOT_SUPPORTED
            continue
        assert library.field(device, GET_STATE, link) == (SUCCESS, 1)
        assert library.number("nvmlDeviceGetNvLinkState", device, link) == (SUCCESS, 1)
        error, remote = library.remote(device, link)
        assert error == SUCCESS and remote.text == b"untouched"  # which the function's older structure does not have
        found[link] = remote.legacy
        assert library.remote(device, link, "_v2")[1].domain == 0xfffffff
        assert library.number("nvmlDeviceGetNvLinkRemoteDeviceType", device, link) == (SUCCESS, SWITCH_TYPE)
        assert library.number("nvmlDeviceGetNvLinkVersion", device, link) == (SUCCESS, 6)
    assert found == {0: HIDDEN, 1: HIDDEN, 3: HIDDEN}


def fields_of_links(library: Library) -> None:
    device = library.device(0)
    assert library.field(device, COUNT) == (SUCCESS, 3)
    assert library.field(device, COMMON_SPEED) == library.field(device, SPEED_L1) == (SUCCESS, 26562)
    assert library.field(device, GET_SPEED, 2) == library.field(device, SPEED_L6) == (SUCCESS, 0)
    assert library.field(device, GET_VERSION, 0) == (SUCCESS, 6)
    for link in (18, 1 << 31):
        assert library.field(device, GET_STATE, link)[0] == INVALID_ARGUMENT
        assert library.number("nvmlDeviceGetNvLinkState", device, link)[0] == INVALID_ARGUMENT
        assert library.remote(device, link)[0] == INVALID_ARGUMENT
    assert library.number("nvmlDeviceGetNvLinkCapability", device, 0, 6)[0] == INVALID_ARGUMENT
    assert library.number("nvmlDeviceGetNvLinkCapability", device, 0, 2) == (SUCCESS, 0)  # atomics


def peers_by_links(library: Library) -> None:
    assert library.peer(0, 1) == library.peer(1, 0) == [GOOD, GOOD, GOOD, NOT_GOOD, NOT_GOOD]
    assert library.peer(0, 0) == library.peer(0, 2) == [GOOD, GOOD, NOT_GOOD, NOT_GOOD, GOOD]  # one GPU
    assert library.number("nvmlDeviceGetP2PStatus", library.device(0), library.device(1), 5)[0] == INVALID_ARGUMENT


def peers_without_links(library: Library) -> None:
    assert library.peer(0, 1) == [GOOD, GOOD, NOT_GOOD, NOT_GOOD, GOOD]
    assert library.peer(0, 2) == library.peer(2, 0) == library.peer(2, 3) == [NOT_GOOD] * 5
    for index in range(4):
        device = library.device(index)
        assert library.number("nvmlDeviceGetNvLinkState", device, 0)[0] == NOT_SUPPORTED
        assert library.field(device, COUNT)[0] == library.field(device, GET_STATE)[0] == NOT_SUPPORTED


def a_link_to_a_gpu_ends_at_its_virtual_gpu(library: Library) -> None:
    for own, other, name, count in ((0, 1, "bridge1", 2), (1, 0, "bridge0", 1)):  # one leads to a GPU that is not seen
        device = library.device(own)
        assert library.field(device, COUNT) == (SUCCESS, count)
        assert library.number("nvmlDeviceGetNvLinkRemoteDeviceType", device, 1) == (SUCCESS, GPU_TYPE)
        error, remote = library.remote(device, 1, "_v2")
        assert error == SUCCESS and remote.legacy == f"B500:{BUS[name]:02X}:00.0".encode()
        assert library.peer(own, other)[:3] == [GOOD] * 3


def a_link_to_a_gpu_that_is_not_seen_is_none(library: Library) -> None:
    assert library.number("nvmlDeviceGetNvLinkState", library.device(0), 0)[0] == NOT_SUPPORTED
    assert library.field(library.device(0), COUNT)[0] == NOT_SUPPORTED


def all_cpus_are_near(library: Library) -> None:
    nvml, device, words = library.nvml, library.device(0), (ctypes.c_ulong * 16)()
    online = pathlib.Path("/sys/devices/system/cpu/online").read_text(encoding="ascii").strip()
    assert nvml.nvmlDeviceGetCpuAffinity(device, 16, words) == SUCCESS
    cpus = {cpu for cpu in range(1024) if words[cpu // 64] >> cpu % 64 & 1}
    ends = [[int(end) for end in part.split("-")] for part in online.split(",")]
    assert cpus == {cpu for end in ends for cpu in range(end[0], end[-1] + 1)}
    words[0] = 0
    assert nvml.nvmlDeviceGetCpuAffinityWithinScope(device, 1, words, 1) == SUCCESS and words[0]
    assert nvml.nvmlDeviceGetMemoryAffinity(device, 16, words, 0) == SUCCESS and words[0]
    for wrong in ((0, words, 0), (16, None, 0), (16, words, 2)):
        assert nvml.nvmlDeviceGetCpuAffinityWithinScope(device, *wrong) == INVALID_ARGUMENT
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    assert nvml.nvmlDeviceSetCpuAffinity(device) == SUCCESS and os.sched_getaffinity(0) >= allowed
    os.sched_setaffinity(0, {min(allowed)})
    assert nvml.nvmlDeviceClearCpuAffinity(device) == SUCCESS and os.sched_getaffinity(0) >= allowed
    count, found = ctypes.c_uint(0), (ctypes.c_void_p * 4)()
    assert nvml.nvmlSystemGetTopologyGpuSet(min(cpus), ctypes.byref(count), None) == SUCCESS and count.value == 2
    count.value = 4
    assert nvml.nvmlSystemGetTopologyGpuSet(min(cpus), ctypes.byref(count), found) == SUCCESS and count.value == 2
    assert found[:2] == [library.device(index).value for index in range(2)]
    assert nvml.nvmlSystemGetTopologyGpuSet(1 << 20, ctypes.byref(count), found) == INVALID_ARGUMENT


def nvml_by_uuid(library: Library, text: bytes) -> int:
    return library.nvml.nvmlDeviceGetHandleByUUID(text, ctypes.byref(ctypes.c_void_p()))


def what_cuda_python_asks_first(library: Library) -> None:
    branch = (ctypes.c_ubyte * 84).from_buffer_copy(struct.pack("<I80x", 84 | 1 << 24))
    assert library.nvml.nvmlSystemGetDriverBranch(branch, 3) == INSUFFICIENT_SIZE
    assert library.nvml.nvmlSystemGetDriverBranch(branch, 80) == SUCCESS and bytes(branch[4:12]) == b"bandsaw\0"
    branch[0] = 0
    assert library.nvml.nvmlSystemGetDriverBranch(branch, 80) == VERSION_MISMATCH
    device = library.device(0)
    assert library.number("nvmlDeviceGetNumFans", device) == (SUCCESS, 0)
    assert library.number("nvmlDeviceGetModuleId", device) == (SUCCESS, 0)
    features = (ctypes.c_ubyte * 2048)(*b"x" * 16)
    assert library.nvml.nvmlDeviceGetGridLicensableFeatures_v4(device, features) == SUCCESS
    assert bytes(features[:9]) == bytes(8) + b"x"
    bare = b"01010101-0101-0101-0101-010101010101"  # as CUDA tells it
    for text, result in ((b"GPU-" + bare, SUCCESS), (bare, SUCCESS), (bare[1:], NOT_FOUND),
                         (b"MIG-" + bare, NOT_FOUND)):
        assert nvml_by_uuid(library, text) == result
    capabilities = (ctypes.c_uint * 2)(8 | 1 << 24, 77)
    assert library.nvml.nvmlDeviceGetCapabilities(device, capabilities) == SUCCESS and capabilities[1] == 0


CASES = [(all_cpus_are_near, "left,right"), (what_cuda_python_asks_first, "left"),
         (nccl_finds_links_to_a_switch, "left,right"), (fields_of_links, "left,right"),
         (peers_by_links, "left,right,same"), (peers_without_links, "pci0,pci1,alone,old"),
         (a_link_to_a_gpu_ends_at_its_virtual_gpu, "bridge0,bridge1"),
         (a_link_to_a_gpu_that_is_not_seen_is_none, "bridge0")]


@pytest.mark.parametrize(("case", "names"), [pytest.param(*one, id=one[0].__name__) for one in CASES])
def test(run, case, names):
    done = subprocess.run([sys.executable, __file__, case.__name__], text=True, capture_output=True, timeout=30,
                          env={**os.environ, "BANDSAW_RUN": str(run), "BANDSAW_VGPU": names}, check=False)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    {case.__name__: case for case, _ in CASES}[sys.argv[1]](Library())
