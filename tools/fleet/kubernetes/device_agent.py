"""The device plugin's process: it meets the kubelet, whichever is there now, and gives back what pods have left."""
import contextlib
import logging
import os
import pathlib
import threading
from typing import Any

import grpc

from fleet.kubernetes import checkpoint
from fleet.kubernetes.apis import DEVICE_PLUGIN, POD_RESOURCES
from fleet.kubernetes.device_plugin import Plugin
from fleet.kubernetes.messages import client, listen, serve
from fleet.kubernetes.settings import Settings
from fleet.kubernetes.vgpud import Away, Refused, Vgpud

LOG = logging.getLogger("bandsaw")
VERSION = "v1beta1"
LOOK_SECONDS = 1.0
CALL_SECONDS = 10.0
THREADS = 16  # calls of a kubelet's at once; its stream takes one


def _identity(path: pathlib.Path) -> tuple[int, int] | None:
    """Of a socket: a kubelet that starts anew makes another one."""
    try:
        status = path.stat()
        return status.st_ino, status.st_ctime_ns
    except OSError:
        return None


class _Endpoint:
    """The socket of one resource. A kubelet that starts removes all that lie in its folder."""

    def __init__(self, plugin: Plugin, folder: pathlib.Path):
        self.plugin, self.path = plugin, folder / f"bandsaw-{plugin.profile.name}.sock"
        self._server: Any = None

    def there(self) -> bool:
        return self._server is not None and self.path.exists()

    def open(self) -> None:
        self.close()
        self._server = listen(self.path, [serve(DEVICE_PLUGIN.service("DevicePlugin"), self.plugin)], THREADS)

    def close(self) -> None:
        if self._server:
            self._server.stop(0)
            self._server = None


class Agent:
    def __init__(self, settings: Settings):
        self._folder = pathlib.Path(settings.kubelet) / "device-plugins"
        self._kubelet = self._folder / "kubelet.sock"
        self._pods = pathlib.Path(settings.kubelet) / "pod-resources/kubelet.sock"
        self._vgpud = Vgpud(settings.run)
        plugins = [Plugin(profile, settings, self._vgpud) for profile in settings.profiles]
        self._endpoints = [_Endpoint(plugin, self._folder) for plugin in plugins]
        self._plugins = plugins
        self._met: tuple[int, int] | None = None
        self._said = ""  # what is wrong, once
        self.stop = threading.Event()

    def _wrong(self, text: str) -> None:
        if text and text != self._said:
            LOG.warning("%s", text)
        self._said = text

    def _register(self) -> None:
        """With the kubelet that is there, unless it knows already."""
        found = _identity(self._kubelet)
        if found is None:
            self._met = None
            self._wrong(f"there is no kubelet at {self._kubelet}; waiting for it")
            return
        if found == self._met and all(endpoint.there() for endpoint in self._endpoints):
            return
        for endpoint in self._endpoints:
            endpoint.open()
        with grpc.insecure_channel(f"unix:{self._kubelet}") as channel:
            registration = client(DEVICE_PLUGIN.service("Registration"), channel)
            for endpoint in self._endpoints:
                registration.Register(DEVICE_PLUGIN.RegisterRequest(
                    version=VERSION, endpoint=endpoint.path.name, resource_name=endpoint.plugin.resource,
                    options=DEVICE_PLUGIN.DevicePluginOptions()), timeout=CALL_SECONDS)
                LOG.info("the kubelet knows %s", endpoint.plugin.resource)
        self._met = found

    def _listed(self) -> dict[str, set[str]]:
        """IDs that pods have, by resource."""
        listed: dict[str, set[str]] = {plugin.resource: set() for plugin in self._plugins}
        with grpc.insecure_channel(f"unix:{self._pods}") as channel:
            lister = client(POD_RESOURCES.service("PodResourcesLister"), channel)
            answer = lister.List(POD_RESOURCES.ListPodResourcesRequest(), timeout=CALL_SECONDS)
        for pod in answer.pod_resources:
            for container in pod.containers:
                for device in container.devices:
                    if device.resource_name in listed:
                        listed[device.resource_name] |= set(device.device_ids)
        return listed

    def _look(self) -> None:
        try:
            names, devices = self._vgpud.names(patient=False), self._vgpud.devices(patient=False)
        except Away as away:
            self._wrong(str(away))
            for plugin in self._plugins:
                plugin.look(None, [])
            return
        for plugin in self._plugins:
            plugin.look(names, devices)
        listed, written = self._listed(), checkpoint.read(self._folder)
        for plugin in self._plugins:
            plugin.give_back(listed[plugin.resource], written.get(plugin.resource, set()), names)
        self._wrong("")

    def turn(self) -> None:
        """Once around; what fails is tried again at the next."""
        for step in (self._look, self._register):
            try:
                step()
            except grpc.RpcError as error:
                self._met = None if step == self._register else self._met
                self._wrong(f"the kubelet does not answer: {error.details() if hasattr(error, 'details') else error}")
            except (Refused, Away, OSError, checkpoint.Strange) as error:
                self._wrong(str(error))

    def run(self) -> None:
        if not os.access(self._folder, os.W_OK):
            raise OSError(f"{self._folder} is not there or cannot be written: is this a node of Kubernetes, and root?")
        try:
            while not self.stop.is_set():
                self.turn()
                self.stop.wait(LOOK_SECONDS)
        finally:
            for endpoint in self._endpoints:
                endpoint.plugin.end()
                endpoint.close()
                with contextlib.suppress(OSError):
                    endpoint.path.unlink()
