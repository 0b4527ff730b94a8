"""A kubelet 1.20, built of Debian's source: it knows the device plugin, has it make virtual GPUs, and lists pods."""
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


def test_a_pod_that_asks_for_more_than_there_is_is_refused(node, kubelet):
    kubelet.run_pod("many", POD.format(name="many", count=5))
    wait_until(lambda: "Requested: 5, Available: 4" in kubelet.pods(), 30, "a refusal")
    assert not node.vgpus()
    kubelet.remove_pod("many")
