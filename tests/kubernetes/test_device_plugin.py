"""Pods ask for bandsaw.dev/small: they get a virtual GPU each, and give it back, whoever starts anew meanwhile."""
import os
import pathlib
import signal
import threading
import time

import grpc
import pytest

from lab.cuda_programs import Program
from lab.daemon import Control
from lab.paths import REPO
from lab.shell import wait_until


@pytest.fixture(scope="module")
def kubelet(node, stand_in):
    standing = stand_in("kubelet").Kubelet(node.kubelet)
    standing.start()
    node.start("device-plugin")
    standing.await_devices(4)
    yield standing
    standing.stop()


@pytest.fixture(autouse=True)
def nothing_left(node, kubelet):
    yield
    kubelet.pods.clear()
    wait_until(lambda: not node.vgpus(), 20, "the end of all virtual GPUs")


def _has(answer) -> tuple[str, dict[str, str]]:
    """(names of virtual GPUs, host path by path inside)"""
    return answer.envs["BANDSAW_VGPU"], {one.container_path: one.host_path for one in answer.mounts}


def test_a_pod_has_a_virtual_gpu_of_its_own(node, kubelet):
    names, mounts = _has(kubelet.admit("one"))
    assert names == "k8s-small-0" and node.vgpus() == [names]
    view = node.daemon.control.need("GET", f"/v1/vgpus/{names}")
    assert (view["memory"], view["compute"], view["copy"]) == (256 << 20, 20, 20)
    socket = mounts[f"/run/bandsaw/{names}/direct.sock"]
    assert pathlib.Path(socket).is_socket() and pathlib.Path(mounts["/usr/local/nvidia/lib64"], "libcuda.so.1").exists()
    program = Program(REPO / "tests/cuda/vector_add.cu")
    program.compile()
    variables = {"BANDSAW_VGPU": names, "BANDSAW_RUN": str(pathlib.Path(socket).parents[1]),
                 "LD_LIBRARY_PATH": mounts["/usr/local/nvidia/lib64"]}
    status, output = program.run({**os.environ, **variables}, 60)
    assert status == 0, output


def test_two_for_one_container(node, kubelet):
    names, mounts = _has(kubelet.admit("two", 2))
    assert names.split(",") == node.vgpus() and len(mounts) == 3


def test_one_size_takes_room_from_the_other(node, kubelet):
    assert kubelet.await_devices(1, "bandsaw.dev/large")
    kubelet.admit("big", resource="bandsaw.dev/large")
    kubelet.await_devices(1)
    kubelet.admit("one")
    with pytest.raises(AssertionError, match="Insufficient"):
        kubelet.admit("another")


def test_what_does_not_fit_any_more_fails_with_vgpuds_words(node, kubelet):
    """A VM's virtual GPU came between the kubelet's decision and the plugin; nothing is left of the pod."""
    ids = kubelet.await_devices(4).healthy()[:2]
    node.daemon.create("vm", 30, memory="640M")
    try:
        with pytest.raises(grpc.RpcError, match=r"no bandsaw.dev/small for this pod: .*memory") as error:
            kubelet.admit("late", 2, ids=ids)
        assert error.value.code().name == "RESOURCE_EXHAUSTED"
        assert node.vgpus() == ["vm"]
        kubelet.await_devices(1)
    finally:
        node.daemon.destroy("vm")
    kubelet.await_devices(4)


def test_a_strange_device_is_refused(kubelet):
    with pytest.raises(grpc.RpcError, match="has no device 'small-77'"):
        kubelet.admit("strange", ids=["small-77"])


def test_a_name_that_comes_again_is_a_new_virtual_gpu(node, kubelet):
    kubelet.admit("first")
    before = node.daemon.control.need("GET", "/v1/vgpus/k8s-small-0")["live"]["pid"]
    kubelet.pods.clear()
    kubelet.admit("second", ids=["small-0"])
    assert node.daemon.control.need("GET", "/v1/vgpus/k8s-small-0")["live"]["pid"] != before


def test_virtual_gpus_of_others_stay(node, kubelet):
    for name in ("k8s-other-0", "vm0", "k8s-small-x"):
        node.daemon.create(name, 1, memory="16M")
    time.sleep(4)
    assert len(node.vgpus()) == 3
    for name in node.vgpus():
        node.daemon.destroy(name)


def test_a_restarted_kubelet_knows_it_again(node, kubelet):
    kubelet.admit("one")
    before = len(kubelet.registered)
    kubelet.stop()
    time.sleep(3)
    assert node.vgpus() == ["k8s-small-0"]  # who has it cannot be asked now
    kubelet.start()
    kubelet.await_devices(4)
    assert len(kubelet.registered) == before + 2
    time.sleep(3)
    assert node.vgpus() == ["k8s-small-0"]


def test_a_restarted_kubelet_without_an_api_server_lists_no_pods(node, kubelet):
    """What it has written down is kept; when it knows its pods again, what they have left is given back."""
    kubelet.admit("one")
    kubelet.admit("gone")
    kubelet.stop()
    kubelet.reaches_api_server = False
    kubelet.start()
    kubelet.await_devices(4)
    time.sleep(6)
    assert node.vgpus() == ["k8s-small-0", "k8s-small-1"]
    del kubelet.pods["gone"]
    kubelet.reaches_api_server = True
    wait_until(lambda: node.vgpus() == ["k8s-small-0"], 15, "the end of the virtual GPU of the pod that is gone")


def test_a_strange_checkpoint_is_said_and_nothing_is_given_back(node, kubelet):
    kubelet.admit("one")
    path = node.kubelet / "device-plugins/kubelet_internal_checkpoint"
    path.write_text("[]")
    kubelet.pods.clear()
    time.sleep(4)
    assert node.vgpus() == ["k8s-small-0"] and "kubelet_internal_checkpoint is not as expected" in node.log.read_text()
    path.unlink()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_restarted_plugin_keeps_what_pods_have(node, kubelet, how):
    kubelet.admit("one")
    kubelet.admit("gone")
    node.end("device-plugin", how)
    del kubelet.pods["gone"]
    kubelet.endpoints.pop("bandsaw.dev/small").close()
    node.start("device-plugin")
    kubelet.await_devices(4)
    wait_until(lambda: node.vgpus() == ["k8s-small-0"], 10, "the end of the virtual GPU of the pod that is gone")


def test_a_plugin_that_dies_in_an_allocation_leaves_nothing(node, kubelet):
    node.freeze_vgpud(True)
    failed = threading.Event()

    def admit() -> None:
        try:
            kubelet.admit("unlucky")
        except grpc.RpcError:
            failed.set()
    thread = threading.Thread(target=admit)
    thread.start()
    time.sleep(0.5)
    node.end("device-plugin", signal.SIGKILL)
    node.freeze_vgpud(False)
    thread.join()
    assert failed.is_set()
    kubelet.endpoints.pop("bandsaw.dev/small").close()
    node.start("device-plugin")
    kubelet.await_devices(4)
    assert _has(kubelet.admit("again"))[0] == "k8s-small-0"


def test_vgpud_starts_anew_in_an_allocation(node, kubelet):
    node.freeze_vgpud(True)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(kubelet.admit("patient")))
    thread.start()
    time.sleep(0.5)
    node.restart_vgpud()
    thread.join()
    assert _has(answers[0])[0] == "k8s-small-0" and node.vgpus() == ["k8s-small-0"]


def test_without_vgpud_devices_are_unhealthy(node, kubelet):
    node.kill_vgpud()
    kubelet.await_devices(0)
    with pytest.raises(grpc.RpcError, match="vgpud does not answer") as error:
        kubelet.admit("lost", ids=["small-0"])
    assert error.value.code().name == "UNAVAILABLE"
    node.restart_vgpud()
    kubelet.await_devices(4)


@pytest.mark.parametrize(("config", "said"), [
    ("", "there is no [profiles.NAME]"),
    ("[profiles.a]\nmemory = 8", "memory is missing"),
    ("[profiles.a]\nmemory = '8G'\ncompuet = 3", "did you mean 'compute'?"),
    ("[profiles.a]\nmemory =\n", "at line 2"),
])
def test_a_wrong_configuration_says_where(node, config, said):
    assert said in node.refusal(config)


def test_the_control_api_still_answers(node):
    assert Control(node.daemon.run).need("GET", "/v1/status")["vgpus"] == 0
