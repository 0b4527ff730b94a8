"""tools/bench slurm: how fast jobs with virtual GPUs come and go under Slurm, on a cluster of three nodes on this
machine, and where Slurm puts them on many nodes, which are slurmds without a vgpud."""
import argparse
import collections
import json
import pathlib
import re
import statistics
import time

from benchmarks.results import columns
from lab import setup
from lab.cuda_programs import Program
from lab.paths import REPO
from lab.shell import Failure, say, step, wait_until
from lab.slurm_cluster import MEMORY_MIB, Cluster

ONE = ["--gres=vgpu:1", "--vgpu=memory=256M,compute=10"]
# What jobs of the placement ask for, in turns: memory in MiB and compute in percent. They fill a node in several ways.
MIX = [(2048, 10), (512, 40), (1024, 25), (256, 5), (3072, 60), (512, 10)]
JOB_SECONDS = 20


class FirstCall(Program):
    """Says at what time its first CUDA call was over."""

    def __init__(self):
        super().__init__(REPO / "tools/benchmarks/programs/slurm/first_call.cu")


def first_call(cluster: Cluster, program: pathlib.Path, rounds: int) -> list[float]:
    """Seconds from srun's start to the end of the program's first CUDA call."""
    found = []
    for _ in range(rounds):
        begin = time.clock_gettime(time.CLOCK_MONOTONIC)
        text = cluster.run("srun", *ONE, program)
        match = re.search(r"at (\d+\.\d+)", text)
        if not match:
            raise Failure(f"the program said {text!r}")
        found.append(float(match[1]) - begin)
    return found


def bare(cluster: Cluster, rounds: int) -> list[float]:
    """Seconds of a job without a virtual GPU that does nothing."""
    found = []
    for _ in range(rounds):
        begin = time.monotonic()
        cluster.run("srun", "true")
        found.append(time.monotonic() - begin)
    return found


def jobs_a_second(cluster: Cluster, words: list[str], jobs: int) -> float:
    """Of an array of jobs that do nothing, from its submission to its last job's end, virtual GPUs given back."""
    begin = time.monotonic()
    cluster.run("sbatch", "--wait", f"--array=1-{jobs}", "--output=/dev/null", *words, "--wrap", "true", timeout=600)
    cluster.await_empty(120)
    return jobs / (time.monotonic() - begin)


def submit(cluster: Cluster, jobs: int) -> None:
    """All at once, held until all are there."""
    script = ""
    for number in range(jobs):
        memory, compute = MIX[number % len(MIX)]
        script += (f"sbatch -Q --hold --output=/dev/null --gres=vgpu:1 --vgpu=memory={memory}M,compute={compute} "
                   f"--wrap 'sleep {JOB_SECONDS}' &\n{'wait' if number % 16 == 0 else ''}\n")
    cluster.path("/home/alice/submit").write_text(script + "wait\n")
    cluster.run("sh", "/home/alice/submit", timeout=600)


def placed(cluster: Cluster) -> dict[str, list[tuple[int, int]]]:
    """What runs on each node: bytes of memory and percent of compute of each job."""
    text = cluster.run("squeue", "--noheader", "--states=RUNNING", "--format=%N %b", timeout=120)
    nodes = collections.defaultdict(list)
    for line in text.splitlines():
        node, gres = line.split()
        amount = {name: int(number) for name, number in re.findall(r"(vgpu\w*):(\d+)", gres)}
        nodes[node].append((amount["vgpumem"], amount["vgpucompute"]))
    return nodes


def placement(nodes: int) -> dict:
    """Nearly twice as many jobs as the nodes have room for."""
    with step(f"starting {nodes} simulated nodes"):
        cluster = Cluster(nodes, accounting=False, simulated=True)
    with cluster:
        jobs = nodes * 4 * 3 // 2
        with step(f"submitting {jobs} jobs"):
            submit(cluster, jobs)
        begin = time.monotonic()
        cluster.run("sh", "-c", "scontrol release $(squeue -h -o %A | paste -sd,)", user="root", timeout=120)
        most, full = 0, 0.0
        over: list[str] = []

        def ended() -> bool:
            nonlocal most, full
            now = placed(cluster)
            running = sum(map(len, now.values()))
            if running > most:
                most, full = running, time.monotonic() - begin
            for node, held in now.items():
                memory, compute = (sum(column) for column in zip(*held))
                if memory > MEMORY_MIB << 20 or compute > 100:
                    over.append(node)
            return not cluster.run("squeue", "-h", "-o", "%A", timeout=120).strip()
        with step("waiting for their end"):
            wait_until(ended, 500, "the end of all jobs")
        return {"nodes": nodes, "jobs": jobs, "most_at_once": most, "seconds_to_most": full,
                "seconds": time.monotonic() - begin, "nodes_over": len(over)}


def measure(options) -> dict:
    program = FirstCall().compile()
    with step("starting a cluster of three nodes"):
        cluster = Cluster()
    with cluster:
        say("from srun to the first CUDA call, and jobs a second")
        first_call(cluster, program, 2)
        calls = first_call(cluster, program, options.rounds)
        return {"first_call_ms": [1000 * value for value in calls],
                   "bare_srun_ms": [1000 * value for value in bare(cluster, options.rounds)],
                   "jobs_a_second": jobs_a_second(cluster, ONE, options.jobs),
                   "bare_jobs_a_second": jobs_a_second(cluster, [], options.jobs)}


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/bench slurm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="starts that are timed (default 20)")
    parser.add_argument("--jobs", type=int, default=60, help="jobs of an array (default 60)")
    parser.add_argument("--nodes", type=int, default=200, help="simulated nodes; 0: none (default 200)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    setup.prepare(lab=False)
    figures = measure(options)
    if options.nodes:
        figures["placement"] = placement(options.nodes)
    if options.json:
        print(json.dumps(figures, indent=2))
        return 0
    calls, bare_calls = figures["first_call_ms"], figures["bare_srun_ms"]
    print("\n".join(columns([
        ("figure", "with a virtual GPU", "without"),
        ("srun to first CUDA call, or to the end of `true`, ms: median", f"{statistics.median(calls):.0f}",
         f"{statistics.median(bare_calls):.0f}"),
        ("the same: worst", f"{max(calls):.0f}", f"{max(bare_calls):.0f}"),
        (f"jobs a second, array of {options.jobs}", f"{figures['jobs_a_second']:.1f}",
         f"{figures['bare_jobs_a_second']:.1f}")])))
    if options.nodes:
        found = figures["placement"]
        print(f"{found['jobs']} jobs on {found['nodes']} simulated nodes: {found['most_at_once']} at once after "
              f"{found['seconds_to_most']:.1f} s, all over after {found['seconds']:.0f} s; nodes given more than they "
              f"have: {found['nodes_over']}")
    return 0
