"""Co-running as an administrator sees it, on a GPU and with an MPS daemon that are stand-ins."""
import json
import os
import pathlib
import signal
import stat

import pytest

import stand_ins
from daemon_case import RUNNER, DaemonCase, alive, until


class MpsCase(DaemonCase):
    mps = str(stand_ins.MPS)

    def spawn(self):
        if not (self.folder / "runner.sh").exists():
            self.script = stand_ins.make_runner(self.folder, RUNNER)
        self.config.write_text(stand_ins.configuration(self.script, self.mps))
        return super().spawn()

    def mps_state(self):
        return json.loads(self.ok("status", "--json"))["mps"]["daemon"]

    def running(self):
        """The MPS daemon's state once it runs."""
        assert until(lambda: self.mps_state()["state"] == "running"), self.log_text()
        return self.mps_state()

    def runner_of(self, name, client_number=0):
        return self.show(name)["live"]["processes"][client_number]["runner"]

    def environment_of(self, name):
        return stand_ins.environment_of(self.folder, self.runner_of(name))

    def warm_ready(self, name):
        assert until(lambda: (self.show(name)["live"] or {"runners": {"warm": 0}})["runners"]["warm"]), self.log_text()

    def session_log(self, name):
        return (self.folder / "run" / name / "session.log").read_text()


class TestMps(MpsCase):
    def test_the_attribute(self):
        self.ok("create", "web0", "--memory", "1G")
        assert self.show("web0")["sharing"] == "time-sliced"
        assert self.mps_state()["state"] == "off"
        said = self.ok("create", "web1", "--memory", "1G", "--sharing", "mps", "--group", "ml")
        assert "in group 'ml', with nobody else yet" in said and "ends the programs of all of them" in said
        head, *lines = self.ok("list").splitlines()
        for column, values in {"SHARING": ["time-sliced", "mps"], "GROUP": ["-", "ml"], "PRIORITY": ["0", "0"],
                               "CAP": ["-", "-"]}.items():
            at = head.index(column)
            assert [line[at:].split()[0] for line in lines] == values
        assert "mps" in self.ok("show", "web1")
        self.refused(1, "no sharing 'mine'; there are time-sliced, mps", "set", "web0", "--sharing", "mine")
        said = self.ok("set", "web0", "--sharing", "mps", "--group", "ml")
        assert "for programs that start from now on" in said and "with 'web1'" in said
        self.daemon.terminate()
        self.daemon.wait(10)
        self.start()
        assert [self.show(name)["sharing"] for name in ("web0", "web1")] == ["mps", "mps"]
        for old, now in (("isolated", "time-sliced"), ("corun", "mps")):  # the words of earlier versions
            self.ok("set", "web0", "--sharing", old, *(("--group", "ml") if now == "mps" else ()))
            assert self.show("web0")["sharing"] == now
        assert self.http("PATCH", "/v1/vgpus/web0", b'{"sharing": 3}')[0] == 400

    def test_groups(self):
        said = self.ok("create", "a", "--memory", "1G", "--sharing", "mps")
        assert "'a' is alone: no other virtual GPU uses its MPS daemon" in said
        assert "mps (alone)" in self.ok("show", "a")
        for group in ((), ("--group", "ml")):
            self.refused(1, "'a' is mps alone: a GPU has one group at a time", "create", "b", "--memory", "1G",
                         "--sharing", "mps", *group)
        self.refused(1, "a group is for virtual GPUs that are mps", "create", "b", "--memory", "1G", "--group", "ml")
        self.refused(1, "is no name of a group", "set", "a", "--group", "M L")
        assert "in group 'ml', with nobody else yet" in self.ok("set", "a", "--group", "ml")
        pid = self.running()["pid"]
        self.ok("create", "b", "--memory", "1G", "--sharing", "mps", "--group", "ml")
        assert "mps (group ml)" in self.ok("show", "b")
        self.refused(1, "'b' is mps in group 'ml'", "set", "a", "--group", "alone")
        self.daemon.terminate()
        self.daemon.wait(10)
        self.start()
        assert [self.show(name)["group"] for name in ("a", "b")] == ["ml", "ml"]
        assert self.running()["pid"] == pid
        # Programs of the one that leaves may be there yet: the other goes on with a daemon of its own.
        self.warm_ready("a")
        client = self.direct("a")
        before = self.environment_of("a")["CUDA_MPS_PIPE_DIRECTORY"]
        self.ok("set", "a", "--sharing", "time-sliced")
        assert self.show("a")["group"] == ""
        assert until(lambda: self.mps_state()["state"] == "running" and self.mps_state()["pid"] != pid), self.log_text()
        self.warm_ready("b")
        assert self.next_environment("b", 2)["CUDA_MPS_PIPE_DIRECTORY"] != before
        client.close()

    def test_mps_ones_of_an_earlier_version_stay_together(self):
        for name in ("a", "b"):
            self.ok("create", name, "--memory", "1G", "--sharing", "mps", "--group", "ml")
        self.ok("shutdown", "--force")
        self.daemon.wait(10)
        path = self.folder / "state/registry.json"
        stored = json.loads(path.read_text())
        for one in stored["vgpus"]:
            del one["group"]
        path.write_text(json.dumps(stored))
        self.start()
        assert [self.show(name)["group"] for name in ("a", "b")] == ["mps", "mps"]
        assert "is mps since before there were groups" in self.log_text()

    def test_sms(self):
        self.ok("create", "a", "--memory", "1G", "--sharing", "mps", "--group", "ml")
        assert "all of the device" in self.ok("show", "a")
        self.running()
        self.warm_ready("a")
        client = self.direct("a")
        assert self.environment_of("a")["BANDSAW_SMS"] == ""
        said = self.ok("create", "b", "--memory", "1G", "--sharing", "mps", "--sms", "5", "--group", "ml")
        assert "5 SMs are made 8: device 'cuda:0' gives them out in groups of 8" in said
        assert "8 of 20 SMs (0 to 7) are its own" in said
        assert "those that run keep theirs" in said
        assert "8 (0 to 7), its own" in self.ok("show", "b")
        assert "12 (8 to 19), with all MPS ones" in self.ok("show", "a")
        assert "8 of 20 given to 1, in groups of 8" in self.ok("status")
        assert (json.loads(self.ok("status", "--json"))["mps"]["partitions"]["given"] ==
                [{"vgpu": "b", "first": 0, "count": 8}])
        for name, part in (("a", "8:1+"), ("b", "8:0+1")):
            assert self.next_environment(name, 2)["BANDSAW_SMS"] == part
        client.close()
        self.refused(1, "would sum to 16 of 20: 8 asked, 8 given to others", "set", "a", "--sms", "1")
        self.refused(1, "only an MPS one can have SMs of its own", "set", "b", "--sharing", "time-sliced")
        self.daemon.terminate()
        self.daemon.wait(10)
        self.start()
        assert until(lambda: self.show("b")["live"])
        assert (self.show("b")["sms"], self.show("a")["sms_given"]["count"]) == (8, 12)
        self.ok("destroy", "b", "--force")
        assert self.next_environment("a", 3)["BANDSAW_SMS"] == ""
        assert "SMs" not in self.ok("set", "a", "--compute", "5")

    def test_who_goes_first(self):
        self.ok("create", "a", "--memory", "1G", "--sharing", "mps")
        self.running()
        self.warm_ready("a")
        client = self.direct("a")
        assert self.environment_of("a")["CUDA_MPS_CLIENT_PRIORITY"] == "1"
        assert "programs that start from now on" in self.ok("set", "a", "--latency-us", "50")
        assert self.next_environment("a", 2)["CUDA_MPS_CLIENT_PRIORITY"] == "0"
        assert [each["mps_priority"] for each in self.show("a")["live"]["processes"]] == ["below-normal"]
        assert self.show("a")["latency"] == {"kept_by": "priorities", "least_us": 20, "cost_us": 0}
        assert "kept by priorities; 1 of its programs began before" in self.ok("show", "a")
        client.close()
        self.ok("set", "a", "--latency-us", "none", "--priority", "1")
        assert self.next_environment("a", 3)["CUDA_MPS_CLIENT_PRIORITY"] == "0"
        self.ok("set", "a", "--priority", "0")
        assert self.next_environment("a", 4)["CUDA_MPS_CLIENT_PRIORITY"] == "1"

    def next_environment(self, name, number):
        """Of the runner of a program that starts now."""
        self.warm_ready(name)
        before = {each["runner"] for each in self.show(name)["live"]["processes"]}
        client = self.direct(name, number)
        runner, = {each["runner"] for each in self.show(name)["live"]["processes"]} - before
        client.close()
        return stand_ins.environment_of(self.folder, runner)

    def test_the_mode(self):
        assert "mps" in self.ok("status")
        self.ok("create", "web0", "--memory", "1G", "--sharing", "mps")
        assert "persistent-greedy" in self.ok("scheduler", "set", "--planning", "persistent-greedy")
        assert "kernelet" in self.ok("scheduler", "set", "--planning", "kernelet")
        plan = json.loads(self.ok("status", "--json"))["mps"]["plan"]
        assert (plan["plans"], plan["parts"]) == (0, [])
        assert "slices-fifo" in self.ok("scheduler", "set", "--corun-mode", "slices-fifo")  # its old name
        assert "corun" not in self.ok("scheduler", "set", "--help") + self.ok("set", "--help")
        assert json.loads(self.ok("scheduler", "set", "--planning", "kernelet", "--json"))["planning"] == "kernelet"
        self.refused(1, "the planning mode 'opt' is the lab's", "scheduler", "set", "--planning", "opt")
        self.refused(1, "no planning mode 'best'; there are mps, slices-fifo, kernelet, persistent-greedy, "
                     "maestro-antt, maestro-stp",
                     "scheduler", "set", "--planning", "best")
        self.running()
        self.warm_ready("web0")
        self.direct("web0")
        assert self.environment_of("web0")["BANDSAW_PLANNING_MODE"] == "kernelet"
        self.daemon.terminate()
        self.daemon.wait(10)
        self.start()
        assert json.loads(self.ok("status", "--json"))["scheduler"]["planning"] == "kernelet"
        assert self.http("PATCH", "/v1/scheduler", b'{"planning": "persistent-greedy"}')[0] == 200
        status = self.ok("status")
        assert "persistent-greedy" in status and "MPS daemon" in status

    def test_only_runners_of_mps_are_clients(self):
        self.ok("create", "mine", "--memory", "1G")
        self.ok("create", "ours", "--memory", "1G", "--sharing", "mps")
        pid = self.running()["pid"]
        self.direct("mine")
        self.direct("ours")
        time_sliced, mps = self.environment_of("mine"), self.environment_of("ours")
        assert not os.path.exists(time_sliced["CUDA_MPS_PIPE_DIRECTORY"])
        assert time_sliced["CUDA_VISIBLE_DEVICES"] == f"GPU-{stand_ins.UUID}"
        assert "BANDSAW_MPS" not in time_sliced
        pipe = pathlib.Path(mps["CUDA_MPS_PIPE_DIRECTORY"])
        assert pipe.parent.parent == self.folder / "run" / "mps.d"
        assert mps["CUDA_VISIBLE_DEVICES"] == f"GPU-{stand_ins.UUID}"
        assert mps["BANDSAW_MPS"] == "1"
        started, = stand_ins.daemons(self.folder / "run")
        assert started["variables"] == {"CUDA_MPS_PIPE_DIRECTORY": str(pipe),
                                                "CUDA_MPS_LOG_DIRECTORY": str(pipe.parent / "log"),
                                                "CUDA_VISIBLE_DEVICES": f"GPU-{stand_ins.UUID}"}
        assert ("-multiuser-server" in started["arguments"]) == (os.geteuid() == 0)
        for path in (pipe.parent.parent, pipe.parent, pipe):
            assert stat.S_IMODE(path.stat().st_mode) == 0o711, path
        assert stat.S_IMODE((pipe.parent / "log").stat().st_mode) == 0o700
        # A change is for those that start from then on; the daemon goes when nobody wants it.
        self.ok("set", "ours", "--sharing", "time-sliced")
        assert until(lambda: not alive(pid)), self.log_text()
        assert self.mps_state()["state"] == "off"
        self.warm_ready("ours")
        client = self.direct("ours", 2)
        assert not os.path.exists(stand_ins.environment_of(self.folder, self.runner_of("ours", 1))
                                        ["CUDA_MPS_PIPE_DIRECTORY"])
        client.close()
        assert list((self.folder / "run" / "mps.d").iterdir()) == []

    def test_a_killed_daemon_is_started_again(self):
        self.ok("create", "mine", "--memory", "1G")
        self.ok("create", "ours", "--memory", "1G", "--sharing", "mps")
        first = self.running()
        self.warm_ready("ours")
        self.warm_ready("mine")
        mine, ours = self.direct("mine"), self.direct("ours")
        runner, time_sliced = self.runner_of("ours"), self.runner_of("mine")
        self.warm_ready("ours")
        os.kill(first["pid"], signal.SIGKILL)
        assert until(lambda: self.mps_state()["restarts"] == 1), self.log_text()
        assert until(lambda: not alive(runner)), self.session_log("ours")
        assert ours.recv(64) == b"", "the program must see that it is lost"
        again = self.running()
        assert again["pid"] != first["pid"]
        assert alive(time_sliced)
        mine.close()
        self.warm_ready("ours")
        self.direct("ours", 2)
        assert (self.environment_of("ours")["CUDA_MPS_PIPE_DIRECTORY"] + "/../log" ==
                again["log"].replace("/log", "/pipe/../log"))
        assert "was killed by signal 9" in self.log_text()
        assert "the stand-in has started" in self.log_text()
        assert "1 restarts" in self.ok("status")

    def test_a_fault_takes_all_mps_ones_along(self):
        self.ok("create", "mine", "--memory", "1G")
        for name in ("ours", "theirs"):
            self.ok("create", name, "--memory", "1G", "--sharing", "mps", "--group", "ml")
        pid = self.running()["pid"]
        for name in ("mine", "ours", "theirs"):
            self.warm_ready(name)
        self.direct("mine", 1, b"fault")  # not a client: nobody else's matter
        time_sliced = self.runner_of("mine")
        other = self.direct("theirs")
        victim = self.runner_of("theirs")
        assert self.mps_state()["restarts"] == 0
        for end_at_once in (True, False):
            faulting = self.direct("ours", 2, b"fault")
            if end_at_once:
                faulting.close()
            assert until(lambda: self.mps_state()["pid"] not in (0, pid)), self.log_text()
            assert until(lambda: not alive(pid)), self.log_text()
            assert until(lambda: not alive(victim)), self.session_log("theirs")
            assert other.recv(64) == b""
            assert "a program on 'ours' has had a fault" in self.log_text()
            pid = self.running()["pid"]
            self.warm_ready("theirs")
            other = self.direct("theirs", 3)
            victim = self.runner_of("theirs")
            assert (self.environment_of("theirs")["CUDA_MPS_PIPE_DIRECTORY"].replace("/pipe", "/log") ==
                    self.mps_state()["log"])
        assert alive(time_sliced)
        assert self.mps_state()["restarts"] == 2

    def test_the_daemon_outlives_vgpud(self):
        self.ok("create", "ours", "--memory", "1G", "--sharing", "mps")
        pid = self.running()["pid"]
        client = self.direct("ours")
        runner = self.runner_of("ours")
        for end in (signal.SIGTERM, signal.SIGKILL):
            self.daemon.send_signal(end)
            self.daemon.wait(10)
            assert alive(pid)
            self.start()
            assert self.running()["pid"] == pid
            assert until(lambda: self.show("ours")["live"])
            assert self.runner_of("ours") == runner
        client.close()
        # One that died while no vgpud looked.
        self.daemon.terminate()
        self.daemon.wait(10)
        os.kill(pid, signal.SIGKILL)
        self.start()
        assert self.running()["pid"] != pid
        assert len(list((self.folder / "run" / "mps.d").iterdir())) == 1
        self.warm_ready("ours")
        self.direct("ours", 2)
        pid = self.running()["pid"]
        self.ok("shutdown", "--force")
        self.daemon.wait(10)
        assert not alive(pid), "vgpuctl shutdown ends it"


class TestNoMps(MpsCase):
    mps = "no-such-mps-control"

    def test_a_missing_daemon_is_said(self):
        said = self.ok("create", "ours", "--memory", "1G", "--sharing", "mps")
        assert "programs on it are refused for now: there is no 'no-such-mps-control' in PATH" in said
        assert until(lambda: self.show("ours")["live"])
        assert "no MPS daemon: there is no 'no-such-mps-control'" in self.refusal("ours")
        assert "no-such-mps-control" in self.ok("status")
        self.ok("set", "ours", "--sharing", "time-sliced")
        self.warm_ready("ours")
        self.direct("ours")

    def refusal(self, name):
        with pytest.raises(AssertionError) as refused:
            self.direct(name)
        return str(refused.value)


class TestBrokenMps(TestNoMps):
    """One that ends at once."""
    mps = "/bin/false"

    def test_a_missing_daemon_is_said(self):
        self.ok("create", "ours", "--memory", "1G", "--sharing", "mps")
        assert until(lambda: self.mps_state()["restarts"] >= 2), self.log_text()
        assert until(lambda: self.show("ours")["live"])
        assert "exited with status 1" in self.refusal("ours")
