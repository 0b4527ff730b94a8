"""tools/bench gpu: what its figures are to reach."""
import dataclasses
from collections.abc import Callable


@dataclasses.dataclass
class Wanted:
    """A figure's target: its text in the table, and whether (native, bandsaw) reach it."""
    text: str
    judge: Callable[[float, float], bool]


def at_most(limit: float, unit: str) -> Wanted:
    return Wanted(f"<= {limit:g} {unit}", lambda native, bandsaw: bandsaw <= limit)


def at_least(limit: float, unit: str) -> Wanted:
    return Wanted(f">= {limit:g} {unit}", lambda native, bandsaw: bandsaw >= limit)


def at_most_more(extra: float, unit: str) -> Wanted:
    return Wanted(f"<= native + {extra:g} {unit}", lambda native, bandsaw: bandsaw <= native + extra)


def ratio_at_most(limit: float) -> Wanted:
    return Wanted(f"ratio <= {limit:g}", lambda native, bandsaw: bandsaw <= native * limit)


def ratio_at_least(limit: float) -> Wanted:
    return Wanted(f"ratio >= {limit:g}", lambda native, bandsaw: bandsaw >= native * limit)


WANTED = {
    "issue of a launch": at_most(1.0, "us"),
    "launch + device synchronize": at_most_more(2, "us"),
    "launch + stream synchronize": at_most_more(2, "us"),
    "program start to first completed call": at_most(60, "ms"),
    "pinned 1024 MiB H2D": ratio_at_least(0.97),
    "pinned 1024 MiB D2H": ratio_at_least(0.97),
    "VM: pinned 1024 MiB H2D": ratio_at_least(0.97),
    "VM: pinned 1024 MiB D2H": ratio_at_least(0.97),
    "VM: pageable 1024 MiB H2D": at_least(30, "GB/s"),
    "managed: prefetch to the device, 1024 MiB": at_least(45, "GB/s"),
    "managed: prefetch to the host, 1024 MiB": at_least(45, "GB/s"),
    "managed: cuBLAS sgemm": ratio_at_most(1.2),
    "managed: particles, read after each step": ratio_at_most(1.2),
    "managed: 40 tasks from four threads": ratio_at_most(1.2),
    "managed: a thousand tasks from four threads": ratio_at_most(1.2),
    "geometric mean of small calls": ratio_at_most(1.0),
    "geometric mean of steady work": ratio_at_most(1.03),
    "geometric mean of whole runs": ratio_at_most(1.03),
    "torch: training step": ratio_at_most(1.05),
    "torch: inference, a token": ratio_at_most(1.05),
}
