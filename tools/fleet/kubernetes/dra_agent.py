"""The DRA driver's process: its two sockets, and the node's slice."""
import contextlib
import logging
import os
import pathlib
import threading
import time
from typing import Any

from fleet.kubernetes import slices
from fleet.kubernetes.api_server import ApiServer, Failed
from fleet.kubernetes.apis import DRA, REGISTRATION
from fleet.kubernetes.claims import DRIVER
from fleet.kubernetes.dra_driver import VERSIONS, Driver, Registration
from fleet.kubernetes.messages import listen, serve
from fleet.kubernetes.settings import Settings
from fleet.kubernetes.vgpud import Away, Refused, Vgpud

LOG = logging.getLogger("bandsaw")
LOOK_SECONDS = 1.0
AGAIN_SECONDS = 30.0  # how often the slice is compared with the cluster's, where nothing has changed here
THREADS = 8


class Agent:
    def __init__(self, settings: Settings, server: ApiServer, node: str):
        kubelet = pathlib.Path(settings.kubelet)
        self._socket = kubelet / "plugins" / DRIVER / "dra.sock"
        self._registry = kubelet / "plugins_registry" / f"{DRIVER}-reg.sock"
        self._vgpud = Vgpud(settings.run)
        self._driver = Driver(settings, self._vgpud, server, node)
        self._publisher = slices.Publisher(server, node)
        self._servers: list[Any] = []
        self._published: list[dict] | None = None
        self._again = 0.0  # when to compare
        self._said = ""
        self.stop = threading.Event()

    def _open(self) -> None:
        """The registration comes last: the kubelet calls as soon as it sees its socket."""
        if self._servers and self._socket.exists() and self._registry.exists():
            return
        self._close()
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        service = DRA.service("DRAPlugin")
        registration = serve(REGISTRATION.service("Registration"), Registration(str(self._socket)))
        for path, handlers in ((self._socket, [serve(service, self._driver, name) for name in VERSIONS.values()]),
                               (self._registry, [registration])):
            self._servers.append(listen(path, handlers, THREADS))

    def _close(self) -> None:
        for server in self._servers:
            server.stop(0)
        self._servers.clear()

    def _publish(self) -> None:
        vgpus = self._vgpud.ask("GET", "/v1/vgpus", patient=False)
        listed = slices.devices(self._vgpud.devices(patient=False), vgpus)
        if listed == self._published and time.monotonic() < self._again:
            return
        if self._publisher.publish(listed):
            LOG.info("the cluster knows %d devices of this node", len(listed))
        self._published, self._again = listed, time.monotonic() + AGAIN_SECONDS

    def turn(self) -> None:
        """Once around; what fails is tried again at the next."""
        wrong = ""
        for step in (self._open, self._publish):
            try:
                step()
            except (Failed, Refused, Away, OSError) as problem:
                wrong = str(problem)
        if wrong and wrong != self._said:
            LOG.warning("%s", wrong)
        self._said = wrong

    def run(self) -> None:
        if not os.access(self._registry.parent, os.W_OK):
            raise OSError(f"{self._registry.parent} is not there or cannot be written: is this a node of Kubernetes, "
                          "and root?")
        try:
            while not self.stop.is_set():
                self.turn()
                self.stop.wait(LOOK_SECONDS)
        finally:
            self._close()
            for path in (self._registry, self._socket):
                with contextlib.suppress(OSError):
                    path.unlink()
