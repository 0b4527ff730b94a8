"""Runners that have been taken over: what they reach of the host, of their session and of other virtual GPUs."""
import errno
import os
import re
import socket

import pytest

from daemon_case import DaemonCase, until
from lab.paths import BUILD

HOSTILE = BUILD / "tests/unit/vgpud/hostile_runner"
ABSTRACT = "bandsaw-hostile-test"
# What did, before runners had a root and a user of their own; on this machine's kernel and as root.
WERE_OPEN = {"own-folder", "passwd", "shell", "peers", "see-processes", "see-numbers", "signal-session"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives runners a user of their own")
class TestHostileRunner(DaemonCase):
    sandbox = ""

    def make_folder(self):
        super().make_folder()
        self.config.write_text(self.config.read_text() + self.sandbox)

    def attempts(self) -> dict[str, int]:
        """What the runners of web0 got, beside a web1 and an abstract socket of the host's."""
        self.ok("create", "web1", "--memory", "1G")
        self.ok("create", "web0", "--memory", "1G")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\0" + ABSTRACT)
        listener.listen()
        session_uid = os.stat(f"/proc/{self.show('web0')['session']['pid']}").st_uid
        self.environment["BANDSAW_HOSTILE"] = (f"run={self.folder}/run state={self.folder}/state "
                                               f"session_uid={session_uid} abstract={ABSTRACT}")
        link = self.libexec / "bandsaw-runner"
        link.unlink()
        link.symlink_to(HOSTILE)
        # vgpud and sessions anew: they hand the environment down.
        self.ok("shutdown", "--force")
        self.daemon.wait(10)
        self.start()
        with listener:
            log = self.folder / "run/web0/session.log"
            assert until(lambda: "attempts end" in log.read_text(), 20), log.read_text() + self.log_text()
            return {name: int(code) for name, code in re.findall(r"attempt (\S+): (\d+)", log.read_text())}


class TestInItsSandbox(TestHostileRunner):
    sandbox = '[sandbox]\nmode = "required"\n'

    def test_it_reaches_nothing(self):
        got = self.attempts()
        assert not {name for name, code in got.items() if code == 0}, got
        assert got["passwd"] in (errno.ENOENT, errno.EACCES)
        runners = self.show("web0")["session"]["sandbox"]["runners"].split()
        assert {"root", "pid", "net", "ipc", "users"} <= set(runners)


class TestWithoutOne(TestHostileRunner):
    """As it was: these attempts are real."""
    sandbox = '[sandbox]\nmode = "off"\n'

    def make_folder(self):
        super().make_folder()
        text = self.config.read_text()
        self.config.write_text(text + "[session]\nfirst_runner_uid = 0\n")

    def test_the_attempts_can_succeed(self):
        got = self.attempts()
        assert {name for name, code in got.items() if code == 0} >= WERE_OPEN, got
