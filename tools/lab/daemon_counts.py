"""What a vgpud and what it has started hold of the host: counted before and after, it says what leaks."""
import collections.abc
import dataclasses
import os
import pathlib
import time

PROC = pathlib.Path("/proc")


@dataclasses.dataclass(frozen=True)
class Counts:
    """Of one vgpud, its sessions and their runners."""
    descriptors: int  # vgpud's own
    threads: int      # vgpud's own
    processes: int    # started by it, zombies and writers of logs included
    files: int        # files and folders below the given ones
    series: int       # of its metrics

    def above(self, before: "Counts") -> dict[str, int]:
        """What there is more of than before, by name."""
        more = {name: value - getattr(before, name) for name, value in dataclasses.asdict(self).items()}
        return {name: value for name, value in more.items() if value > 0}


def _parents() -> dict[int, int]:
    found = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
    return found


def descendants(pid: int) -> list[int]:
    """Processes that it has started, and those that these have started; zombies included."""
    parents = _parents()
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        children = [child for child, its in parents.items() if its == parent]
        found += children
        todo += children
    return sorted(found)


def log_writers(run: pathlib.Path) -> list[int]:
    """Those that write its sessions' logs: nobody's children."""
    found = []
    for pid in _parents():
        if pathlib.Path((command_of(pid) or [""])[0]).name == "bandsaw-log":
            try:
                if str((PROC / str(pid) / "fd/3").readlink()).startswith(f"{run}/"):
                    found.append(pid)
            except OSError:
                continue
    return found


def command_of(pid: int) -> list[str]:
    """Its command line; empty if it has ended."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def named(pids: list[int], program: str) -> list[int]:
    """Those that run this program."""
    return [pid for pid in pids if (command := command_of(pid)) and pathlib.Path(command[0]).name == program]


def cpu_ns(pids: list[int]) -> int:
    """Processor time of all their threads that live, by the scheduler's own count."""
    total = 0
    for pid in pids:
        for task in (PROC / str(pid) / "task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total


def pss_bytes(pid: int) -> int:
    """Its part of the host's memory: what it shares with others counts in part."""
    for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def private_bytes(pid: int) -> int:
    """Memory that is its own alone, and goes with it."""
    lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


def _files(folders: collections.abc.Iterable[pathlib.Path]) -> int:
    return sum(len(folders_in) + len(files) for folder in folders for _, folders_in, files in os.walk(folder))


def count(pid: int, run: pathlib.Path, others: collections.abc.Iterable[pathlib.Path], metrics: str) -> Counts:
    """Of the vgpud with this pid and this folder of sockets; `others`: further folders; `metrics`: its page."""
    own = PROC / str(pid)
    return Counts(len(list((own / "fd").iterdir())), len(list((own / "task").iterdir())),
                  len(descendants(pid)) + len(log_writers(run)), _files([run, *others]),
                  sum(bool(line) and line[0] != "#" for line in metrics.splitlines()))


def settled(counted: collections.abc.Callable[[], Counts], before: Counts, seconds: float = 10) -> Counts:
    """Counts anew until nothing is above what there was before, or the time is over: what ends, ends soon after."""
    deadline = time.monotonic() + seconds
    while (now := counted()).above(before) and time.monotonic() < deadline:
        time.sleep(0.1)
    return now
