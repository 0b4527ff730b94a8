"""Run by the Python that has nvidia-ml-py: what NVML says, as JSON. Arguments: UUIDs and bus ids to look for."""
import json
import sys

import pynvml  # type: ignore[import-not-found]

ABSENT = ["nvmlDeviceGetSerial", "nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetTotalEnergyConsumption",
          "nvmlDeviceGetGpuInstanceId"]


def said(call, *arguments):
    """What a function returns, or the name of its error."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        return type(error).__name__


def report() -> dict:
    before = said(pynvml.nvmlDeviceGetCount)
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory, rates = pynvml.nvmlDeviceGetMemoryInfo(device), pynvml.nvmlDeviceGetUtilizationRates(device)
    processes = [{"pid": process.pid, "memory": process.usedGpuMemory}
                 for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device)]
    samples = said(pynvml.nvmlDeviceGetProcessUtilization, device, 0)
    found = {
        "before": before,
        "count": pynvml.nvmlDeviceGetCount(),
        "name": pynvml.nvmlDeviceGetName(device),
        "uuid": pynvml.nvmlDeviceGetUUID(device),
        "bus_id": pynvml.nvmlDeviceGetPciInfo(device).busId,
        "capability": pynvml.nvmlDeviceGetCudaComputeCapability(device),
        "cuda": pynvml.nvmlSystemGetCudaDriverVersion(),
        "memory": [memory.total, memory.used, memory.free],
        "rates": [rates.gpu, rates.memory],
        "processes": processes,
        "samples": samples if isinstance(samples, str) else {sample.pid: sample.smUtil for sample in samples},
        "mig": said(pynvml.nvmlDeviceGetMigMode, device),
        "p2p": said(pynvml.nvmlDeviceGetP2PStatus, device, device, 0),
        "temperature": said(pynvml.nvmlDeviceGetTemperature, device, 0),
        "power": said(pynvml.nvmlDeviceGetPowerUsage, device),
        "absent": {name: said(getattr(pynvml, name), device) for name in ABSENT},
        "second": said(pynvml.nvmlDeviceGetHandleByIndex, 1),
        "no_handle": said(pynvml.nvmlDeviceGetName, pynvml.c_nvmlDevice_t()),
        "others": {text: said(pynvml.nvmlDeviceGetHandleByUUID if text.startswith("GPU-")
                              else pynvml.nvmlDeviceGetHandleByPciBusId, text) for text in sys.argv[1:]},
        "own": [pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(device))),
                pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId(
                    pynvml.nvmlDeviceGetPciInfo(device).busId))],
    }
    pynvml.nvmlShutdown()
    return {**found, "after": said(pynvml.nvmlDeviceGetCount)}


print(json.dumps(report()))
