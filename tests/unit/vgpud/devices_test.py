"""One vgpud with several devices: placement, shares of each, and what is said of them."""
import json
import os

import pytest

from daemon_case import RUNNER, DaemonCase, until

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

    def test_placement_by_room(self):
        for name, device in (("a", "soft:1"), ("b", "soft:0"), ("c", "soft:0"), ("d", "soft:0")):
            share = {"a": "60", "b": "10", "c": "40", "d": "30"}[name]
            assert f"created {name} on {device}" in self.ok("create", name, "--memory", "1G", "--compute", share)
        self.refused(1, "soft:0: memory 7.0 GiB is above", "create", "e", "--memory", "7G", "--compute", "50")
        self.refused(1, "soft:1: compute shares would sum to 110 %", "create", "e", "--memory", "7G", "--compute", "50")
        self.refused(1, "this host has 'soft:0', 'soft:1'", "create", "e", "--memory", "1G", "--gpu", "soft:2")

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
        self.ok("shutdown")
        self.daemon.wait(10)
        self.config.write_text('[device]\nmemory = "4G"\n')
        self.start()
        self.ok("create", "old", "--memory", "1G")
        assert self.show("old")["device"] == "soft"
        self.ok("shutdown")
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


# A runner of a device that ends at once, and says so when asked, while there is a file of this name.
FAILING_RUNNER = """#!/bin/sh
if [ "$1" = --probe ]; then device=$2:$3; else device=$BANDSAW_DEVICE; fi
if [ -e '{folder}'/"gone-$device" ]; then echo 'its power is gone' >&2; exit 1; fi
exec '{runner}' "$@"
"""


class TestALostDevice(DaemonCase):
    def make_folder(self):
        super().make_folder()
        self.config.write_text(TWO)
        runner = self.folder / "libexec" / "bandsaw-runner"
        runner.unlink()
        runner.write_text(FAILING_RUNNER.format(folder=self.folder, runner=RUNNER))
        runner.chmod(0o755)

    def lost(self, name: str) -> str:
        devices = json.loads(self.ok("status", "--json"))["devices"]
        return next(one["lost"] for one in devices if one["id"] == name)

    def test_it_ends_its_own_tenants_and_comes_back(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "soft:0")
        self.ok("create", "b", "--memory", "1G", "--gpu", "soft:1")
        other, hit = self.direct("a"), self.direct("b")
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
        self.ok("shutdown")
        self.daemon.wait(10)
        self.environment["BANDSAW_FAKE_RUNNER"] = "crash"
        self.start()
        assert until(lambda: "what is wrong is not the device" in self.log_text(), 20)
        assert self.lost("soft:0") == "" and self.lost("soft:1") == ""
