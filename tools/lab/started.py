"""A program that a person or a test listens to while it runs."""
import pathlib
import select
import signal
import subprocess
import typing

# What libcuda says beside the program's own lines, on a machine that is busy.
COMPILES = "libcuda (bandsaw): compiling "


class Started(subprocess.Popen):
    """Its output is text, errors among it unless they are `errors_apart`; its input stays open."""

    # All are pipes here.
    stdin: typing.IO[str]
    stdout: typing.IO[str]

    def __init__(self, program: pathlib.Path | str, *arguments, variables: dict[str, str], errors_apart: bool = False):
        super().__init__([str(program), *map(str, arguments)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE if errors_apart else subprocess.STDOUT, env=variables)
        self._program = str(program)

    def first_line(self, *beginnings: str) -> str:
        """Waits until it has said something, which must begin like one of these: it runs now."""
        line = self.stdout.readline()
        while line.startswith(COMPILES):
            line = self.stdout.readline()
        if not line.startswith(beginnings):
            self.kill()  # else there may be no end of what it says
            raise AssertionError(f"{self._program} did not start: {line}{self.stdout.read()}")
        return line

    def line(self, seconds: float) -> str:
        """What it says next; empty if it says nothing for so long, or has ended."""
        found, _, _ = select.select([self.stdout], [], [], seconds)
        return self.stdout.readline() if found else ""

    def error_output(self) -> str:
        """All of what it says on its standard error, once it has ended."""
        return self.stderr.read() if self.stderr else ""

    def say(self, *words) -> None:
        print(*words, file=self.stdin, flush=True)

    def finish(self, seconds: float = 60) -> tuple[int, str]:
        """Its exit status and what else it said; what takes too long is killed."""
        try:
            output, _ = self.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            output, _ = self.communicate()
            return -signal.SIGKILL, f"{output[-500:]}\nran longer than {seconds:.0f} s"
        return self.returncode, output
