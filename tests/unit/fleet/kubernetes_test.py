"""What pods get, and what a configuration may say: without grpc, vgpud or a kubelet."""
import json

import pytest

from fleet.kubernetes import cdi, room, settings
from fleet.kubernetes.quantity import parse_quantity, parse_size

DEVICE = {"memory": 80 << 30, "memory_given": 0, "compute_given": 0, "copy_given": 0}


@pytest.mark.parametrize(("text", "bytes_"), [("8G", 8 << 30), ("512M", 512 << 20), ("1.5GiB", 3 << 29), ("17", 17)])
def test_sizes(text, bytes_):
    assert parse_size(text) == bytes_


@pytest.mark.parametrize(("text", "value"), [
    ("8Gi", 8 << 30), ("8G", 8 * 10**9), ("100", 100), ("1e3", 1000), ("12E2", 1200), ("2E", 2 * 10**18), ("100m", 1),
    ("0.5Ki", 512), (".5", 1), ("+3k", 3000)])
def test_quantities(text, value):
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "-1", "8 Gi", "8gi", "Gi", "1e99", "9Ei", "\u0668", "1e3Gi", "8G\n"])
def test_what_is_no_quantity(text):
    with pytest.raises(ValueError, match=r"quantity|large"):
        parse_quantity(text)


def test_a_configuration_with_all_words():
    chosen = settings.parse("""
        [profiles.small]
        memory = "8G"
        compute = 25
        latency_us = 500
        count = 3
        [pods]
        owner = "alice"
        [node]
        run = "/run/other"
        """)
    [small] = chosen.profiles
    assert small.body("a")["memory"] == 8 << 30 and small.body("a")["latency_us"] == 500
    assert (chosen.run, chosen.pods.access()) == ("/run/other", {"owner": "alice"})


@pytest.mark.parametrize(("text", "said"), [
    ("[profile.a]\n", "did you mean 'profiles'?"),
    ("profiles = 3", "must be a table"),
    ("[profiles]\na = 3", "memory is missing"),
    ("[profiles.a]\nmemory = '1M'", "at least 16M"),
    ("[profiles.a]\nmemory = 'lots'", "is not a size"),
    ("[profiles.A]\nmemory = '1G'", "a name has 1 to 32"),
    ("[profiles.a]\nmemory = '1G'\ncompute = 101", "not from 1 to 100"),
    ("[profiles.a]\nmemory = '1G'\ncompute = true", "must be int"),
    ("[profiles.a]\nmemory = '1G'\nsharing = 'some'", "time-sliced or mps"),
    ("[profiles.a]\nmemory = '1G'\nname = 'b'", "has no 'name'"),
    ("[pods]\nowners = 'alice'", "did you mean 'owner'?"),
    ("[node]\nprofiles = 3", "must be"),
])
def test_a_wrong_configuration(text, said):
    with pytest.raises(settings.Wrong, match=said.replace("[", r"\[").replace("?", r"\?")):
        settings.parse(text)


def test_memory_and_each_share_bound_how_many_fit():
    def profile(**words) -> settings.Profile:
        return settings.Profile("a", **words)
    assert room.capacity([DEVICE, DEVICE], profile(memory=30 << 30)) == 4
    assert room.capacity([DEVICE], profile(memory=1 << 30, compute=30)) == 3
    assert room.capacity([DEVICE], profile(memory=1 << 30, copy=40)) == 2
    taken = {**DEVICE, "memory_given": 60 << 30, "compute_given": 90}
    assert room.left([taken], profile(memory=8 << 30)) == 2
    assert room.left([taken], profile(memory=8 << 30, compute=20)) == 0
    assert room.left([{**taken, "memory_given": 90 << 30}], profile(memory=8 << 30)) == 0  # more than there is


def test_a_file_of_the_container_device_interface(tmp_path):
    pods = settings.Pods(libraries="/lib/ours")
    cdi.write(str(tmp_path), "k8s-a-0", [cdi.device("k8s-a-0", ["k8s-a-0", "k8s-a-1"], pods, "/run/bandsaw")])
    [path] = tmp_path.iterdir()
    said = json.loads(path.read_text())
    assert (said["cdiVersion"], said["kind"]) == ("0.5.0", "bandsaw.dev/vgpu")
    edits = said["devices"][0]["containerEdits"]
    assert "BANDSAW_VGPU=k8s-a-0,k8s-a-1" in edits["env"]
    assert [one["hostPath"] for one in edits["mounts"]] == [
        "/lib/ours", "/run/bandsaw/k8s-a-0/direct.sock", "/run/bandsaw/k8s-a-1/direct.sock"]
    cdi.remove(str(tmp_path), "k8s-a-0")
    cdi.remove(str(tmp_path), "k8s-a-0")
    assert not list(tmp_path.iterdir())
