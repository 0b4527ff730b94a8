"""Where a mode plans whose kernels run beside each other, a kernel's first slice counts what its blocks do."""
import contextlib
import os

from lab import host
from lab.bench_corun_run import CorunDaemon, CorunTenant, calibrate, check, soon


def _run(daemon: CorunDaemon, kernels: dict[str, dict], seconds: float) -> None:
    """All beside each other, each on a virtual GPU of its own, and checked."""
    with contextlib.ExitStack() as stack:
        tenants = []
        for name, kernel in kernels.items():
            daemon.create(name, 50, "--sharing", "corun")
            daemon.await_mps()
            tenants.append(CorunTenant(daemon.program_environment(name), name, kernel, 20))
            stack.callback(tenants[-1].kill)
        for tenant in tenants:
            tenant.ready()
        begin = soon()
        for tenant in tenants:
            tenant.start("backlog", begin, seconds, 2)
        for tenant in tenants:
            tenant.instances(60)
        check(tenants)
        for tenant in tenants:
            tenant.end()


def test_a_kernel_that_is_planned_is_counted():
    device = host.current_device() or os.environ.get("BANDSAW_LAB_DEVICE", "soft")
    daemon = CorunDaemon(device, "none", "auto", "kernelet")
    try:
        found = calibrate(daemon, ["PC", "TEA"], {"ms": 15, "waves": 4, "log_words": 20, "warm_ms": 0})
        kernels = {f"planned-{kind.lower()}": kernel for kind, kernel in found.items()}
        _run(daemon, kernels, 3)
        said = {name: [line for line in daemon.residency(name) if "a block has" in line] for name in kernels}
    finally:
        daemon.end()
    assert all(len(lines) == 1 for lines in said.values()), said
    # Of pointer chasing each of 256 threads loads a word a round and stores one, and one of them stores a mark.
    line, rounds = said["planned-pc"][0], found["PC"]["rounds"]
    assert line.endswith(f"{256 * 4 * (rounds + 1) + 4} bytes there"), f"{line}; {rounds} rounds"
    instructions = int(line.split("a block has ")[1].split()[0])
    assert 8 * rounds < instructions < 8 * 20 * rounds, f"{line}; {rounds} rounds"
