"""Containers get virtual GPUs by the Container Device Interface: podman and crun read what the device plugin wrote."""
import pytest

from lab.cuda_programs import Program
from lab.kubernetes_node import Node, run_in_container
from lab.paths import REPO
from lab.shell import wait_until


@pytest.fixture(scope="module")
def kubelet(stand_in):
    node = Node('[profiles.small]\nmemory = "256M"\n', "cdi", pods="cdi = true")
    standing = stand_in("kubelet").Kubelet(node.kubelet)
    standing.start()
    node.start("device-plugin")
    standing.await_devices(4)
    standing.node = node
    yield standing
    standing.stop()
    node.close()


@pytest.fixture(scope="module")
def program():
    return Program(REPO / "tests/cuda/vector_add.cu").compile()


def test_a_program_in_a_container_uses_its_own_and_no_other(kubelet, program):
    node = kubelet.node
    answer = kubelet.admit("two", 2)
    [device] = answer.cdi_devices
    assert device.name == "bandsaw.dev/vgpu=k8s-small-0" and not answer.envs and not answer.mounts
    node.daemon.create("other", 1, "--direct-mode", "0666")
    done = run_in_container(node, device.name, program)
    assert (done.returncode, done.stdout.strip()) == (0, "ok"), done.stdout
    assert node.daemon.control.need("GET", "/v1/vgpus/k8s-small-0")["live"]["usage"]["launches"] > 0
    for name, ends in {"k8s-small-1": 0, "other": 1}.items():
        done = run_in_container(node, device.name, "/usr/bin/env", f"BANDSAW_VGPU={name}", program)
        assert (done.returncode != 0) == ends, done.stdout
    done = run_in_container(node, device.name, "/bin/sh", "-c", "echo /run/bandsaw/*/*")
    assert done.stdout.split() == ["/run/bandsaw/k8s-small-0/direct.sock", "/run/bandsaw/k8s-small-1/direct.sock"]
    node.daemon.destroy("other")


def test_the_file_goes_with_the_pod(kubelet):
    assert [path.name for path in kubelet.node.cdi.iterdir()] == ["bandsaw.dev-k8s-small-0.json"]
    kubelet.pods.clear()
    wait_until(lambda: not kubelet.node.vgpus(), 20, "the end of all virtual GPUs")
    assert not list(kubelet.node.cdi.iterdir())
