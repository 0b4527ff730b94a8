"""tools/bench hostile: how much a program is held up by what another tenant tries.

A program does short steps on one virtual GPU. On another one, of the same device, a program does one deed after the
other until it is killed: broken images, code that takes long to compile, streams, contexts and memory without end,
processes, faults, a kernel that does not end. Speeds are of the steps while a deed lasts, against those before it and
after it. A deed that uses the device takes its share of it; then the program must have its own share. With --native,
the same two programs on the bare driver. On the software device kernels and what else a tenant does share the
processor, so nothing is judged there."""
import argparse
import contextlib
import json
import sys
import time

from benchmarks.basic import Figure
from benchmarks.results import columns, exit_status, json_lines, reaches
from lab import host, setup
from lab.daemon import Daemon, only_one
from lab.guest_run import native_environment
from lab.shell import Failure, say
from lab.started import Started

VICTIM, HOSTILE = "victim", "hostile"
SHARE = 45  # percent of each
# Of its own speed, or of its share.
DEEDS = {"broken images": 1.0, "large variables": 1.0, "code": 1.0, "streams": 1.0, "contexts": 1.0,
         "pinned memory": 1.0, "device memory": 1.0, "processes": 1.0, "faults": 1.0, "endless kernel": 0.5}
WANTED = ">= 0.95"
SETTLES = {"endless kernel": 2.5}  # seconds in which shares are found, where a deed uses the device
SECONDS = {"soft": 2.0, "gpu": 4.0}
ROUNDS = {"soft": 200, "gpu": 20000}  # of a step's kernel: it takes a fraction of a millisecond
MEMORY = {"soft": "256M", "gpu": "6G"}


class Victim:
    def __init__(self, variables: dict, device: str):
        self._program = Started(Figure("victim").compile(), ROUNDS[device], variables=variables)
        self.speed(1)

    def speed(self, seconds: float) -> float:
        """Steps a second from now on, over so long."""
        self._ask()
        time.sleep(seconds)
        answer = self._ask()
        return answer["steps"] / answer["seconds"]

    def _ask(self) -> dict:
        self._program.say("")
        line = self._program.line(20)
        found = json_lines(line)
        if not found:
            self._program.kill()
            raise Failure(f"the program that should not notice has ended: {line}{self._program.finish()[1][-1000:]}")
        return found[0]

    def end(self) -> None:
        status, output = self._program.finish(20)
        if status != 0:
            raise Failure(f"the program that should not notice ended with {status}: {output[-1000:]}")


def _beside(variables: dict, victim: Victim, deed: str, seconds: float) -> tuple[float, float | None]:
    """The victim's speed, and deeds a second; None if that cannot be said."""
    program = Started(Figure("hostile").compile(), deed, variables=variables)
    try:
        program.first_line("begun")
        begin = time.monotonic()
        time.sleep(SETTLES.get(deed, 0.2))
        speed = victim.speed(seconds)
        program.terminate()
        took = time.monotonic() - begin
        done = program.line(2).strip()
        return speed, int(done) / took if done.isdigit() else None
    finally:
        program.kill()
        program.wait()


def measure(variables: dict, device: str, deeds: list[str]) -> list[dict]:
    """`variables`: of the environments of the two programs, by their names."""
    victim, seconds = Victim(variables[VICTIM], device), SECONDS[device]
    rows = []
    before = victim.speed(seconds)
    for deed in deeds:
        beside, deeds_per_s = _beside(variables[HOSTILE], victim, deed, seconds)
        time.sleep(0.5)  # what it held goes back
        after = victim.speed(seconds)
        part = 2 * beside / (before + after)
        rows.append({"deed": deed, "alone": (before + after) / 2, "beside": beside, "part": part,
                     "deeds_per_s": deeds_per_s, "of_share": part / DEEDS[deed]})
        say(f"  {deed}: {part:.3f}")
        before = after
    victim.end()
    return rows


def _rate(deeds: float | None) -> str:
    return "" if deeds is None else f"{deeds:.2f}"


def table(rows: list[dict], judged: bool) -> str:
    cells: list[tuple] = [("deed", "steps/s", "beside it", "part", "of its own", "wanted", "deeds/s",
                           "part, bare driver", "deeds/s")]
    for row in rows:
        verdict = f"{WANTED} {'yes' if reaches(row['of_share'], WANTED) else 'NO'}" if judged else ""
        native = [f"{row['native']:.3f}", _rate(row["native_deeds_per_s"])] if "native" in row else ["", ""]
        cells.append((row["deed"], f"{row['alone']:.0f}", f"{row['beside']:.0f}", f"{row['part']:.3f}",
                      f"{row['of_share']:.3f}", verdict, _rate(row["deeds_per_s"]), *native))
    return "\n".join(columns(cells))


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/bench hostile", description=__doc__)
    parser.add_argument("--device", choices=list(SECONDS), default="soft")
    parser.add_argument("--only", default="", help=f"deeds with commas between them, of {', '.join(DEEDS)}")
    parser.add_argument("--native", action="store_true", help="also on the bare driver")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    options = parser.parse_args(arguments)
    chosen = options.only.split(",") if options.only else list(DEEDS)
    if unknown := [deed for deed in chosen if deed not in DEEDS]:
        parser.error(f"no deed {', '.join(unknown)}")
    gpu = options.device == "gpu"
    if options.native and not gpu:
        parser.error("--native needs --device gpu")
    device = "cuda:0" if gpu else "soft"
    with contextlib.redirect_stdout(sys.stderr), only_one():
        host.use_device(device)
        setup.prepare_for(device)
        daemon = Daemon(device, policy="band+", name="hostile-bench")
        try:
            for name in (VICTIM, HOSTILE):
                daemon.create(name, SHARE, memory=MEMORY[options.device])
            rows = measure({name: daemon.program_environment(name) for name in (VICTIM, HOSTILE)}, options.device,
                           chosen)
        finally:
            daemon.end()
        if options.native:
            say("on the bare driver:")
            bare = measure(dict.fromkeys((VICTIM, HOSTILE), native_environment()), options.device, chosen)
            for row, native in zip(rows, bare, strict=True):
                row["native"], row["native_deeds_per_s"] = native["part"], native["deeds_per_s"]
    print(json.dumps({"device": device, "deeds": rows}, indent=1) if options.json else table(rows, gpu))
    missed = [row for row in rows if gpu and not reaches(row["of_share"], WANTED)]
    return exit_status([f"beside '{row['deed']}' a program has {row['of_share']:.3f} of its own, wanted {WANTED}"
                        for row in missed])
