"""One vgpud with several devices: placement, shares of each, what is said of them, what happens when one is lost."""
import json
import os
import pathlib
import subprocess

import pytest

import stand_ins
from daemon_case import RUNNER, DaemonCase, until
from lab.paths import BUILD

TWO = """devices = [{name = "soft:0", memory = "4G"}, {name = "soft:1", memory = "8G", sms = 8}]
"""


class TestTwoSoftwareDevices(DaemonCase):
    def make_folder(self):
        super().make_folder()
        self.config.write_text(TWO)

    def devices(self) -> dict[str, dict]:
        return {device["id"]: device for device in json.loads(self.ok("status", "--json"))["devices"]}

    def test_each_has_its_own_memory_and_shares(self):
        self.ok("create", "a", "--memory", "1G", "--compute", "100", "--copy", "100", "--gpu", "soft:0")
        assert "created b on soft:1" in self.ok("create", "b", "--memory", "1G", "--compute", "100", "--copy", "100",
                                                "--gpu", "soft:1")
        self.refused(1, "sum to 110 %", "create", "c", "--memory", "1G", "--compute", "10", "--gpu", "soft:1")
        self.refused(1, "is above what is free on device 'soft:0'", "set", "a", "--memory", "5G")
        self.ok("set", "b", "--memory", "5G")
        devices = self.devices()
        assert [(one["memory"] >> 30, one["memory_given"] >> 30, one["compute_given"], one["vgpus"], one["lost"])
                for one in devices.values()] == [(4, 1, 100, 1, ""), (8, 5, 100, 1, "")]
        assert devices["soft:1"]["sms"] == 8

    def test_those_of_one_device_are_listed(self):
        for name, device in (("a", "soft:0"), ("b", "soft:1")):
            self.ok("create", name, "--memory", "1G", "--gpu", device)
        for device, names in (("soft", "a"), ("soft:0", "a"), ("soft:1", "b")):
            assert self.ok("list", "--gpu", device, "--no-header", "-o", "name").split() == [names]
            assert [one["name"] for one in json.loads(self.ok("list", "--gpu", device, "--json"))] == [names]
        self.refused(4, "no device 'soft:7'", "list", "--gpu", "soft:7")
        assert "a is on soft:1" in self.ok("move", "a", "--gpu", "soft:1")
        assert self.ok("list", "--gpu", "soft:0", "--no-header") == ""

    def test_placement_by_room(self):
        for name, device in (("a", "soft:1"), ("b", "soft:0"), ("c", "soft:0"), ("d", "soft:0")):
            share = {"a": "60", "b": "10", "c": "40", "d": "30"}[name]
            assert f"created {name} on {device}" in self.ok("create", name, "--memory", "1G", "--compute", share)
        self.refused(1, "soft:0: memory 7.0 GiB is above", "create", "e", "--memory", "7G", "--compute", "50")
        self.refused(1, "soft:1: compute shares would sum to 110 %", "create", "e", "--memory", "7G", "--compute", "50")
        self.refused(1, "this host has 'soft:0', 'soft:1'", "create", "e", "--memory", "1G", "--gpu", "soft:2")

    def test_a_drained_device_takes_no_new_ones(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "soft:0")
        assert "soft:0 takes no new virtual GPUs; 1 on it goes on" in self.ok("drain", "soft:0")
        assert "drained" in self.ok("status")
        self.refused(1, "it is drained", "create", "b", "--memory", "1G", "--gpu", "soft:0")
        assert "created b on soft:1" in self.ok("create", "b", "--memory", "1G", "--compute", "90")
        self.ok("set", "a", "--memory", "2G")
        self.direct("a").close()
        self.daemon.terminate()
        self.daemon.wait(10)
        self.start()
        assert [one["drained"] for one in self.devices().values()] == [True, False]
        assert 'from {"drained":false}, to {"drained":true}' in self.log_text()
        assert "soft:0 takes new virtual GPUs again" in self.ok("undrain", "soft:0")
        assert "created c on soft:0" in self.ok("create", "c", "--memory", "1G")
        self.refused(4, "no device 'soft:7'", "drain", "soft:7")

    def test_programs_and_restarts(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "soft:0")
        self.ok("create", "b", "--memory", "1G", "--gpu", "soft:1")
        first, second = self.direct("a"), self.direct("b")
        for name, device in (("a", "soft:0"), ("b", "soft:1")):
            runner = self.show(name)["live"]["processes"][0]["runner"]
            variables = open(f"/proc/{runner}/environ").read().split("\0")
            assert f"BANDSAW_DEVICE={device}" in variables
            assert ("BANDSAW_SOFT_SMS=8" in variables) == (device == "soft:1")
        self.daemon.terminate()
        self.daemon.wait(10)
        self.start()
        assert until(lambda: len((self.show("b")["live"] or {}).get("processes", [])) == 1)
        assert (self.show("a")["device"], self.show("b")["device"]) == ("soft:0", "soft:1")
        os.kill(self.show("a")["session"]["pid"], 9)
        assert first.recv(100) == b""
        assert len(self.show("b")["live"]["processes"]) == 1
        second.close()

    def test_what_is_said_of_them(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "soft:0")
        self.ok("create", "b", "--memory", "1G", "--gpu", "soft:1")
        listed = {line.split()[0]: line.split()[1] for line in self.ok("list").splitlines()[1:]}
        assert listed == {"a": "soft:0", "b": "soft:1"}
        assert "soft:1" in self.ok("show", "b")
        status = self.ok("status")
        assert "soft:0: Bandsaw" in status and "soft:1: Bandsaw" in status
        top = self.ok("top", "--count", "1", "--interval", "0.1").splitlines()
        assert top[0].startswith("soft:0, soft:1, 2 virtual GPUs")
        assert [line.split()[:2] for line in top[2:4]] == [["a", "soft:0"], ["b", "soft:1"]]

    def test_one_device_of_before_is_the_first_now(self):
        self.ok("shutdown", "--force")
        self.daemon.wait(10)
        self.config.write_text('[device]\nmemory = "4G"\n')
        self.start()
        self.ok("create", "old", "--memory", "1G")
        assert self.show("old")["device"] == "soft"
        self.ok("shutdown", "--force")
        self.daemon.wait(10)
        self.config.write_text(TWO)
        self.start()
        assert self.show("old")["device"] == "soft:0"
        assert until(lambda: self.show("old")["session"]["state"] == "running")

    def test_scheduling_is_of_all(self):
        self.ok("scheduler", "set", "--policy", "credit")
        self.ok("create", "b", "--memory", "1G", "--gpu", "soft:1")
        trace = self.folder / "trace.json"
        self.ok("trace", "--seconds", "0.1", "-o", str(trace))
        assert "traceEvents" in json.loads(trace.read_text())
        assert json.loads(self.ok("scheduler", "show", "--json"))["policy"] == "credit"


class TestALostDevice(DaemonCase):
    def make_folder(self):
        super().make_folder()
        self.config.write_text(TWO)
        self.replace("bandsaw-runner", stand_ins.FAILING_RUNNER.format(folder=self.folder, runner=RUNNER))

    def lost(self, name: str) -> str:
        devices = json.loads(self.ok("status", "--json"))["devices"]
        return next(one["lost"] for one in devices if one["id"] == name)

    def test_it_ends_its_own_tenants_and_comes_back(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "soft:0")
        self.ok("create", "b", "--memory", "1G", "--gpu", "soft:1")
        other, hit = self.direct("a"), self.direct("b")
        assert until(lambda: self.show("b")["live"]["runners"]["warm"] == 1)
        (self.folder / "gone-soft:1").touch()
        late = self.direct("b", process=2)  # takes the warm runner; the next ones fail
        why = until(lambda: self.lost("soft:1"), 20)
        assert why == "the software device 'soft:1' cannot be used: its power is gone"
        assert hit.recv(100) == b"" and late.recv(100) == b""
        with pytest.raises(AssertionError, match=r"its power is gone"):
            self.direct("b")
        assert f"device 'soft:1' is lost, and the programs of its virtual GPUs end: {why}" in self.log_text()
        assert "lost" in self.ok("status") and "soft:1 (lost)" in self.ok("top", "--count", "1", "--interval", "0.1")

        assert self.lost("soft:0") == "" and len(self.show("a")["live"]["processes"]) == 1
        assert "created c on soft:0" in self.ok("create", "c", "--memory", "1G")
        self.refused(1, "it is lost: the software device", "create", "d", "--memory", "1G", "--gpu", "soft:1")
        self.direct("c").close()
        self.ok("set", "b", "--compute", "20")

        (self.folder / "gone-soft:1").unlink()
        assert until(lambda: self.lost("soft:1") == "", 20), self.log_text()
        self.direct("b").close()
        assert "device 'soft:1' (Bandsaw software device) can be used again" in self.log_text()
        other.close()

    def test_runners_that_fail_for_another_reason_lose_no_device(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "soft:0")
        self.ok("create", "b", "--memory", "1G", "--gpu", "soft:1")
        self.ok("shutdown", "--force")
        self.daemon.wait(10)
        self.environment["BANDSAW_FAKE_RUNNER"] = "crash"
        self.start()
        assert until(lambda: "what is wrong is not the device" in self.log_text(), 20)
        assert self.lost("soft:0") == "" and self.lost("soft:1") == ""


# What the driver would say comes from a library of the test's own, through the real program that asks NVML.
RUNNER_OF_GPUS = """#!/bin/sh
case "$1" in
--list-gpus|--watch-gpu)
  LD_LIBRARY_PATH='{folder}' FAKE_NVML='{folder}' exec '{nvml_reader}' "$@" ;;
--probe)
  if [ -e '{folder}'/"gone-$CUDA_VISIBLE_DEVICES" ]; then echo 'unspecified launch failure' >&2; exit 1; fi
  echo '{{"name": "Test GPU", "uuid": "'"${{CUDA_VISIBLE_DEVICES#*-}}"'", "memory": 8589934592}}'
  exit ;;
esac
exec '{runner}' "$@"
"""


class TestAllGpusOfTheHost(DaemonCase):
    def make_folder(self):
        super().make_folder()
        self.config.write_text(f'devices = "all"\n[mps]\ncommand = "{stand_ins.MPS}"\n')
        source = pathlib.Path(__file__).with_name("fake_nvml.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.folder / "libnvidia-ml.so.1", source], check=True)
        self.replace("bandsaw-runner", RUNNER_OF_GPUS.format(folder=self.folder, runner=RUNNER,
                                                             nvml_reader=BUILD / "backend/runner/bandsaw-runner"))

    def devices(self) -> dict[str, str]:
        return {one["id"]: one["lost"] for one in json.loads(self.ok("status", "--json"))["devices"]}

    def test_they_are_found_with_mig_instances_for_themselves(self):
        names = ["cuda:0", "cuda:1", *(f"cuda:MIG-00000000-0000-0000-0000-0000000000c{i}" for i in (1, 2))]
        assert self.devices() == dict.fromkeys(names, "")
        for vgpu, device in zip("abcd", names):
            assert f"created {vgpu} on {device}" in self.ok("create", vgpu, "--memory", "1G", "--compute", "10")
        assert "on cuda:1" in self.ok("create", "e", "--memory", "1G", "--gpu",
                                      "GPU-00000000-0000-0000-0000-00000000000b")
        client = self.direct("d")
        runner = self.show("d")["live"]["processes"][0]["runner"]
        variables = pathlib.Path(f"/proc/{runner}/environ").read_text().split("\0")
        assert "CUDA_VISIBLE_DEVICES=MIG-00000000-0000-0000-0000-0000000000c2" in variables
        assert "BANDSAW_DEVICE=cuda:0" in variables
        client.close()

    def test_an_error_of_the_gpu_has_it_asked(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "cuda:0")
        self.ok("create", "b", "--memory", "1G", "--gpu", "cuda:1")
        other, hit = self.direct("a"), self.direct("b")
        (self.folder / "xid-1").write_text("31")
        assert until(lambda: "Xid 31, of a program" in self.log_text(), 20)
        (self.folder / "gone-GPU-00000000-0000-0000-0000-00000000000b").touch()
        (self.folder / "xid-1").write_text("79")
        assert until(lambda: self.devices()["cuda:1"], 20), self.log_text()
        assert "'cuda:1' is asked whether it can be used: the driver reports Xid 79" in self.log_text()
        assert "unspecified launch failure" in self.devices()["cuda:1"]
        assert hit.recv(100) == b""
        assert self.devices()["cuda:0"] == "" and len(self.show("a")["live"]["processes"]) == 1
        (self.folder / "xid-0").write_text("79")  # which it outlives
        assert until(lambda: "'cuda:0' answers: what is wrong is not the device" in self.log_text(), 20)
        other.close()

    def mps_daemons(self) -> dict[str, dict]:
        return {one["id"]: one["mps"]["daemon"] for one in json.loads(self.ok("status", "--json"))["devices"]}

    def test_each_has_an_mps_daemon_of_its_own(self):
        for vgpu, device in (("a", "cuda:0"), ("b", "cuda:1")):
            self.ok("create", vgpu, "--memory", "1G", "--sharing", "mps", "--gpu", device)
        wanted = ["running", "running", "off", "off"]
        assert until(lambda: [one["state"] for one in self.mps_daemons().values()] == wanted)
        started = stand_ins.daemons(self.folder / "run")
        assert len({one["variables"]["CUDA_MPS_PIPE_DIRECTORY"] for one in started}) == 2
        assert sorted(one["variables"]["CUDA_VISIBLE_DEVICES"][-1] for one in started) == ["a", "b"]
        client = self.direct("b")
        runner = self.show("b")["live"]["processes"][0]["runner"]
        variables = pathlib.Path(f"/proc/{runner}/environ").read_text().split("\0")
        pipe = self.mps_daemons()["cuda:1"]["log"].replace("/log", "/pipe")
        assert f"CUDA_MPS_PIPE_DIRECTORY={pipe}" in variables
        assert "CUDA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-00000000000b" in variables
        before = {name: one["pid"] for name, one in self.mps_daemons().items()}
        self.daemon.terminate()
        self.daemon.wait(10)
        self.start()  # finds both, each for its GPU
        assert until(lambda: {name: one["pid"] for name, one in self.mps_daemons().items()} == before), before
        self.ok("set", "a", "--sharing", "time-sliced")
        assert until(lambda: self.mps_daemons()["cuda:0"]["state"] == "off")
        assert self.mps_daemons()["cuda:1"]["state"] == "running"
        client.close()
