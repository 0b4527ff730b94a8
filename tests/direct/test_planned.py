"""Where a mode plans whose kernels run beside each other, a kernel's first grid slice counts what its blocks do."""
from benchmarks.mps_measure import keep_busy, ready_tenants
from benchmarks.mps_run import BenchTenant, calibrate, check
from lab.daemon import BenchDaemon

LOG_WORDS = 20
ROUNDS = 20  # of 3 s: a processor that others use too comes late to the first slice of its own


def _said_while_busy(daemon: BenchDaemon, tenants: list[BenchTenant]) -> dict[str, list[str]]:
    """By kernel: what was counted in its first slice, as soon as there is that for each."""
    for _ in range(ROUNDS):
        keep_busy(tenants, 3)
        check(tenants)
        said = {tenant.kernel: [line for line in daemon.found(tenant.vgpu) if "a block has" in line]
                for tenant in tenants}
        if all(said.values()):
            break
    return said


def test_a_kernel_that_is_planned_is_counted(device):
    daemon = BenchDaemon(device, "none", "auto", "kernelet")
    try:
        kernels = calibrate(daemon, ["PC", "TEA"], {"ms": 15, "waves": 4, "log_words": LOG_WORDS, "warm_ms": 0})
        with ready_tenants(daemon, LOG_WORDS, "mps", list(kernels.values())) as tenants:
            said = _said_while_busy(daemon, tenants)
    finally:
        daemon.end()
    assert all(len(lines) == 1 for lines in said.values()), said
    # Of pointer chasing each of 256 threads loads a word a round and stores one, and one of them stores a mark.
    line, rounds = said["PC"][0], kernels["PC"]["rounds"]
    assert line.endswith(f"{256 * 4 * (rounds + 1) + 4} bytes there"), f"{line}; {rounds} rounds"
    instructions = int(line.split("a block has ")[1].split()[0])
    assert 8 * rounds < instructions < 8 * 20 * (rounds + 2), f"{line}; {rounds} rounds"
