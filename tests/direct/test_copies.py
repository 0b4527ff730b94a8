"""A long copy goes in pieces, and others' copies get in between: counted in time slices, whatever the machine does."""
import collections
import json

from benchmarks.copies import Copier
from lab.daemon import Daemon, only_one
from lab.started import Started

SECONDS = 3
LONG_KIB, SHORT_KIB = 64 << 10, 64
PAUSE_US = 1000
QUANTUM_US = 200   # half of it is a piece, and a long copy takes 2 ms where nobody else wants the machine
PIECES_LEAST = 4   # of a long copy
AHEAD_MOST = 3     # time slices of the long copies that begin while a short one waits: two in flight, and one more


def _run(daemon: Daemon, way: str) -> tuple[dict, list, list]:
    """What the two said of their copies, and by tenant the time slices: (asked, granted, ended, charged)."""
    for name in ("long", "short"):
        daemon.create(name, 50)
    both = []
    for name, size, pause in (("long", LONG_KIB, 0), ("short", SHORT_KIB, PAUSE_US)):
        both.append(Started(Copier().compile(), way, size, SECONDS, pause, variables=daemon.program_environment(name)))
    for process in both:
        process.first_line("ready")
    trace = daemon.control.need("POST", "/v1/trace/start", {"seconds": SECONDS + 10})
    for process in both:
        process.say()
    said = []
    for process in both:
        status, output = process.finish()
        assert status == 0, output
        said.append(json.loads(output.splitlines()[-1]))
    taken = daemon.control.need("POST", "/v1/trace/take", trace)
    slices: dict[str, list] = collections.defaultdict(list)
    engine = taken["engines"].index({"in": "copy_in", "out": "copy_out", "inside": "compute"}[way])
    for vgpu, _process, at, *times in taken["records"]:
        if at == engine:
            slices[taken["vgpus"][vgpu]].append(times)
    return {"long": said[0], "short": said[1]}, slices["long"], slices["short"]


def _check(said: dict, long: list, short: list) -> None:
    assert len(long) >= PIECES_LEAST * said["long"]["copies"], f"{len(long)} time slices of {said['long']}"
    # On a busy machine the next ones may come before the first one's time slice has closed.
    copies = said["short"]["copies"]
    assert len(short) >= 0.75 * copies and copies > 20, f"{len(short)} time slices of {said['short']}"
    begun = [granted for _asked, granted, _ended, _charged in long]
    ahead = sorted(sum(asked < begin < granted for begin in begun) for asked, granted, _ended, _charged in short)
    # And a tenth may wait until their thread is scheduled.
    assert ahead[-len(ahead) // 10] <= AHEAD_MOST, f"time slices of the long copies ahead of short ones: {ahead}"
    between = sum(any(granted < begin for begin in begun) and any(begin < granted for begin in begun)
                  for _asked, granted, _ended, _charged in short)
    assert between >= len(short) // 2


def test_short_copies_wait_for_a_piece_of_a_long_one(device):
    with only_one():
        daemon = Daemon(device, "band+", name="copies-test", tables={"scheduler": {"quantum_us": QUANTUM_US}})
        try:
            for way in ("in", "out"):
                _check(*_run(daemon, way))
                for name in ("long", "short"):
                    daemon.destroy(name)
        finally:
            daemon.end()
