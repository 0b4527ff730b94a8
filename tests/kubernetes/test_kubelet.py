"""A kubelet 1.20, built of Debian's source: it knows the device plugin, has it make virtual GPUs, and lists pods."""
import signal
import time

import pytest

from lab.kubernetes_kubelet import Kubelet
from lab.kubernetes_node import Node
from lab.shell import wait_until

POD = """apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  containers:
  - name: main
    image: none.example/none
    resources: {{limits: {{bandsaw.dev/small: {count}}}}}
"""
ALLOCATES = "a pod asks for"  # the plugin's words
pytestmark = pytest.mark.full  # it is built from source first


@pytest.fixture(scope="module")
def node():
    made = Node('[profiles.small]\nmemory = "256M"\n', "kubelet")
    yield made
    made.close()


@pytest.fixture(scope="module")
def kubelet(node):
    real = Kubelet(node.kubelet, node.folder / "kubelet.log")
    real.start()
    node.start("device-plugin")
    _await_known(node, real, 1)
    yield real
    real.stop()


def _await_known(node, kubelet, times: int) -> None:
    def known() -> bool:
        assert kubelet.running(), kubelet.said()[-3000:]
        return node.log.read_text().count("the kubelet knows bandsaw.dev/small") == times
    wait_until(known, 60, "the kubelet's knowing the resource")


def test_a_pod_is_admitted_with_a_virtual_gpu_and_gives_it_back(node, kubelet):
    kubelet.run_pod("one", POD.format(name="one", count=1))
    wait_until(lambda: node.vgpus() != [], 60, "the pod's virtual GPU")
    time.sleep(5)  # longer than what no pod has is kept
    [name] = node.vgpus()
    kubelet.stop()
    kubelet.start()
    _await_known(node, kubelet, 2)
    time.sleep(5)
    assert node.vgpus() == [name]
    kubelet.remove_pod("one")
    wait_until(lambda: not node.vgpus(), 90, "the end of the pod's virtual GPU")


def _in_an_allocation(node, kubelet, name: str) -> None:
    """The kubelet has asked for a pod's virtual GPU, and vgpud does not answer."""
    asked = node.log.read_text().count(ALLOCATES)
    node.freeze_vgpud(True)
    kubelet.run_pod(name, POD.format(name=name, count=1))
    wait_until(lambda: node.log.read_text().count(ALLOCATES) > asked, 30, "the kubelet's question")


def _gone_with_its_pod(node, kubelet, name: str) -> None:
    kubelet.remove_pod(name)
    wait_until(lambda: not node.vgpus(), 90, "the end of the pod's virtual GPU")


def _times_known(node) -> int:
    return node.log.read_text().count("the kubelet knows bandsaw.dev/small")


def test_a_kubelet_that_is_killed_in_an_allocation(node, kubelet):
    times = _times_known(node)
    _in_an_allocation(node, kubelet, "kubelet")
    kubelet.stop()
    node.freeze_vgpud(False)
    kubelet.start()
    _await_known(node, kubelet, times + 1)
    time.sleep(5)  # longer than what no pod has is kept
    # The kubelet may ask for the pod's room before it knows the plugin again; it then says so, and lets the pod fail.
    failed = "UnexpectedAdmissionError" in kubelet.pods()
    wait_until(lambda: len(node.vgpus()) == (0 if failed else 1), 60, "what the pod has")
    _gone_with_its_pod(node, kubelet, "kubelet")
    kubelet.run_pod("next", POD.format(name="next", count=1))
    wait_until(lambda: len(node.vgpus()) == 1, 60, "the next pod's virtual GPU")
    _gone_with_its_pod(node, kubelet, "next")


def test_a_plugin_that_is_killed_in_an_allocation(node, kubelet):
    times = _times_known(node)
    _in_an_allocation(node, kubelet, "plugin")
    node.end("device-plugin", signal.SIGKILL)
    node.freeze_vgpud(False)
    node.start("device-plugin")
    _await_known(node, kubelet, times + 1)
    wait_until(lambda: '"phase":"Failed"' in kubelet.pods(), 30, "the failed admission")
    assert "UnexpectedAdmissionError" in kubelet.pods()
    wait_until(lambda: not node.vgpus(), 90, "the end of what no pod has")
    _gone_with_its_pod(node, kubelet, "plugin")
    kubelet.run_pod("after", POD.format(name="after", count=1))
    wait_until(lambda: len(node.vgpus()) == 1, 60, "the next pod's virtual GPU")
    _gone_with_its_pod(node, kubelet, "after")


def test_a_pod_that_asks_for_more_than_there_is_is_refused(node, kubelet):
    kubelet.run_pod("many", POD.format(name="many", count=5))
    wait_until(lambda: "Requested: 5, Available: 4" in kubelet.pods(), 30, "a refusal")
    assert not node.vgpus()
    kubelet.remove_pod("many")
