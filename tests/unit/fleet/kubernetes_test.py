"""What pods get, and what a configuration may say: without grpc, vgpud or a kubelet."""
import json

import pytest

from fleet.kubernetes import cdi, claims, room, settings, slices
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


RESULT = {"request": "vgpu", "driver": "vgpu.bandsaw.dev", "pool": "n0", "device": "cuda-0", "shareID": "s",
          "consumedCapacity": {"memory": "8Gi", "compute": "30", "copy": "10"}}
UID = "12345678-9abc-def0-1234-56789abcdef0"


def _claim(results: object, config: object = None) -> dict:
    return {"metadata": {"uid": UID}, "status": {"allocation": {"devices": {"results": results, "config": config}}}}


def test_a_claims_parts_are_numbered_as_the_scheduler_lists_them():
    results = [RESULT, {**RESULT, "driver": "another.example"}, {**RESULT, "request": "b/small"}]
    found = claims.parts(_claim(results), UID)
    assert [(one.name, one.request) for one in found] == [(f"dra-{UID}-0", "vgpu"), (f"dra-{UID}-1", "b/small")]
    assert found[0].shares == {"memory": 8 << 30, "compute": 30, "copy": 10}
    assert found[0].same({"memory": 8 << 30, "compute": 30, "copy": 10, "cap": 100})
    assert not found[0].same({"memory": 8 << 30, "compute": 31, "copy": 10})


def test_parameters_of_a_claim_win_over_its_classes():
    def config(cap: int, *requests: str) -> dict:
        return {"requests": list(requests), "opaque": {"driver": "vgpu.bandsaw.dev", "parameters": {
            "apiVersion": "vgpu.bandsaw.dev/v1", "kind": "VgpuParameters", "cap": cap}}}
    results = [RESULT, {**RESULT, "request": "other/sub"}]
    first, second = claims.parts(_claim(results, [config(50), config(60, "vgpu"), config(70, "other")]), UID)
    assert (first.shares["cap"], second.shares["cap"]) == (60, 70)


@pytest.mark.parametrize("claim", [
    {}, {"metadata": {"uid": "other"}}, {"metadata": {"uid": UID}}, {"metadata": {"uid": UID}, "status": 3},
    _claim(3), _claim([3]), _claim([{}]), _claim([{**RESULT, "consumedCapacity": 7}]), _claim([RESULT], [3]),
    _claim([{**RESULT, "consumedCapacity": {"memory": "-1"}}])])
def test_a_claim_that_is_not_one_is_refused(claim):
    with pytest.raises(claims.Wrong):
        claims.parts(claim, UID)


def test_names_of_devices_are_labels():
    names = {"cuda:0": "cuda-0", "soft": "soft", "cuda:GPU-AB": "cuda-gpu-ab"}
    assert {one: claims.device_name(one) for one in names} == names


def test_a_slice_has_what_virtual_gpus_of_others_leave():
    status = [{"id": "cuda:0", "kind": "cuda", "name": "H200", "uuid": "GPU-1", "driver": "580", "memory": 80 << 30}]
    shares = {"device": "cuda:0", "memory": 10 << 30, "resident": 0, "compute": 30, "copy": 20}
    vgpus = [{"name": "vm0", **shares}, {"name": f"dra-{UID}-0", **shares}]
    [device] = slices.devices(status, vgpus)
    assert {name: one["value"] for name, one in device["capacity"].items()} == {
        "memory": f"{70 << 10}Mi", "compute": "70", "copy": "80"}
    assert not slices.devices(status, [{"name": "vm0", **shares, "compute": 100}])
