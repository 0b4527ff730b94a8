"""`bandsaw-runner --sensors` reads whichever libnvidia-ml.so.1 the loader finds: here one of our own."""
import os
import pathlib
import struct
import subprocess

import pytest

RUNNER = pathlib.Path(os.environ["BANDSAW_BUILD"]) / "backend/runner/bandsaw-runner"
TEMPERATURE, POWER, LEAST, MOST, MEMORY_CLOCK, ECC = 0, 3, 6, 7, 10, 19  # enum vgpu_sensor
SENSORS = 28
BYTES = 8 + 4 * SENSORS

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


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", folder / "nvml.c"], check=True)
    return {**os.environ, "LD_LIBRARY_PATH": str(folder)}


def test_it_says_what_is_known_and_again_a_second_later(environment):
    with subprocess.Popen([RUNNER, "--sensors", "00000000:0a:00.0"], env=environment,
                          stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        both = process.stdout.read(2 * BYTES)
        process.kill()
    assert both[:BYTES] == both[BYTES:]
    known, *values = struct.unpack(f"<Q{SENSORS}I", both[:BYTES])
    assert {which: values[which] for which in range(SENSORS) if known >> which & 1} == {
        TEMPERATURE: 45, POWER: 123456, LEAST: 1, MOST: 2, MEMORY_CLOCK - 2: 1000, MEMORY_CLOCK - 1: 1001,
        MEMORY_CLOCK: 1002, MEMORY_CLOCK + 1: 1003, ECC: 1}


def test_without_such_a_gpu_it_says_so(environment):
    for bus_id, variables in (("00000000:0b:00.0", environment), ("00000000:0a:00.0", {"LD_LIBRARY_PATH": "/nowhere"})):
        done = subprocess.run([RUNNER, "--sensors", bus_id], env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "no sensors of" in done.stderr and not done.stdout
