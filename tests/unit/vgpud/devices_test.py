"""One vgpud with several devices: placement, shares of each, and what is said of them."""
import json
import os

from daemon_case import DaemonCase, until

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
