"""Requests to the cluster's API server, with what Kubernetes puts into a pod for that."""
import json
import os
import pathlib
import ssl
import urllib.error
import urllib.request
from typing import Any

ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
ANSWER_SECONDS = 20.0
ANSWER_MOST = 16 << 20  # bytes


class Failed(Exception):
    """What the server says, with its HTTP status; 0: nobody answers."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


class ApiServer:
    """`url`: where `kubectl proxy` listens, say; empty: as a pod finds it. The token is read for each request, since
    Kubernetes changes it every hour."""

    def __init__(self, url: str = "", account: pathlib.Path = ACCOUNT):
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not url and not host:
            raise OSError("there is no API server: this is no pod (KUBERNETES_SERVICE_HOST is not set); give "
                          "--api-server")
        host = f"[{host}]" if ":" in host else host
        self.url = url or f"https://{host}:{port}"
        self._token = account / "token"
        authority = account / "ca.crt"
        self._tls = ssl.create_default_context(cafile=str(authority)) if self.url.startswith("https") else None

    def ask(self, method: str, path: str, body: dict | None = None) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        text = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, text, headers, method=method)
        if self._token.exists():
            request.add_header("Authorization", f"Bearer {self._token.read_text().strip()}")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=self._tls) as reply:
                return json.loads(reply.read(ANSWER_MOST))
        except urllib.error.HTTPError as error:
            raise Failed(error.code, f"the API server refuses {method} {path}: {_message(error)}") from error
        except (OSError, ValueError) as error:
            raise Failed(0, f"the API server does not answer {method} {path}: {error}") from error


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return json.loads(error.read(ANSWER_MOST))["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
