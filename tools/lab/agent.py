"""The host's end of the guest agent (see agent/agent.c for the frames)."""
import os
import pathlib
import socket
import struct
import threading
import time

from lab.shell import Failure

CHUNK = 256 * 1024


class Agent:
    """One connection to a guest's agent. Not thread-safe but for `signal`."""

    def __init__(self, path: pathlib.Path, seconds: float):
        self._socket = _connect(path, time.monotonic() + seconds)
        self._lock = threading.Lock()
        self._hello(time.monotonic() + seconds)

    def close(self) -> None:
        self._socket.close()

    def _send(self, kind: bytes, data: bytes = b"") -> None:
        with self._lock:
            self._socket.sendall(kind + struct.pack("<I", len(data)) + data)

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(min(size, 1 << 20))  # TimeoutError: nothing came for too long
            if not part:
                raise Failure("the guest's agent went away (did the guest stop?)")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _frame(self) -> tuple[bytes, bytes]:
        header = self._read(5)
        return header[:1], self._read(struct.unpack("<I", header[1:])[0])

    def _hello(self, deadline: float) -> None:
        # Anything the port still holds from before is skipped; the agent answers the question when it runs.
        while time.monotonic() < deadline:
            self._send(b"H")
            self._socket.settimeout(2)
            try:
                while self._frame()[0] != b"H":
                    pass
                self._socket.settimeout(0.05)
                try:
                    while True:
                        self._frame()
                except TimeoutError:
                    pass
                self._socket.settimeout(None)
                return
            except TimeoutError:
                continue
        raise Failure("the guest does not answer; its console log tells why")

    def put(self, source: pathlib.Path, target: str, mode: int | None = None) -> None:
        mode = mode if mode is not None else source.stat().st_mode & 0o777
        self._send(b"P", f"{mode:o}\0{target}\0".encode())
        with open(source, "rb") as file:
            while chunk := file.read(CHUNK):
                self._send(b"D", chunk)
        self._send(b"E")
        kind, data = self._frame()
        if kind != b"A":
            raise Failure(f"cannot put {source} into the guest: {data.decode(errors='replace')}")

    def run(self, arguments: list[str], environment: dict[str, str], output, error, stdin: int | None = None,
            timeout: float | None = None) -> int:
        """Runs a program; `output` and `error` get bytes. Returns its exit status as a shell would give it."""
        strings = [f"{name}={value}" for name, value in environment.items()] + [""] + arguments
        self._send(b"X", b"".join(text.encode() + b"\0" for text in strings))
        if stdin is None:
            self._send(b"I")
        else:
            threading.Thread(target=self._feed, args=(stdin,), daemon=True).start()
        timer = threading.Timer(timeout, self.signal, args=(9,)) if timeout else None
        # A guest that goes away does not close its port: do not wait much longer than the program may run.
        self._socket.settimeout(timeout + 20 if timeout else None)
        if timer:
            timer.daemon = True
            timer.start()
        try:
            return self._until_exit(output, error)
        finally:
            if timer:
                timer.cancel()

    def _until_exit(self, output, error) -> int:
        while True:
            kind, data = self._frame()
            if kind == b"O":
                output(data)
            elif kind == b"R":
                error(data)
            elif kind == b"N":
                raise Failure(f"the guest cannot run the program: {data.decode(errors='replace')}")
            elif kind == b"Q":
                status = struct.unpack("<i", data)[0]
                return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def signal(self, number: int) -> None:
        self._send(b"K", struct.pack("<i", number))

    def _feed(self, stdin: int) -> None:
        while data := os.read(stdin, CHUNK):
            self._send(b"I", data)
        self._send(b"I")

    def shell(self, command: str, timeout: float = 60) -> tuple[int, str]:
        """Runs a shell command in the guest; returns status and everything it printed."""
        parts: list[bytes] = []
        status = self.run(["/bin/sh", "-c", command], {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, parts.append,
                          parts.append, timeout=timeout)
        return status, b"".join(parts).decode(errors="replace")


def _connect(path: pathlib.Path, deadline: float) -> socket.socket:
    while True:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            channel.connect(str(path))
            return channel
        except OSError as error:
            channel.close()
            if time.monotonic() > deadline:
                raise Failure(f"no guest listens at {path}: {error.strerror}") from error
            time.sleep(0.05)
