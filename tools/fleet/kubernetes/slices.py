"""The node's ResourceSlice: which GPUs there are, and how much of each virtual GPUs of pods may have."""
from typing import Any

from fleet.kubernetes.api_server import ApiServer, Failed
from fleet.kubernetes.claims import COMPUTE, COPY, DRIVER, MEMORY, device_name

PATH = "/apis/resource.k8s.io/v1/resourceslices"
STEP = 64 << 20  # bytes of device memory
# What a request gets that says nothing of it, and in which steps.
POLICIES = {MEMORY: {"default": "1Gi", "validRange": {"min": "64Mi", "step": "64Mi"}},
            COMPUTE: {"default": "1", "validRange": {"min": "1", "step": "1"}},
            COPY: {"default": "1", "validRange": {"min": "1", "step": "1"}}}


def _left(device: dict, vgpus: list[dict]) -> dict[str, int]:
    """What virtual GPUs that are not of claims leave: those that are, the scheduler counts itself."""
    others = [one for one in vgpus if one["device"] == device["id"] and not one["name"].startswith("dra-")]
    memory = device["memory"] - sum(one["resident"] or one["memory"] for one in others)
    return {MEMORY: max(0, memory) // STEP * STEP, COMPUTE: max(0, 100 - sum(one["compute"] for one in others)),
            COPY: max(0, 100 - sum(one["copy"] for one in others))}


def _device(device: dict, left: dict[str, int]) -> dict:
    values = {**{word: str(amount) for word, amount in left.items()}, MEMORY: f"{left[MEMORY] >> 20}Mi"}
    attributes = {name: {"string": str(device[word])[:64]} for name, word in
                  {"kind": "kind", "model": "name", "uuid": "uuid", "driver": "driver"}.items() if device[word]}
    return {"name": device_name(device["id"]), "allowMultipleAllocations": True, "attributes": attributes,
            "capacity": {word: {"value": value, "requestPolicy": POLICIES[word]} for word, value in values.items()}}


def devices(status: list[dict], vgpus: list[dict]) -> list[dict]:
    """As the slice lists them, from vgpud's devices and virtual GPUs; those that are full are not there."""
    found = [(one, _left(one, vgpus)) for one in status]
    return [_device(one, left) for one, left in found if all(left.values())]


def _slice(node: dict, listed: list[dict], generation: int) -> dict:
    name = node["metadata"]["name"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"], "controller": True}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{DRIVER}", "ownerReferences": [owner]},
            "spec": {"driver": DRIVER, "nodeName": name, "devices": listed,
                     "pool": {"name": name, "generation": generation, "resourceSliceCount": 1}}}


class Publisher:
    """For one thread."""

    def __init__(self, server: ApiServer, node: str):
        self._server, self._node = server, node

    def _found(self) -> dict | None:
        try:
            return self._server.ask("GET", f"{PATH}/{self._node}-{DRIVER}")
        except Failed as failed:
            if failed.status != 404:
                raise
            return None

    def publish(self, listed: list[dict]) -> bool:
        """Whether the cluster did not know it so. Another pool's generation is one more, as schedulers want it."""
        old: Any = self._found()
        if old and old["spec"].get("devices", []) == listed:
            return False
        node = self._server.ask("GET", f"/api/v1/nodes/{self._node}")
        new = _slice(node, listed, old["spec"]["pool"]["generation"] + 1 if old else 1)
        if old:
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
            self._server.ask("PUT", f"{PATH}/{self._node}-{DRIVER}", new)
        else:
            self._server.ask("POST", PATH, new)
        return True
