"""tools/bench shares: the arbiter's record of its slices, where vgpud keeps one."""
import dataclasses

from lab.bench_shares_run import Daemon


@dataclasses.dataclass
class Slice:
    """One slice of a tenant; nanoseconds of CLOCK_MONOTONIC. `engine`: compute or copy."""
    engine: str
    asked: int
    granted: int
    ended: int
    charged: int


class Tracer:
    """Slices from start() to take(). `note` says what is missing."""

    def __init__(self, daemon: Daemon):
        self._daemon = daemon
        self.note = ""

    def start(self, seconds: float) -> None:
        del seconds

    def take(self, names: list[str]) -> list[list[Slice]] | None:
        """By tenant; None without a trace."""
        del names
        return None
