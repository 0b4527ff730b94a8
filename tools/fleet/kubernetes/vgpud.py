"""Requests to this node's vgpud."""
import http.client
import json
import socket
import time
from typing import Any

ANSWER_SECONDS = 60.0  # one request
ABSENT_SECONDS = 10.0  # how long a vgpud may take to start anew


class Refused(Exception):
    """What vgpud says that is wrong, with its HTTP status."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


class Away(Exception):
    """Nobody answers."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str):
        super().__init__("bandsaw", timeout=ANSWER_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _refusal(status: int, text: str) -> Refused:
    try:
        said = json.loads(text)
        return Refused(status, "; ".join(filter(None, (said.get("error"), said.get("hint")))))
    except (ValueError, AttributeError):
        return Refused(status, f"vgpud answered {status}")


class Vgpud:
    """For several threads: each request has a connection of its own."""

    def __init__(self, run: str, absent_seconds: float = ABSENT_SECONDS):
        self.run, self._absent = run, absent_seconds

    def _once(self, method: str, target: str, body: dict | None) -> Any:
        connection = _Connection(f"{self.run}/control.sock")
        try:
            connection.request(method, target, None if body is None else json.dumps(body),
                               {"Content-Type": "application/json"})
            reply = connection.getresponse()
            text = reply.read().decode(errors="replace")
        finally:
            connection.close()
        if reply.status >= 300:
            raise _refusal(reply.status, text)
        return json.loads(text) if text else {}

    def ask(self, method: str, target: str, body: dict | None = None, patient: bool = True) -> Any:
        """Refused: vgpud says no. Away: nobody has answered, `patient` or at once; what was asked may be done all the
        same."""
        deadline = time.monotonic() + (self._absent if patient else 0)
        while True:
            try:
                return self._once(method, target, body)
            except (OSError, http.client.HTTPException, ValueError) as failure:
                if time.monotonic() >= deadline:
                    raise Away(f"vgpud does not answer on {self.run}/control.sock ({failure}); see `systemctl status "
                               "vgpud`") from failure
                time.sleep(0.1)

    def remove(self, name: str, patient: bool = True) -> None:
        """One that is not there is removed."""
        try:
            self.ask("DELETE", f"/v1/vgpus/{name}?force=1", patient=patient)
        except Refused as refused:
            if refused.status != 404:
                raise

    def make_anew(self, body: dict) -> None:
        """Of a virtual GPU with this name nothing is kept: it may be another pod's, or a request's whose answer was
        lost."""
        try:
            self.ask("POST", "/v1/vgpus", body)
        except Refused as refused:
            if refused.status != 409 or body["name"] not in self.names():
                raise
            self.remove(body["name"])
            self.ask("POST", "/v1/vgpus", body)

    def names(self, patient: bool = True) -> list[str]:
        return [view["name"] for view in self.ask("GET", "/v1/vgpus", patient=patient)]

    def devices(self, patient: bool = True) -> list[dict]:
        """Those that can be used now."""
        return [one for one in self.ask("GET", "/v1/status", patient=patient)["devices"] if not one["lost"]]
