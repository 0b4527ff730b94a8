"""Running commands so that a person sees what happens and, when it fails, why."""
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

# Of this process, or of the one for which it runs tests.
START = float(os.environ.get("BANDSAW_TOOL_STARTED", time.monotonic()))
NINJA = re.compile(r"\[(\d+)/(\d+)\]")


class Failure(Exception):
    """Something a person has to mend; its text says what and how."""


def say(text: str) -> None:
    print(f"[{time.monotonic() - START:6.1f} s] {text}", flush=True)


class Progress:
    """How far a step is, where that can be counted. Any thread may count."""

    def __init__(self, total: int = 0):
        self._lock = threading.Lock()
        self._done, self._total = 0, total

    def advance(self) -> None:
        with self._lock:
            self._done += 1

    def reach(self, done: int, total: int) -> None:
        with self._lock:
            self._done, self._total = done, total

    def text(self) -> str:
        with self._lock:
            return f"{self._done} of {self._total}, " if self._total else ""

    def counted(self, function):
        """`function`, each of whose calls is one more that is done."""
        def call(*arguments):
            try:
                return function(*arguments)
            finally:
                self.advance()
        return call


@contextlib.contextmanager
def step(text: str, total: int = 0, every: float = 15.0):
    """Announces a step, and every few seconds that it is still running, and how far: of `total`, by its Progress."""
    say(text)
    begin = time.monotonic()
    done = threading.Event()
    progress = Progress(total)

    def heartbeat():
        while not done.wait(every):
            say(f"  ... {text.split(':')[0]}: {progress.text()}{time.monotonic() - begin:.0f} s so far")

    thread = threading.Thread(target=heartbeat, daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        done.set()
        thread.join()


def run(command: list, *, log: pathlib.Path | None = None, what: str | None = None, progress: Progress | None = None,
        **options) -> str:
    """Runs a command and returns its output; on failure shows the end of it. `progress` hears ninja's [k/n]."""
    options.setdefault("stdin", subprocess.DEVNULL)
    command = [str(part) for part in command]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          **options) as process:
        for line in process.stdout or []:
            lines.append(line)
            if progress and (match := NINJA.match(line)):
                progress.reach(int(match[1]), int(match[2]))
    output = "".join(lines)
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(output)
    if process.returncode != 0:
        tail = "\n".join("    " + line for line in output.splitlines()[-25:])
        hint = f"; the whole output is in {log}" if log else ""
        raise Failure(f"{what or ' '.join(command[:4])} failed (exit {process.returncode}){hint}\n{tail}")
    return output


def wait_until(condition, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(0.1)


def need_root(why: str) -> None:
    if os.geteuid() != 0:
        raise Failure(f"{why} needs root; run this command with sudo")


def main(function) -> None:
    """Runs a tool's main function: failures become one clear message and exit status 1."""
    try:
        status = function()
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = 130
    sys.stdout.flush()
    os._exit(status or 0)  # threads that wait for a guest must not keep the tool alive
