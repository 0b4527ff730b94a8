"""Pods claim parts of a GPU by DRA: stubs of others call the driver, and the cluster's part is a stand-in."""
import contextlib
import pathlib
import signal
import threading
import time
import uuid

import grpc
import pytest
from pydra.core.generated.dra import dra_pb2 as dra
from pydra.core.generated.dra import dra_pb2_grpc
from pydra.core.generated.pluginregistration import pluginregistration_pb2 as registration
from pydra.core.generated.pluginregistration import pluginregistration_pb2_grpc

from lab.cuda_programs import Program
from lab.kubernetes_node import Node, run_in_container
from lab.paths import REPO
from lab.shell import wait_until

PARAMETERS = {"apiVersion": "vgpu.bandsaw.dev/v1", "kind": "VgpuParameters"}


class Kubelet:
    """It finds the driver by the socket of its registration, as the kubelet's plugin watcher does."""

    def __init__(self, folder: pathlib.Path):
        self._registry = folder / "plugins_registry/vgpu.bandsaw.dev-reg.sock"

    def register(self):
        wait_until(self._registry.is_socket, 10, "the registration's socket")
        with grpc.insecure_channel(f"unix:{self._registry}") as channel:
            stub = pluginregistration_pb2_grpc.RegistrationStub(channel)
            info = stub.GetInfo(registration.InfoRequest(), timeout=10)
            assert info.type == "DRAPlugin" and info.name == "vgpu.bandsaw.dev"
            assert "v1.DRAPlugin" in info.supported_versions
            stub.NotifyRegistrationStatus(registration.RegistrationStatus(plugin_registered=True), timeout=10)
        return info

    @contextlib.contextmanager
    def _driver(self):
        with grpc.insecure_channel(f"unix:{self.register().endpoint}") as channel:
            yield dra_pb2_grpc.DRAPluginStub(channel)

    def prepare(self, *claims: tuple[str, str]):
        """(name, UID) of each; the answer by UID."""
        with self._driver() as stub:
            answer = stub.NodePrepareResources(dra.NodePrepareResourcesRequest(claims=[
                dra.Claim(namespace="default", name=name, uid=uid) for name, uid in claims]), timeout=60)
        assert set(answer.claims) == {uid for _, uid in claims}
        return answer.claims

    def unprepare(self, name: str, uid: str) -> str:
        """What went wrong."""
        with self._driver() as stub:
            answer = stub.NodeUnprepareResources(dra.NodeUnprepareResourcesRequest(claims=[
                dra.Claim(namespace="default", name=name, uid=uid)]), timeout=60)
        return answer.claims[uid].error


@pytest.fixture(scope="module")
def server(stand_in):
    standing = stand_in("api_server").ApiServer()
    standing.put("/api/v1/nodes/n0", {"metadata": {"name": "n0", "uid": "node-uid"}})
    yield standing
    standing.close()


def _start(node, server) -> None:
    node.start("dra-driver", "--node", "n0", "--api-server", server.url)


@pytest.fixture(scope="module")
def node(server):
    made = Node("", "dra")
    _start(made, server)
    yield made
    made.close()


@pytest.fixture(scope="module")
def kubelet(node):
    return Kubelet(node.kubelet)


def _result(request: str = "vgpu", memory: str = "256Mi", compute: str = "30", copy: str = "10", **more) -> dict:
    return {"request": request, "driver": "vgpu.bandsaw.dev", "pool": "n0", "device": "soft",
            "shareID": str(uuid.uuid4()),
            "consumedCapacity": {"memory": memory, "compute": compute, "copy": copy}} | more


@pytest.fixture
def claim(node, kubelet, server):
    """Makes claims; at the end they are gone, and their virtual GPUs with them."""
    made: list[tuple[str, str]] = []

    def make(*results: dict, config: list[dict] | None = None) -> tuple[str, str]:
        name, uid = f"claim{len(made)}", str(uuid.uuid4())
        server.put_claim(name, uid, list(results or [_result()]), config)
        made.append((name, uid))
        return name, uid
    yield make
    for name, uid in made:
        assert not kubelet.unprepare(name, uid)
    assert not node.vgpus() and not list(node.cdi.glob("*"))


def _slice(server) -> dict:
    wait_until(server.slices, 10, "the slice")
    [found] = server.slices()
    return found


def test_the_slice_has_a_device_with_capacity_for_each_gpu(node, server):
    found = _slice(server)
    assert found["spec"]["pool"] == {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    assert found["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
    [device] = found["spec"]["devices"]
    assert device["name"] == "soft" and device["allowMultipleAllocations"]
    assert {name: one["value"] for name, one in device["capacity"].items()} == {
        "memory": "1024Mi", "compute": "100", "copy": "100"}


def test_what_vms_have_is_not_the_schedulers_to_give(node, server):
    before = _slice(server)["spec"]["pool"]["generation"]
    node.daemon.create("vm", 30, memory="256M")
    wait_until(lambda: _slice(server)["spec"]["pool"]["generation"] > before, 10, "another slice")
    capacity = _slice(server)["spec"]["devices"][0]["capacity"]
    assert (capacity["memory"]["value"], capacity["compute"]["value"]) == ("768Mi", "70")
    node.daemon.destroy("vm")
    wait_until(lambda: _slice(server)["spec"]["devices"][0]["capacity"]["compute"]["value"] == "100", 10, "the rest")


def test_a_claim_is_a_virtual_gpu_and_a_cdi_device(node, kubelet, claim):
    name, uid = claim(config=[{"source": "FromClaim", "opaque": {
        "driver": "vgpu.bandsaw.dev", "parameters": {**PARAMETERS, "latencyUs": 500, "cap": 80}}}])
    [device] = kubelet.prepare((name, uid))[uid].devices
    assert list(device.request_names) == ["vgpu"] and device.pool_name == "n0" and device.device_name == "soft"
    assert device.share_id and list(device.cdi_device_ids) == [f"bandsaw.dev/vgpu=dra-{uid}-0"]
    view = node.daemon.control.need("GET", f"/v1/vgpus/dra-{uid}-0")
    assert [view[word] for word in ("memory", "compute", "copy", "latency_us", "cap")] == [256 << 20, 30, 10, 500, 80]
    done = run_in_container(node, device.cdi_device_ids[0], Program(REPO / "tests/cuda/vector_add.cu").compile())
    assert (done.returncode, done.stdout.strip()) == (0, "ok"), done.stdout
    [again] = kubelet.prepare((name, uid))[uid].devices
    assert again == device
    assert node.daemon.control.need("GET", f"/v1/vgpus/dra-{uid}-0")["live"]["pid"] == view["live"]["pid"]


def test_a_container_may_have_several(node, kubelet, claim):
    """Each is a CDI device of its own, for containers that name one request."""
    name, uid = claim(_result("one"), _result("two"))
    devices = kubelet.prepare((name, uid))[uid].devices
    assert [list(one.request_names) for one in devices] == [["one"], ["two"]]
    both = [word for one in devices for word in one.cdi_device_ids]
    count = Program(REPO / "tests/kubernetes/count_devices.cu").compile()
    done = run_in_container(node, ",".join(both), count)
    assert done.stdout.split() == ["2"], done.stdout
    assert run_in_container(node, both[1], count).stdout.split() == ["1"]


def test_each_claim_of_a_call_has_an_answer_of_its_own(node, kubelet, claim):
    good, huge = claim(), claim(_result(memory="2Gi"))
    answers = kubelet.prepare(good, huge, ("nothing", "no-such-claim"))
    assert len(answers[good[1]].devices) == 1 and not answers[good[1]].error
    assert "memory" in answers[huge[1]].error and not answers[huge[1]].devices
    assert '"nothing" not found' in answers["no-such-claim"].error
    assert node.vgpus() == [f"dra-{good[1]}-0"]


def test_half_of_a_claim_is_not_left(node, kubelet, claim):
    name, uid = claim(_result("one"), _result("two", memory="1Gi"))
    assert "no virtual GPU for default/claim0" in kubelet.prepare((name, uid))[uid].error
    assert not node.vgpus()


@pytest.mark.parametrize(("result", "said"), [
    (_result(adminAccess=True), "adminAccess"),
    (_result(pool="n1"), "nothing of vgpu.bandsaw.dev on node n0"),
    (_result(device="soft-7"), "vgpud has no device 'soft-7' now; it has soft"),
    (_result(memory="1Mi"), "at least 16Mi"),
    (_result(compute="200"), "compute"),
    (_result() | {"consumedCapacity": {"memory": "1Gi"}}, "was given no compute: the cluster must have"),
    (_result() | {"driver": "other.example"}, "nothing of"),
])
def test_a_claim_that_cannot_be_says_why(kubelet, claim, result, said):
    name, uid = claim(result)
    assert said in kubelet.prepare((name, uid))[uid].error


@pytest.mark.parametrize(("parameters", "said"), [
    ({**PARAMETERS, "memory": "8Gi"}, "is none of the parameters"),
    ({**PARAMETERS, "cap": "all"}, "is none of the parameters"),
    ({"kind": "Other"}, "are of apiVersion vgpu.bandsaw.dev/v1"),
])
def test_wrong_parameters_say_why(kubelet, claim, parameters, said):
    name, uid = claim(config=[{"source": "FromClass", "opaque": {"driver": "vgpu.bandsaw.dev",
                                                                 "parameters": parameters}}])
    assert said in kubelet.prepare((name, uid))[uid].error


def test_uids_name_files_and_are_looked_at(kubelet):
    for uid in ("../../etc/passwd", "a/b", "A", ""):
        assert "is not a claim's UID" in kubelet.prepare(("x", uid))[uid].error
        assert "is not a claim's UID" in kubelet.unprepare("x", uid)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_restarted_driver_goes_on(node, kubelet, server, claim, how):
    name, uid = claim()
    kubelet.prepare((name, uid))
    pid = node.daemon.control.need("GET", f"/v1/vgpus/dra-{uid}-0")["live"]["pid"]
    node.end("dra-driver", how)
    _start(node, server)
    time.sleep(1)
    assert not kubelet.prepare((name, uid))[uid].error
    assert node.daemon.control.need("GET", f"/v1/vgpus/dra-{uid}-0")["live"]["pid"] == pid


def test_vgpud_starts_anew_in_an_allocation(node, kubelet, claim):
    name, uid = claim()
    node.freeze_vgpud(True)
    answers: list = []
    thread = threading.Thread(target=lambda: answers.append(kubelet.prepare((name, uid))))
    thread.start()
    time.sleep(0.5)
    node.restart_vgpud()
    thread.join()
    assert not answers[0][uid].error and node.vgpus() == [f"dra-{uid}-0"]


def test_sockets_that_a_kubelet_removed_come_back(node, kubelet):
    for path in (node.kubelet / "plugins_registry").iterdir():
        path.unlink()
    kubelet.register()
