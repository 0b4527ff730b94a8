"""Virtual GPUs that are being suspended or resumed: what is asked of them meanwhile."""
import concurrent.futures
import contextlib
import os
import signal
import time

from daemon_case import DaemonCase, until

TWO = """devices = [{name = "soft:0", memory = "4G", sms = 4}, {name = "soft:1", memory = "4G", sms = 4}]
[swap]
memory = "1G"
"""


class TestSuspend(DaemonCase):
    def make_folder(self):
        super().make_folder()
        self.config.write_text(TWO)

    def state(self) -> str:
        return self.show("a")["live"]["suspension"]["state"]

    @contextlib.contextmanager
    def under_way(self, command: str, *states: str):
        """The command does not come to its end before this does, for lack of a runner's answer."""
        (process,) = self.show("a")["live"]["processes"]
        os.kill(process["runner"], signal.SIGSTOP)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            try:
                asked = pool.submit(self.ctl, command, "a")
                assert until(lambda: self.state() in states), self.state()
                yield
            finally:
                os.kill(process["runner"], signal.SIGCONT)
            assert asked.result().returncode == 0, asked.result().stderr

    def refuses_all(self, why: str):
        begin = time.monotonic()
        for words in (["suspend", "a"], ["resume", "a"], ["move", "a", "soft:1"]):
            self.refused(1, why, *words)
        assert time.monotonic() - begin < 30  # it is under way for as long as this runs

    def test_a_file_that_is_to_come_has_its_room_in_the_hosts_memory(self):
        """Of programs that were not here before: nobody knows how much it has until it is read."""
        self.ok("create", "a", "--memory", "700M", "--gpu", "soft:0")
        beyond = ["--memory", "500M", "--resident", "100M", "--gpu", "soft:1"]
        self.ok("suspend", "a")
        self.ok("create", "b", *beyond)
        self.ok("destroy", "b")
        assert self.http("POST", "/v1/vgpus/a/restore")[0] == 200
        self.refused(1, "'swap.memory' allows", "create", "b", *beyond)
        time.sleep(3.2)  # until then vgpud remembers what it was asked; by now its session says so
        self.refused(1, "'swap.memory' allows", "create", "b", *beyond)
        self.ok("resume", "a")
        self.ok("create", "b", *beyond)

    def test_what_comes_meanwhile_is_refused_at_once(self):
        self.ok("create", "a", "--memory", "1G", "--gpu", "soft:0")
        client = self.direct("a")
        with self.under_way("suspend", "pausing"):
            self.refuses_all("'a' is being suspended")
        assert self.state() == "suspended"
        with self.under_way("resume", "returning", "going on"):
            self.refuses_all("'a' is being resumed")
        assert self.state() == "running"
        with self.under_way("move", "pausing"):
            self.refuses_all("'a' is being moved")
        assert self.show("a")["device"] == "soft:1"
        client.close()
