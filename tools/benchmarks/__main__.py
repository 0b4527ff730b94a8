"""tools/bench: chooses the benchmark by its first word."""
import importlib
import sys

from lab.shell import main

BENCHMARKS = {
    "gpu": "a real GPU, bare metal against Bandsaw",
    "shares": "whether shares hold",
    "slices": "kernels cut into grid slices",
    "mps": "kernels of several tenants at once",
    "transfers": "kernels of several tenants whose data come with them",
    "partitions": "two kernels at once, by how they share the SMs",
    "preemption": "SMs taken from a kernel that runs, by technique",
    "progress": "whether real programs make the progress they were promised",
    "copies": "short copies beside another tenant's long ones",
    "priorities": "an encrypting file system beside searches, by policy and priority",
    "window": "small copies through host memory that the GPU maps, against its copy engine",
    "nccl": "NCCL's all-reduce over several virtual GPUs",
    "slurm": "jobs with virtual GPUs under Slurm",
    "host": "what many virtual GPUs cost a host, leaks, and the API under load",
    "attach": "from attach to a program's first CUDA call in a guest that has booted",
    "xen": "calls, copies and pinned pages in a Xen domain beside a VM, both emulated",
    "segments": "a dataflow of two virtual GPUs through a shared segment",
    "crypto": "AES-XTS by the guest's kernel on a virtual GPU, against the processor",
    "suspend": "how long a virtual GPU takes to leave its device, and to come back",
    "swap": "programs with more memory than their virtual GPU holds of its device",
    "guard": "what guarding kernels costs, and a wild access beside a neighbour",
    "hostile": "how much a program is held up by what another tenant tries",
    "sandbox": "what the sandbox of sessions and runners costs",
    "paper": "figures of the papers that Bandsaw builds on, remade",
    "timing": "the software device's timing model against a GPU",
    "model": "the models of co-running kernels against the GPU",
}
EARLIER_NAMES = {"corun": "mps"}


def run() -> int:
    name, arguments = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    name = EARLIER_NAMES.get(name, name)
    if name in BENCHMARKS:
        return importlib.import_module(f"benchmarks.{name}").run(arguments)
    others = "; ".join(f"tools/bench {other}: {text}" for other, text in BENCHMARKS.items())
    return importlib.import_module("benchmarks.basic").run(sys.argv[1:], f"{others} (see their --help)")


if __name__ == "__main__":
    main(run)
