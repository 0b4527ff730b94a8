"""Kernels that are cut into grid slices do what they do whole: test programs, every launch cut, several sizes."""
import pytest

from lab import slicing
from lab.daemon import only_one

SIZE = {"soft": 1, "gpu": 3}
SIZES = {"soft": (1, 3, 7, 16), "gpu": (1, 3, 16)}
# What takes long; tools/bench slices --check has all. Their code takes minutes to compile a second time:
LEFT_OUT = {"soft": {"thrust_algorithms", "special_functions"},
            # and these are about memory, handles and images rather than kernels.
            "gpu": {"corrupt_images", "memory_shares", "memory_share_graphs", "device_reset", "stale_handles",
                    "wrong_architecture", "out_of_memory", "out_of_memory_kinds", "contexts", "bad_host_addresses"}}
# Of all kernels; the others launch cooperatively, are launched into graphs, or call through pointers.
SLICEABLE_PERCENT = 90
LAUNCHES_OF_DROPPED_BLOCKS = 10


def test_programs_are_right_in_slices(device):
    kind, programs = _programs(device)
    with only_one():
        _judge(*slicing.wrong_when_cut(device, programs, SIZE[kind], "sliced"))


@pytest.mark.full
def test_programs_do_the_same_in_slices_of_several_sizes(device):
    kind, programs = _programs(device)
    with only_one():
        _judge(*slicing.mismatches(device, programs, SIZES[kind], "sliced"))


def _counted_of_dropped_blocks(setting: slicing.Setting) -> dict:
    [program] = slicing.chosen_programs(setting.device, "dropped_blocks")
    with only_one():
        daemon = slicing.SlicingDaemon(setting)
        try:
            outcome, counted = daemon.run_program(program), daemon.counted()
        finally:
            daemon.end()
    assert not outcome.wrong, outcome.output
    assert counted["launches"] == LAUNCHES_OF_DROPPED_BLOCKS, counted
    assert counted["grid_slices"] > counted["launches"], counted
    return counted


def test_dropped_blocks_run_again(device):
    """Each launch is stopped several times in its middle, and what its persistent blocks ran then is run again."""
    _counted_of_dropped_blocks(slicing.Setting(device, 2, variant="persistent", drop_us=0))


def test_persistent_blocks_become_more_and_fewer_while_they_run(device):
    """The only one of each launch gets others beside it, which leave again; none of them is stopped."""
    counted = _counted_of_dropped_blocks(slicing.Setting(device, 1, variant="persistent", resize=True))
    assert counted["fallbacks"] == 0, counted


@pytest.mark.parametrize("drop_us", [-1, 0])
def test_persistent_blocks_leave_single_sms_and_come_back(device, drop_us):
    """Each launch has SMs taken from it, and gets them back, while other blocks of it run on. Those that are to leave
    end what they run, or drop it, to run it again."""
    counted = _counted_of_dropped_blocks(slicing.Setting(device, 6, variant="persistent", drop_us=drop_us, take_us=0))
    assert counted["fallbacks"] == 0, counted


def _programs(device):
    kind = "soft" if device == "soft" else "gpu"
    return kind, [program for program in slicing.chosen_programs(device) if program.name not in LEFT_OUT[kind]]


def _judge(bad, counted):
    assert not bad, "\n".join(bad)
    assert counted["grid_slices"] > counted["launches"] > 0, counted
    assert counted["fallbacks"] == 0, counted
    assert counted["sliceable"] >= counted["kernels"] * SLICEABLE_PERCENT / 100, counted
