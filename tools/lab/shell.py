"""Running commands so that a person sees what happens and, when it fails, why."""
import contextlib
import os
import pathlib
import subprocess
import sys
import threading
import time

START = time.monotonic()


class Failure(Exception):
    """Something a person has to mend; its text says what and how."""


def say(text: str) -> None:
    print(f"[{time.monotonic() - START:6.1f} s] {text}", flush=True)


@contextlib.contextmanager
def step(text: str, every: float = 15.0):
    """Announces a step, and that it is still running every few seconds."""
    say(text)
    begin = time.monotonic()
    done = threading.Event()

    def heartbeat():
        while not done.wait(every):
            say(f"  ... {text.split(':')[0]}, {time.monotonic() - begin:.0f} s so far")

    thread = threading.Thread(target=heartbeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def run(command: list, *, log: pathlib.Path | None = None, what: str | None = None, **options) -> str:
    """Runs a command and returns its output; on failure shows the end of it."""
    options.setdefault("stdin", subprocess.DEVNULL)
    command = [str(part) for part in command]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                            check=False, **options)
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(result.stdout)
    if result.returncode != 0:
        tail = "\n".join("    " + line for line in result.stdout.splitlines()[-25:])
        hint = f"; the whole output is in {log}" if log else ""
        raise Failure(f"{what or ' '.join(command[:4])} failed (exit {result.returncode}){hint}\n{tail}")
    return result.stdout


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
