"""A stand-in for the kubelet's device manager: it keeps to what the kubelet does, and refuses what it would refuse."""
import concurrent.futures
import json
import pathlib
import threading
import time
from collections.abc import Callable

import grpc

from fleet.kubernetes.apis import DEVICE_PLUGIN, POD_RESOURCES
from fleet.kubernetes.messages import client, serve

SECONDS = 15


class Endpoint:
    """What one resource's plugin said."""

    def __init__(self, path: pathlib.Path, told: Callable[[], None]):
        self._told = told
        self.channel = grpc.insecure_channel(f"unix:{path}")
        self.plugin = client(DEVICE_PLUGIN.service("DevicePlugin"), self.channel)
        self.devices: dict[str, str] = {}  # ID -> health
        self.updates = 0
        self._stream = self.plugin.ListAndWatch(DEVICE_PLUGIN.Empty())
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        try:
            for answer in self._stream:
                assert all(one.health in ("Healthy", "Unhealthy") for one in answer.devices)
                self.devices = {one.ID: one.health for one in answer.devices}
                self.updates += 1
                self._told()
        except grpc.RpcError:
            self.devices = dict.fromkeys(self.devices, "Unhealthy")  # as the kubelet takes a stream's end

    def healthy(self) -> list[str]:
        return [one for one, health in self.devices.items() if health == "Healthy"]

    def close(self) -> None:
        self._stream.cancel()
        self.channel.close()


class Kubelet:
    """Pods outlive it, as the kubelet's checkpoint has them."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.endpoints: dict[str, Endpoint] = {}
        self.registered: list[str] = []
        self.pods: dict[str, dict[str, list[str]]] = {}  # name -> resource -> IDs
        self._servers: list = []
        self._remembered: dict[str, dict[str, list[str]]] = {}  # of pods, as it writes them down
        self._writing = threading.Lock()
        self.reaches_api_server = True  # else it knows of no pods

    def _write(self) -> None:
        """Only when devices change or are allocated."""
        entries = [{"PodUID": pod, "ContainerName": "main", "ResourceName": resource, "DeviceIDs": {"-1": ids}}
                   for pod, has in self._remembered.items() for resource, ids in has.items()]
        path = self.folder / "device-plugins/kubelet_internal_checkpoint"
        with self._writing:
            text = json.dumps({"Data": {"PodDeviceEntries": entries or None}, "Checksum": 1})
            path.with_suffix(".new").write_text(text)
            path.with_suffix(".new").rename(path)

    def start(self) -> None:
        """It removes the plugins' sockets."""
        for path in (self.folder / "device-plugins").glob("*.sock"):
            path.unlink()
        for name, service in (("device-plugins/kubelet.sock", DEVICE_PLUGIN.service("Registration")),
                              ("pod-resources/kubelet.sock", POD_RESOURCES.service("PodResourcesLister"))):
            (self.folder / name).unlink(missing_ok=True)
            server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
            server.add_generic_rpc_handlers((serve(service, self),))
            server.add_insecure_port(f"unix:{self.folder / name}")
            server.start()
            self._servers.append(server)

    def stop(self) -> None:
        for endpoint in self.endpoints.values():
            endpoint.close()
        self.endpoints.clear()
        for server in self._servers:
            server.stop(0).wait()
        self._servers.clear()

    def Register(self, request, context):  # noqa: N802
        if request.version != "v1beta1" or request.resource_name.partition("/")[0] != "bandsaw.dev" \
                or "/" in request.endpoint or not (self.folder / "device-plugins" / request.endpoint).is_socket():
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(request))
        self.registered.append(request.resource_name)
        if old := self.endpoints.pop(request.resource_name, None):
            old.close()
        self.endpoints[request.resource_name] = Endpoint(
            self.folder / "device-plugins" / request.endpoint, self._write)
        return DEVICE_PLUGIN.Empty()

    def List(self, request, context):  # noqa: N802
        answer = POD_RESOURCES.ListPodResourcesResponse()
        if not self.reaches_api_server:
            return answer
        self._remembered = dict(self.pods)
        for name, has in list(self.pods.items()):
            pod = answer.pod_resources.add(name=name, namespace="default")
            container = pod.containers.add(name="main")
            for resource, ids in has.items():
                container.devices.add(resource_name=resource, device_ids=ids)
        return answer

    def admit(self, pod: str, count: int = 1, resource: str = "bandsaw.dev/small", ids: list[str] | None = None):
        """What its container gets. An error fails the pod's admission, with the plugin's words."""
        endpoint = self.endpoints[resource]
        taken = {one for has in self.pods.values() for one in has.get(resource, [])}
        free = [one for one in endpoint.healthy() if one not in taken]
        ids = ids or free[:count]
        assert len(ids) == count, f"Insufficient {resource}: {len(free)} of {count}"
        answer = endpoint.plugin.Allocate(DEVICE_PLUGIN.AllocateRequest(container_requests=[
            DEVICE_PLUGIN.ContainerAllocateRequest(devices_ids=ids)]), timeout=60)
        [container] = answer.container_responses
        self.pods[pod] = {resource: ids}
        self._remembered = dict(self.pods)
        self._write()
        return container

    def await_devices(self, count: int, resource: str = "bandsaw.dev/small") -> Endpoint:
        """Until so many are healthy."""
        deadline = time.monotonic() + SECONDS
        while (resource not in self.endpoints or len(self.endpoints[resource].healthy()) != count) \
                and time.monotonic() < deadline:
            time.sleep(0.05)
        assert resource in self.endpoints, "nobody has registered"
        assert len(self.endpoints[resource].healthy()) == count, self.endpoints[resource].devices
        return self.endpoints[resource]
