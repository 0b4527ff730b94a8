"""tools/bench shares: the arbiter's record of its time slices, where vgpud keeps one."""
import dataclasses

from lab.daemon import Daemon


@dataclasses.dataclass
class TimeSlice:
    """One time slice of a tenant; nanoseconds of CLOCK_MONOTONIC. `engine`: compute or copy."""
    engine: str
    asked: int
    granted: int
    ended: int
    charged: int


class Tracer:
    """Time slices from start() to take(). `note` says what is missing."""

    def __init__(self, daemon: Daemon):
        self._daemon = daemon
        self._trace: int | None = None
        self.note = ""

    def start(self, seconds: float) -> None:
        said = self._daemon.control.ask("POST", "/v1/trace/start", {"seconds": min(600, seconds + 10)})
        self._trace = said["trace"] if isinstance(said, dict) else None

    def take(self, names: list[str]) -> list[list[TimeSlice]] | None:
        """By tenant; None without a trace."""
        if self._trace is None:
            return None
        said = self._daemon.control.ask("POST", "/v1/trace/take", {"trace": self._trace})
        self._trace = None
        if not isinstance(said, dict) or not said["records"]:
            return None
        if said["lost"]:
            self.note = f"the trace lost {said['lost']} time slices"
        found: dict[str, list[TimeSlice]] = {name: [] for name in names}
        for vgpu, _process, engine, asked, granted, ended, charged in said["records"]:
            name = said["vgpus"][vgpu]
            if name in found:
                kind = "compute" if said["engines"][engine] == "compute" else "copy"
                base = said["base_ns"]
                found[name].append(TimeSlice(kind, base + asked, base + granted, base + ended, charged))
        return list(found.values())
