"""The device plugin's side of one resource: which virtual GPUs there are, and making them when a pod is admitted."""
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc

from fleet.kubernetes import cdi, room
from fleet.kubernetes.apis import DEVICE_PLUGIN
from fleet.kubernetes.settings import DOMAIN, Profile, Settings
from fleet.kubernetes.vgpud import Away, Refused, Vgpud

LOG = logging.getLogger("bandsaw")
PREFIX = "k8s-"  # of the names of pods' virtual GPUs
STREAM_SECONDS = 1.0  # how often a stream looks whether its kubelet is still there


class Plugin:
    """Devices are `PROFILE-N`, virtual GPUs `k8s-PROFILE-N`. Its methods named by the kubelet's API run on gRPC's
    threads, `look` and `give_back` on the agent's."""

    def __init__(self, profile: Profile, settings: Settings, vgpud: Vgpud):
        self.profile, self.resource = profile, f"{DOMAIN}/{profile.name}"
        self._settings, self._vgpud = settings, vgpud
        self._making = threading.Lock()  # of virtual GPUs; nothing is given back meanwhile
        self._changed = threading.Condition()
        self._devices: dict[str, bool] = {}  # guarded by _changed: ID -> healthy
        self._absent: dict[str, float] = {}  # guarded by _making: virtual GPU that no pod has -> since when
        self._round = 0  # guarded by _changed: counts up to tell the same again
        self._told_again = 0.0
        self._ended = False  # guarded by _changed

    def vgpu(self, device: str) -> str:
        return PREFIX + device

    def _is_mine(self, name: str) -> bool:
        head, _, number = name.removeprefix(PREFIX).rpartition("-")
        return name.startswith(PREFIX) and head == self.profile.name and number.isdecimal()

    def look(self, names: list[str] | None, devices: list[dict]) -> None:
        """Tells the kubelet what there is, from vgpud's virtual GPUs and devices; None: vgpud is away. Devices that
        nobody has are healthy as far as there is room for them: virtual GPUs of other sizes, and for VMs, take it."""
        with self._changed:
            if names is None:
                found = dict.fromkeys(self._devices, False)
            else:
                most = room.capacity(devices, self.profile)
                count = min(most, self.profile.count) if self.profile.count else most
                ids = [f"{self.profile.name}-{number}" for number in range(count)]
                # What is taken stays on the list, even where a device is lost: its pod still has it.
                ids += sorted({name.removeprefix(PREFIX) for name in names if self._is_mine(name)} - set(ids))
                free, found = room.left(devices, self.profile), {}
                for one in ids:
                    taken = self.vgpu(one) in names
                    found[one] = taken or free > 0
                    free -= not taken
            if found != self._devices:
                self._devices = found
                self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def give_back(self, listed: set[str], written: set[str], names: list[str]) -> None:
        """Removes those of `names` that for `keep_seconds` now are of no device in `listed` (IDs that pods have), but
        not what the kubelet has `written` down: one that has just begun lists no pods until it reaches the API server.
        """
        now = time.monotonic()
        with self._making:
            idle = [name for name in names if self._is_mine(name) and name.removeprefix(PREFIX) not in listed]
            self._absent = {name: self._absent.get(name, now) for name in idle}
            for name in idle:
                if now - self._absent[name] < self._settings.keep_seconds:
                    continue
                if name.removeprefix(PREFIX) in written:
                    self._have_written(now)
                    continue
                LOG.info("%s is given back: its pod is gone", name)
                self._vgpud.remove(name)
                cdi.remove(self._settings.pods.cdi_folder, name)
                del self._absent[name]

    def _have_written(self, now: float) -> None:
        """A kubelet forgets what ended pods had, but writes that down only when something else happens: its devices are
        told again."""
        if now - self._told_again < self._settings.keep_seconds:
            return
        self._told_again = now
        with self._changed:
            self._round += 1
            self._changed.notify_all()

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        return DEVICE_PLUGIN.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        told: tuple[int, dict[str, bool]] | None = None
        while context.is_active():
            with self._changed:
                if not self._ended and told == (self._round, self._devices):
                    self._changed.wait(STREAM_SECONDS)
                if self._ended:
                    return
                if told == (self._round, self._devices):
                    continue
                told = self._round, dict(self._devices)
            yield DEVICE_PLUGIN.ListAndWatchResponse(devices=[
                DEVICE_PLUGIN.Device(ID=one, health="Healthy" if healthy else "Unhealthy")
                for one, healthy in told[1].items()])

    def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "all devices of a resource are alike")

    def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "it was not asked for")

    def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Each call is for a pod that has not begun: what had these names before is another's, and goes."""
        wanted = [list(one.devices_ids) for one in request.container_requests]
        with self._changed:
            strange = [device for ids in wanted for device in ids if device not in self._devices]
        if not all(wanted):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no device of {self.resource} is named")
        if strange:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{self.resource} has no device '{strange[0]}'")
        LOG.info("a pod asks for %s", ", ".join(self.vgpu(device) for ids in wanted for device in ids))
        with self._making:
            made: list[str] = []
            try:
                for device in dict.fromkeys(device for ids in wanted for device in ids):
                    made.append(self.vgpu(device))
                    self._make(made[-1])
            except (Refused, Away) as failure:
                self._undo(made)
                away = isinstance(failure, Away)
                context.abort(grpc.StatusCode.UNAVAILABLE if away else grpc.StatusCode.RESOURCE_EXHAUSTED,
                              f"no {self.resource} for this pod: {failure}")
        return DEVICE_PLUGIN.AllocateResponse(container_responses=[self._answer(ids) for ids in wanted])

    def _make(self, name: str) -> None:
        self._absent[name] = time.monotonic()  # until the kubelet lists its pod
        self._vgpud.make_anew({**self.profile.body(name), **self._settings.pods.access()})
        LOG.info("%s is made for a pod", name)

    def _undo(self, names: list[str]) -> None:
        """What this cannot remove goes by give_back()."""
        for name in names:
            try:
                self._vgpud.remove(name, patient=False)
                cdi.remove(self._settings.pods.cdi_folder, name)
            except (Refused, Away) as failure:
                LOG.warning("%s is left for later: %s", name, failure)

    def _answer(self, ids: list[str]) -> Any:
        names, pods = [self.vgpu(device) for device in ids], self._settings.pods
        if pods.cdi:  # one CDI device for all of a container: variables of two would hide each other
            cdi.write(pods.cdi_folder, names[0], [cdi.device(names[0], names, pods, self._settings.run)])
            return DEVICE_PLUGIN.ContainerAllocateResponse(
                cdi_devices=[DEVICE_PLUGIN.CDIDevice(name=cdi.qualified(names[0]))])
        answer = DEVICE_PLUGIN.ContainerAllocateResponse(envs=cdi.variables(names, pods))
        for host, inside, read_only in cdi.mounts(names, pods, self._settings.run):
            answer.mounts.add(host_path=host, container_path=inside, read_only=read_only)
        return answer
