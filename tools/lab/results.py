"""What a run of tests came to."""
import sys
import threading
import typing

from lab.shell import say


class Results:
    """Counts, and what failed with its output. Any thread may add."""

    def __init__(self):
        self.passed, self.skipped = 0, 0
        self.failed: list[str] = []
        self._lock = threading.Lock()

    def add(self, name: str, wrong: str, output: str = "", lines: int = 30) -> None:
        with self._lock:
            if not wrong:
                self.passed += 1
                return
            self.failed.append(name)
            say(f"  FAILED {name}: {wrong}")
            sys.stdout.write("".join(f"      {line}\n" for line in output.splitlines()[-lines:]))
            sys.stdout.flush()

    def count(self, passed: int, skipped: int, failed: typing.Sequence[str] = ()) -> None:
        """Of a program that tells of its own tests, and has told of those that failed."""
        with self._lock:
            self.passed += passed
            self.skipped += skipped
            self.failed += failed

    def skip(self, name: str, why: str) -> None:
        with self._lock:
            self.skipped += 1
            say(f"  skipped {name}: {why}")

    def summary(self) -> int:
        """Prints the last lines and returns the exit status."""
        for name in self.failed:
            print(f"failed: {name}")
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        print(f"{self.passed} passed, {len(self.failed)} failed{skipped}")
        return 1 if self.failed or not self.passed else 0
