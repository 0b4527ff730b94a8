"""What virtual GPUs cost their host: lives leave nothing behind, and those that nobody uses sleep. Figures:
tools/bench host."""
import json
import os
import pathlib
import socket
import time
import urllib.request

import pytest

from daemon_case import DaemonCase, until
from lab import daemon_counts

LIVES = 12
TEST_HOST = """<node>
  <domain type='test' xmlns:test='http://libvirt.org/schemas/domain/test/1.0'>
    <name>guest</name><memory>8192</memory><os><type>hvm</type></os><test:runstate>5</test:runstate>
  </domain>
</node>
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class TestHostCost(DaemonCase):
    def make_folder(self):
        super().make_folder()
        self.port = free_port()
        with open(self.config, "a") as config:
            config.write(f'[metrics]\nlisten = "127.0.0.1:{self.port}"\n')
        (self.folder / "test-host.xml").write_text(TEST_HOST)
        self.environment["LIBVIRT_DEFAULT_URI"] = f"test://{self.folder}/test-host.xml"

    def counts(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            page = answer.read().decode()
        cgroups = json.loads(self.ok("status", "--json"))["cgroups"]["path"]
        folders = [self.folder / "state", *([pathlib.Path(cgroups)] if cgroups else [])]
        return daemon_counts.count(self.daemon.pid, self.folder / "run", folders, page)

    def life(self, name):
        self.ok("create", name, "--memory", "64M", "--compute", "1")
        attached = self.ctl("attach", name, "guest")
        if "built without libvirt" in attached.stderr:
            self.ok("attach", name, "guest", "--record-only")
        else:
            assert attached.returncode == 0, attached.stderr
        # The test driver's domain is as before for the next client: only the record is cleared.
        self.ok("detach", name, *(["--record-only"] if attached.returncode else []))
        self.direct(name).close()
        assert until(lambda: not self.show(name)["live"]["processes"])
        self.ok("destroy", name)

    def test_lives_leave_nothing_behind(self):
        if os.geteuid() != 0:
            pytest.skip("sessions are other users only for root")
        for number in range(2):  # what is made once and stays
            self.life(f"first-{number}")
        before = self.counts()
        for number in range(LIVES):
            self.life(f"one-{number}")
        after = daemon_counts.settled(self.counts, before)
        assert not after.above(before), (before, after)

    def test_a_session_that_nobody_uses_sleeps(self):
        self.ok("create", "web0", "--memory", "64M")
        self.direct("web0").close()
        assert until(lambda: not self.show("web0")["live"]["processes"])
        pid = self.show("web0")["session"]["pid"]

        def woken() -> int:
            lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
            return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)

        def sleeps() -> bool:
            before = woken()
            time.sleep(2)
            return woken() == before
        # It looks for some seconds more what its programs use.
        assert until(sleeps, 30), "the session still wakes up now and then"
