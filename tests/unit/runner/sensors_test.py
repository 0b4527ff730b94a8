"""`bandsaw-runner --sensors` reads whichever libnvidia-ml.so.1 the loader finds: here one of our own."""
import os
import pathlib
import struct
import subprocess

import pytest

RUNNER = pathlib.Path(os.environ["BANDSAW_BUILD"]) / "backend/runner/bandsaw-runner"
TEMPERATURE, POWER, LEAST, MOST, MEMORY_CLOCK, ECC = 0, 3, 6, 7, 10, 19  # enum vgpu_sensor
SENSORS = 28
LINKS, PEERS = 18, 15
SENSOR_BYTES, LINK_BYTES = 8 + 4 * SENSORS, 6 * 4 + 8 * LINKS + 8 * PEERS
BYTES = SENSOR_BYTES + LINK_BYTES

NVML = """
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  *device = (void*)7;
  return strcmp(id, "00000000:0a:00.0") == 0 ? 0 : 6;
}
int nvmlDeviceGetTemperature(void* device, int kind, unsigned* value) { *value = 45; return device != (void*)7; }
int nvmlDeviceGetPowerUsage(void* device, unsigned* value) { *value = 123456; return 0; }
int nvmlDeviceGetFanSpeed(void* device, unsigned* value) { return 3; }
int nvmlDeviceGetClockInfo(void* device, int kind, unsigned* value) { *value = 1000 + kind; return 0; }
int nvmlDeviceGetPowerManagementLimitConstraints(void* device, unsigned* a, unsigned* b) { *a = 1; *b = 2; return 0; }
int nvmlDeviceGetEccMode(void* device, unsigned* now, unsigned* then) { *now = 1; *then = 0; return 0; }
"""
# Four GPUs, of which the first is asked: it reaches the second both ways, and reads but does not write the third. Its
# links: 0 to a switch, 1 to the second GPU, 2 down, 3 not for peers, the others not there.
PEERS_NVML = """
struct pci { char legacy[16]; unsigned domain, bus, device, ids, subsystem; char text[32]; };
struct field { unsigned id, scope; long long at, latency; int type, error; unsigned value; };
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** device) { *device = (char*)7 + i; return i == 3 ? 15 : 0; }
int nvmlDeviceGetPciInfo_v3(void* device, struct pci* info) {
  info->domain = 1; info->bus = 0x10 + ((char*)device - (char*)7); info->device = 2; return 0;
}
int nvmlDeviceGetP2PStatus(void* device, void* other, int index, int* status) {
  *status = other == (char*)7 + 1 || index == 0 ? 0 : 5; return device != (void*)7;
}
int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* then) { *now = MIG; *then = 0; return 0; }
int nvmlDeviceGetNvLinkCapability(void* device, unsigned link, int which, unsigned* has) {
  *has = link != 3; return which != 0 || link > 3 ? 2 : 0;
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* up) { *up = link != 2; return 0; }
int nvmlDeviceGetNvLinkVersion(void* device, unsigned link, unsigned* version) { *version = 6; return 0; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, unsigned* type) {
  *type = link == 0 ? 2 : 0; return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, struct pci* info) {
  return nvmlDeviceGetPciInfo_v3((char*)7 + 1, info);
}
int nvmlDeviceGetFieldValues(void* device, int count, struct field* field) {
  field->error = field->id != 90; field->value = 26562; return count != 1;
}
"""
SECOND_GPU = 1 << 16 | 0x11 << 8 | 2


def with_library(folder: pathlib.Path, source: str) -> dict[str, str]:
    (folder / "nvml.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", folder / "nvml.c"], check=True)
    return {**os.environ, "LD_LIBRARY_PATH": str(folder)}


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    return with_library(tmp_path_factory.mktemp("nvml"), NVML)


def read_reports(environment: dict[str, str], count: int) -> list[bytes]:
    with subprocess.Popen([RUNNER, "--sensors", "00000000:0a:00.0"], env=environment,
                          stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        reports = [process.stdout.read(BYTES) for _ in range(count)]
        process.kill()
    return reports


def links_of(report: bytes) -> tuple[list[int], list[int], list[int]]:
    numbers = struct.unpack(f"<6I{LINKS}Q{PEERS}Q", report[SENSOR_BYTES:])
    return list(numbers[:5]), list(numbers[6:6 + LINKS]), list(numbers[6 + LINKS:])


def test_it_says_what_is_known_and_again_a_second_later(environment):
    first, second = read_reports(environment, 2)
    assert first == second
    assert not any(first[SENSOR_BYTES:])  # this library says nothing of other GPUs
    known, *values = struct.unpack(f"<Q{SENSORS}I", first[:SENSOR_BYTES])
    assert {which: values[which] for which in range(SENSORS) if known >> which & 1} == {
        TEMPERATURE: 45, POWER: 123456, LEAST: 1, MOST: 2, MEMORY_CLOCK - 2: 1000, MEMORY_CLOCK - 1: 1001,
        MEMORY_CLOCK: 1002, MEMORY_CLOCK + 1: 1003, ECC: 1}


def test_without_such_a_gpu_it_says_so(environment):
    for bus_id, variables in (("00000000:0b:00.0", environment), ("00000000:0a:00.0", {"LD_LIBRARY_PATH": "/nowhere"})):
        done = subprocess.run([RUNNER, "--sensors", bus_id], env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "no sensors of" in done.stderr and not done.stdout


def said_by(folder: pathlib.Path, definition: str) -> tuple[list[int], list[int], list[int]]:
    return links_of(read_reports(with_library(folder, f"{NVML}{definition}\n{PEERS_NVML}"), 1)[0])


def test_it_says_whom_the_gpu_reaches_and_by_which_links(tmp_path):
    numbers, remotes, peers = said_by(tmp_path, "#define MIG 0")
    assert numbers == [0, 0b11, 0b01, 6, 26562]  # divided, active, to a switch, version, speed
    assert remotes == [0, SECOND_GPU] + [0] * (LINKS - 2)
    assert peers == [SECOND_GPU] + [0] * (PEERS - 1)


def test_a_divided_gpu_reaches_nothing(tmp_path):
    numbers, remotes, peers = said_by(tmp_path, "#define MIG 1")
    assert numbers == [1, 0, 0, 0, 0] and not any(remotes) and not any(peers)
