"""What a ResourceClaim was given by the scheduler, as virtual GPUs to be made."""
import dataclasses
import re
from typing import Any

from fleet.kubernetes.quantity import parse_quantity
from fleet.kubernetes.settings import MEMORY_LEAST

DRIVER = "vgpu.bandsaw.dev"
PARAMETERS = {"cap": int, "latencyUs": int, "sharing": str}  # of a claim's or a class's configuration
_FIELDS = {"latencyUs": "latency_us"}
MEMORY, COMPUTE, COPY = "memory", "compute", "copy"  # what a device has, as the slice names it


class Wrong(Exception):
    """What is wrong with a claim, for who has written it or runs the cluster."""


@dataclasses.dataclass(frozen=True)
class Part:
    """One virtual GPU of a claim."""
    name: str
    request: str  # the claim's name for it, with that of a subrequest
    device: str  # as the slice calls it
    pool: str
    share: str  # which part of the device it is, by the scheduler
    shares: dict[str, Any]  # for vgpud

    def same(self, view: dict) -> bool:
        """Whether vgpud's virtual GPU of this name is this."""
        return all(view.get(key) == value for key, value in self.shares.items())


def prefix(uid: str) -> str:
    """Of the names of a claim's virtual GPUs."""
    if not re.fullmatch(r"[0-9a-z][0-9a-z-]{0,49}", uid):
        raise Wrong(f"'{uid}' is not a claim's UID")
    return f"dra-{uid}-"


def device_name(identifier: str) -> str:
    """vgpud's cuda:0 is the slice's cuda-0."""
    return re.sub(r"[^a-z0-9]+", "-", identifier.lower()).strip("-")


def _quantity(consumed: dict, word: str, request: str) -> int:
    if word not in consumed:
        raise Wrong(f"request {request} was given no {word}: the cluster must have consumable capacity of devices "
                    "(DRAConsumableCapacity, on by default from Kubernetes 1.36)")
    try:
        return parse_quantity(str(consumed[word]))
    except ValueError as error:
        raise Wrong(f"request {request}, {word}: {error}") from error


def _parameters(config: list[dict], request: str) -> dict[str, Any]:
    """Of all configurations that are meant for this request; those of the claim come after those of its class."""
    found: dict[str, Any] = {}
    for one in config:
        opaque = one.get("opaque") or {}
        names = one.get("requests") or []
        meant = not names or request in names or request.partition("/")[0] in names
        if opaque.get("driver") != DRIVER or not meant:
            continue
        parameters: dict[str, Any] = dict(opaque.get("parameters") or {})
        kind = (parameters.pop("apiVersion", ""), parameters.pop("kind", ""))
        if kind != (f"{DRIVER}/v1", "VgpuParameters"):
            raise Wrong(f"parameters of {DRIVER} are of apiVersion {DRIVER}/v1 and kind VgpuParameters, not {kind}")
        for name, value in parameters.items():
            if type(value) is not PARAMETERS.get(name):
                raise Wrong(f"'{name}: {value}' is none of the parameters " + ", ".join(
                    f"{word} ({wanted.__name__})" for word, wanted in PARAMETERS.items()))
            found[_FIELDS.get(name, name)] = value
    return found


def _part(claim: dict, index: int, result: dict, config: list[dict]) -> Part:
    request = result["request"]
    if result.get("adminAccess"):
        raise Wrong(f"request {request} asks for adminAccess, which virtual GPUs do not have")
    consumed = result.get("consumedCapacity") or {}
    memory = _quantity(consumed, MEMORY, request)
    if memory < MEMORY_LEAST:
        raise Wrong(f"request {request} was given {memory} bytes of memory; a virtual GPU has at least 16Mi")
    shares = {"memory": memory, "compute": _quantity(consumed, COMPUTE, request),
              "copy": _quantity(consumed, COPY, request), **_parameters(config, request)}
    return Part(prefix(claim["metadata"]["uid"]) + str(index), request, result["device"], result["pool"],
                result.get("shareID", ""), shares)


def parts(claim: dict, uid: str) -> list[Part]:
    """Of the claim as the API server has it; `uid`: the one that the kubelet means."""
    try:
        if claim["metadata"]["uid"] != uid:
            raise Wrong(f"the claim was made anew: its UID is {claim['metadata']['uid']}, not {uid}")
        allocation = (claim.get("status") or {}).get("allocation")
        if not allocation:
            raise Wrong("the claim has no allocation")
        devices = allocation.get("devices") or {}
        ours = [result for result in devices.get("results") or [] if result["driver"] == DRIVER]
        return [_part(claim, index, result, devices.get("config") or []) for index, result in enumerate(ours)]
    except (KeyError, TypeError, AttributeError) as error:
        raise Wrong(f"the claim is not as resource.k8s.io/v1 has it: {error}") from error
