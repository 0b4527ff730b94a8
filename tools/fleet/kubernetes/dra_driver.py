"""The DRA driver: it makes a claim's virtual GPUs before its first pod begins, and removes them after its last."""
import logging
import threading
from typing import Any

from fleet.kubernetes import cdi, claims
from fleet.kubernetes.api_server import ApiServer, Failed
from fleet.kubernetes.apis import DRA, REGISTRATION
from fleet.kubernetes.settings import Settings
from fleet.kubernetes.vgpud import Away, Refused, Vgpud

LOG = logging.getLogger("bandsaw")
# The same messages under both names: kubelets before 1.34 ask for the older one.
VERSIONS = {"v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
            "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"}
PROBLEMS = (claims.Wrong, Failed, Refused, Away, OSError)


class Driver:
    """Its methods named by the kubelet's API run on gRPC's threads. Nothing of a claim is kept in memory: vgpud and the
    API server know all of it, so that a driver that starts anew goes on."""

    def __init__(self, settings: Settings, vgpud: Vgpud, server: ApiServer, node: str):
        self._settings, self._vgpud, self._server, self._node = settings, vgpud, server, node
        self._one = threading.Lock()  # claim at a time

    def NodePrepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = DRA.NodePrepareResourcesResponse()
        for claim in request.claims:
            try:
                with self._one:
                    answer.claims[claim.uid].devices.extend(self._prepare(claim))
            except PROBLEMS as problem:
                LOG.warning("claim %s/%s: %s", claim.namespace, claim.name, problem)
                answer.claims[claim.uid].error = f"no virtual GPU for {claim.namespace}/{claim.name}: {problem}"
        return answer

    def NodeUnprepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = DRA.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            answer.claims[claim.uid].error = ""
            try:
                with self._one:
                    self._remove(claim.uid)
            except PROBLEMS as problem:
                LOG.warning("claim %s/%s: %s", claim.namespace, claim.name, problem)
                answer.claims[claim.uid].error = str(problem)
        return answer

    def _prepare(self, claim: Any) -> list[Any]:
        claims.prefix(claim.uid)
        path = f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
        found = [part for part in claims.parts(self._server.ask("GET", path), claim.uid) if part.pool == self._node]
        if not found:
            raise claims.Wrong(f"it has nothing of {claims.DRIVER} on node {self._node}")
        try:
            self._make(found)
        except (Refused, Away):
            self._undo(claim.uid)
            raise
        cdi.write(self._settings.pods.cdi_folder, self._file(claim.uid), [
            cdi.device(part.name, [part.name], self._settings.pods, self._settings.run, "*") for part in found])
        return [self._device(part) for part in found]

    def _make(self, parts: list[claims.Part]) -> None:
        """What is there already stays: several pods may have one claim, and a kubelet that starts anew asks again."""
        devices = {claims.device_name(one["id"]): one["id"] for one in self._vgpud.devices()}
        there = {view["name"]: view for view in self._vgpud.ask("GET", "/v1/vgpus")}
        for part in parts:
            if part.device not in devices:
                raise Refused(404, f"vgpud has no device '{part.device}' now; it has {', '.join(devices) or 'none'}")
            body = {"name": part.name, "device": devices[part.device], **part.shares}
            if part.name not in there or not part.same(there[part.name]) or \
                    there[part.name]["device"] != body["device"]:
                self._vgpud.make_anew({**body, **self._settings.pods.access()})
                LOG.info("%s is made for request %s", part.name, part.request)

    def _device(self, part: claims.Part) -> Any:
        device = DRA.Device(request_names=[part.request], pool_name=part.pool, device_name=part.device,
                            cdi_device_ids=[cdi.qualified(part.name)])
        if part.share:
            device.share_id = part.share
        return device

    def _file(self, uid: str) -> str:
        return claims.prefix(uid).rstrip("-")

    def _remove(self, uid: str, patient: bool = True) -> None:
        head = claims.prefix(uid)
        for name in self._vgpud.names(patient):
            if name.startswith(head) and name.removeprefix(head).isdecimal():
                self._vgpud.remove(name, patient)
                LOG.info("%s is removed", name)
        cdi.remove(self._settings.pods.cdi_folder, self._file(uid))

    def _undo(self, uid: str) -> None:
        """What this cannot remove goes when the kubelet unprepares the claim, or is the claim's when it asks again."""
        try:
            self._remove(uid, patient=False)
        except (Refused, Away) as failure:
            LOG.warning("claim %s: something is left for later: %s", uid, failure)


class Registration:
    """What the kubelet asks at the registration's socket."""

    def __init__(self, endpoint: str):
        self._endpoint = endpoint

    def GetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return REGISTRATION.PluginInfo(type="DRAPlugin", name=claims.DRIVER, endpoint=self._endpoint,
                                       supported_versions=list(VERSIONS))

    def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.plugin_registered:
            LOG.info("the kubelet knows %s", claims.DRIVER)
        else:
            LOG.error("the kubelet refuses %s: %s", claims.DRIVER, request.error)
        return REGISTRATION.RegistrationStatusResponse()
