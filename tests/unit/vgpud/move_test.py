"""Virtual GPUs that move from one device of a vgpud to another."""
import json
import os
import pathlib
import signal

import stand_ins
from daemon_case import RUNNER, DaemonCase, until

THREE = """devices = [{name = "soft:0", memory = "4G", sms = 4}, {name = "soft:1", memory = "8G", sms = 8},
           {name = "soft:2", memory = "4G", sms = 4}]
[swap]
memory = "1G"
"""


def variables_of(pid: int) -> list[str]:
    return pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0")


class TestMove(DaemonCase):
    def make_folder(self):
        super().make_folder()
        self.config.write_text(THREE)

    def given(self, what: str) -> list[int]:
        return [device[what] for device in json.loads(self.ok("status", "--json"))["devices"]]

    def runner(self, name: str) -> list[str]:
        client = self.direct(name)
        (process,) = self.show(name)["live"]["processes"]
        variables = variables_of(process["runner"])
        client.close()
        assert until(lambda: not self.show(name)["live"]["processes"])
        return variables

    def test_one_without_programs(self):
        self.ok("create", "a", "--memory", "1G", "--compute", "30", "--gpu", "soft:0")
        session = self.show("a")["session"]["pid"]
        assert "BANDSAW_DEVICE=soft:0" in self.runner("a")
        assert self.ok("move", "a", "soft:1") == "a is on soft:1\n"
        after = self.show("a")
        assert (after["device"], after["session"]["pid"], after["live"]["pid"]) == ("soft:1", session, session)
        assert self.given("vgpus") == [0, 1, 0] and self.given("compute_given") == [0, 30, 0]
        assert [given >> 30 for given in self.given("memory_given")] == [0, 1, 0]
        assert after["engines"], "the arbiter of its device knows it"
        assert {"BANDSAW_DEVICE=soft:1", "BANDSAW_SOFT_SMS=8"} <= set(self.runner("a"))
        assert '"device":"soft:0"' in self.log_text().split("audit:")[-1].split("to {")[0]
        self.daemon.terminate()
        self.daemon.wait(10)
        self.start()
        assert until(lambda: self.show("a")["live"])
        assert (self.show("a")["device"], self.show("a")["session"]["pid"]) == ("soft:1", session)
        os.kill(session, signal.SIGKILL)
        assert until(lambda: (self.show("a")["live"] or {}).get("pid", session) != session)
        assert "BANDSAW_DEVICE=soft:1" in self.runner("a")

    def test_what_is_refused(self):
        self.ok("create", "a", "--memory", "5G", "--compute", "50", "--gpu", "soft:1")
        self.ok("create", "b", "--memory", "1G", "--compute", "60", "--gpu", "soft:0")
        self.refused(1, "memory 5.0 GiB is above what is free on device 'soft:2'", "move", "a", "soft:2")
        self.refused(1, "compute shares would sum to 110 %", "move", "b", "soft:1")
        self.refused(1, "it fits on no device: soft:0:", "move", "a")
        self.refused(1, "'a' is on 'soft:1' already", "move", "a", "soft:1")
        self.refused(1, "this host has 'soft:0', 'soft:1', 'soft:2'", "move", "a", "soft:7")
        self.refused(4, "no virtual GPU 'c'", "move", "c", "soft:1")
        self.ok("drain", "soft:2")
        self.refused(1, "it is drained", "move", "b", "soft:2")
        assert self.http("POST", "/v1/vgpus/b/move", b'{"gpu": "soft:1"}')[0] == 400
        assert self.http("POST", "/v1/vgpus/b/move", b'{"device": 3}')[0] == 400
        assert self.given("vgpus") == [1, 1, 0]
        self.ok("undrain", "soft:2")
        self.ok("segment", "create", "frames", "--vgpu", "b", "--size", "2M")
        self.refused(1, "'b' owns the shared segment 'frames', whose memory is on 'soft:0'", "move", "b", "soft:2")
        self.ok("create", "c", "--memory", "1G", "--gpu", "soft:0")
        self.ok("segment", "grant", "frames", "c")
        self.refused(1, "'c' may use the shared segment 'frames'", "move", "c", "soft:2")
        self.ok("segment", "revoke", "frames", "c")
        self.ok("move", "c", "soft:2")

    def test_programs_come_along_where_they_see_no_other_device(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "soft:0")
        client = self.direct("a")
        self.refused(1, "'a' has 1 program: its programs were told of 4 SMs, and 'soft:1' has 8", "move", "a", "soft:1")
        (before,) = self.show("a")["live"]["processes"]
        assert self.ok("move", "a") == "a is on soft:2\n"
        (after,) = self.show("a")["live"]["processes"]
        assert before["runner"] == after["runner"]
        assert self.show("a")["live"]["suspension"]["state"] == "running"
        assert {"BANDSAW_DEVICE=soft:2", "BANDSAW_SOFT_SMS=4"} <= set(self.second("a"))
        client.close()

    def second(self, name: str) -> list[str]:
        def runners() -> set[int]:
            return {process["runner"] for process in self.show(name)["live"]["processes"]}

        before = runners()
        client = self.direct(name, process=2)
        (runner,) = runners() - before
        variables = variables_of(runner)
        client.close()
        return variables

    def test_a_device_is_emptied(self):
        for name, memory in (("a", "1G"), ("b", "1G"), ("large", "5G")):
            self.ok("create", name, "--memory", memory, "--gpu", "soft:1")
        self.ok("create", "other", "--memory", "1G", "--compute", "50", "--gpu", "soft:2")
        client = self.direct("b")
        done = self.ctl("drain", "soft:1", "--move")
        assert done.returncode == 1, done
        lines = done.stdout.splitlines()
        assert lines[0] == "a is on soft:0" and lines[-1] == "soft:1 takes no new virtual GPUs, and has 2 yet"
        assert lines[1].startswith("b stays: 'b' has 1 program: its programs were told of 8 SMs")
        assert lines[2].startswith("large stays: it fits on no device: soft:0: memory 5.0 GiB is above")
        client.close()
        self.ok("destroy", "large")
        assert until(lambda: not self.show("b")["live"]["processes"])
        moved = json.loads(self.ok("drain", "soft:1", "--move", "--json"))
        assert (moved["moved"], moved["stay"]) == ([{"name": "b", "device": "soft:0"}], [])
        self.refused(4, "no device 'soft:7'", "drain", "soft:7", "--move")

    def test_a_device_is_not_emptied_of_what_kubernetes_has_placed(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "soft:1")
        self.ok("create", "dra-5f0c-0", "--memory", "1G", "--gpu", "soft:1")
        done = self.ctl("drain", "soft:1", "--move", "--json")
        said = json.loads(done.stdout)
        assert (done.returncode, [one["name"] for one in said["moved"]]) == (1, ["a"])
        (stays,) = said["stay"]
        assert (stays["name"], stays["error"]) == ("dra-5f0c-0", "Kubernetes has chosen its device")
        assert self.show("dra-5f0c-0")["device"] == "soft:1"
        assert "dra-5f0c-0 stays: Kubernetes has chosen its device (`kubectl drain`" in self.ctl(
            "drain", "soft:1", "--move").stdout

    def test_what_cannot_be_written_down_does_not_move(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "soft:0")
        client = self.direct("a")
        registry = self.folder / "state" / "registry.json"
        kept = registry.rename(registry.with_name("kept"))
        registry.mkdir()
        self.refused(1, "nothing was changed", "move", "a", "soft:2")
        registry.rmdir()
        kept.rename(registry)
        assert until(lambda: self.show("a")["live"]["suspension"]["state"] == "running")
        assert self.show("a")["device"] == "soft:0" and self.show("a")["engines"]
        self.ok("move", "a", "soft:2")
        client.close()

    def test_programs_of_an_mps_one_stay(self):
        self.ok("create", "a", "--memory", "1G", "--sharing", "mps", "--gpu", "soft:0")
        client = self.direct("a")
        self.refused(1, "it is an mps virtual GPU, whose programs stay", "move", "a", "soft:2")
        client.close()
        assert until(lambda: not self.show("a")["live"]["processes"])
        self.ok("move", "a", "soft:2")

    def test_a_suspended_one_stays_suspended(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "soft:0")
        client = self.direct("a")
        self.ok("suspend", "a")
        self.refused(1, "its programs were told of 4 SMs", "move", "a", "soft:1")
        self.ok("move", "a", "soft:2")
        view = self.show("a")
        assert (view["device"], view["suspended"], view["live"]["suspension"]["state"]) == ("soft:2", True, "suspended")
        self.ok("resume", "a")
        assert len(self.show("a")["live"]["processes"]) == 1
        client.close()

    def test_away_from_a_device_that_is_there_no_more(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "soft:1")
        self.ok("shutdown", "--force")
        self.daemon.wait(10)
        self.config.write_text('devices = ["soft:0"]\n')
        self.start()
        assert self.show("a")["live"] is None
        self.ok("move", "a", "soft:0")
        assert "BANDSAW_DEVICE=soft:0" in self.runner("a")


# Answers orders of backend/control/checkpoint_link.h, and notes them. A return to the GPU whose UUID is in the file
# "refused" fails.
CHECKPOINTER = """#!/usr/bin/env python3
import pathlib, socket, struct
folder = pathlib.Path({folder!r})
link = socket.socket(fileno=3)
while order := link.recv(256):
    pid, off, left, wanted = struct.unpack("iI48s48s", order)
    left, wanted = (text.split(bytes(1))[0].decode() for text in (left, wanted))
    refused = folder / "refused"
    error = 5 if not off and refused.exists() and wanted == refused.read_text() else 0
    with open(folder / "orders", "a") as file:
        print(pid, "off" if off else "back", left[-1:], wanted[-1:], error, file=file)
    link.send(struct.pack("iIiI", pid, off, error, 1000))
"""

# What probes of GPUs would say; runners of them are those of the tests.
RUNNER_OF_GPUS = """#!/bin/sh
case "$1" in
--list-gpus|--watch-gpu) exit 0 ;;
--checkpointer) exec '{checkpointer}' ;;
--probe)
  if [ "$3" = 2 ]; then name=Other; else name=Test; fi
  echo '{{"name": "'"$name"' GPU", "uuid": "00000000-0000-0000-0000-00000000000'"$3"'", "memory": 8589934592}}'
  exit ;;
esac
exec '{runner}' "$@"
"""
GPUS = 'devices = ["cuda:0", "cuda:1", "cuda:2", "soft"]\n'


class TestMoveOfAGpu(DaemonCase):
    def make_folder(self):
        super().make_folder()
        self.config.write_text(f'{GPUS}[mps]\ncommand = "{stand_ins.MPS}"\n[swap]\nmemory = "1G"\n'
                               '[sandbox]\nmode = "off"\n')  # the checkpointer writes here
        checkpointer = self.folder / "checkpointer"
        checkpointer.write_text(CHECKPOINTER.format(folder=str(self.folder)))
        checkpointer.chmod(0o755)
        (self.folder / "orders").touch()
        (self.folder / "orders").chmod(0o666)  # it is another user
        self.replace("bandsaw-runner", RUNNER_OF_GPUS.format(runner=RUNNER, checkpointer=checkpointer))

    def orders(self) -> list[str]:
        """Of the checkpointer: "off", or "back", from which GPU and to which, and an error."""
        return [" ".join(line.split()[1:]) for line in (self.folder / "orders").read_text().splitlines()]

    def test_programs_come_along(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "cuda:0")
        client = self.direct("a")
        runner = self.show("a")["live"]["processes"][0]["runner"]
        self.ok("move", "a", "cuda:1")
        view = self.show("a")
        assert (view["device"], view["live"]["suspension"]["state"]) == ("cuda:1", "running")
        assert [one["runner"] for one in view["live"]["processes"]] == [runner]
        assert self.orders() == ["off 0", "back 0 1 0"]
        self.ok("suspend", "a")
        self.ok("move", "a", "cuda:0")
        assert self.orders()[2:] == ["off 0"]
        self.ok("resume", "a")
        assert self.orders()[3:] == ["back 1 0 0"]
        client.close()

    def test_who_cannot_come_to_the_other_gpu_returns(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "cuda:0")
        client = self.direct("a")
        (self.folder / "refused").write_text(f"GPU-{self.show('a')['device_uuid'].removeprefix('GPU-')[:-1]}1")
        self.refused(1, "it stays on 'cuda:0', and its programs go on as before", "move", "a", "cuda:1")
        assert until(lambda: self.show("a")["live"]["suspension"]["state"] == "running")
        assert self.show("a")["device"] == "cuda:0"
        assert self.orders()[:3] == ["off 0", "back 0 1 5", "back 0 0 0"]
        client.close()

    def test_programs_stay_where_the_other_device_is_another(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "cuda:0")
        client = self.direct("a")
        self.refused(1, "'soft' is a device of another kind", "move", "a", "soft")
        self.refused(1, "'cuda:0' is of the model Test GPU, and 'cuda:2' of Other GPU", "move", "a", "cuda:2")
        assert self.show("a")["live"]["suspension"]["state"] == "running"
        client.close()

    def test_one_without_programs(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "cuda:0")
        assert until(lambda: not self.show("a")["live"]["processes"])
        assert self.ok("move", "a") == "a is on cuda:1\n"
        assert self.show("a")["device_uuid"].endswith("1")
        client = self.direct("a")
        variables = variables_of(self.show("a")["live"]["processes"][0]["runner"])
        assert any(one.startswith("CUDA_VISIBLE_DEVICES=GPU-") and one.endswith("1") for one in variables)
        client.close()

    def test_an_mps_one_gets_the_daemon_of_its_new_gpu(self):
        self.ok("create", "a", "--memory", "1G", "--sharing", "mps", "--gpu", "cuda:0")

        def states() -> list[str]:
            devices = json.loads(self.ok("status", "--json"))["devices"]
            return [(one["mps"]["daemon"] or {}).get("state", "") for one in devices[:2]]

        assert until(lambda: states() == ["running", "off"])
        self.ok("move", "a", "cuda:1")
        assert until(lambda: states() == ["off", "running"]), states()
        client = self.direct("a")
        (process,) = self.show("a")["live"]["processes"]
        daemons = {one["variables"]["CUDA_VISIBLE_DEVICES"][-1]: one for one in stand_ins.daemons(self.folder / "run")}
        assert process["mps"] == daemons["1"]["variables"]["CUDA_MPS_PIPE_DIRECTORY"]
        client.close()


class TestMoveFromALostDevice(DaemonCase):
    def make_folder(self):
        super().make_folder()
        self.config.write_text(THREE)
        self.replace("bandsaw-runner", stand_ins.FAILING_RUNNER.format(folder=self.folder, runner=RUNNER))

    def test_it_works_again(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "soft:1")
        assert until(lambda: self.show("a")["live"]["runners"]["warm"] == 1)
        (self.folder / "gone-soft:1").touch()
        client = self.direct("a")
        assert until(lambda: json.loads(self.ok("status", "--json"))["devices"][1]["lost"], 20)
        assert client.recv(100) == b""
        self.ok("create", "b", "--memory", "1G", "--gpu", "soft:0")
        self.refused(1, "it is lost: the software device", "move", "b", "soft:1")
        assert self.ok("move", "a") == "a is on soft:2\n"
        self.direct("a").close()
