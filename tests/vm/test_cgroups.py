"""Cgroups of version 2 with their controllers, which not every host of the tests has: the guest's kernel has them."""
from lab.guest_run import run_in_guest
from lab.paths import BUILD

MOUNT = "mkdir -p /sys/fs/cgroup; grep -q cgroup2 /proc/mounts || mount -t cgroup2 none /sys/fs/cgroup"


def test_bounds_hold(guest):
    status, said = guest.shell(f"{MOUNT}; cat /sys/fs/cgroup/cgroup.controllers")
    assert status == 0 and {"memory", "pids", "cpu"} <= set(said.split()), said
    parts: list[bytes] = []
    program = BUILD / "tests/unit/sandbox/cgroup_test"
    status = run_in_guest(guest.agent(), program, ["--gtest_filter=HostCgroupTest.*"], parts.append, parts.append,
                          timeout=120)
    output = b"".join(parts).decode(errors="replace")
    assert status == 0 and "[  PASSED  ] 2 tests." in output, output
    # The kernel traces whom it killed, as was wanted; later tests would take that for a fault.
    guest.shell("dmesg -c >/dev/null")
