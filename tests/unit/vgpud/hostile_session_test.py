"""Sessions that have been taken over: what they send and write costs their own tenant, and vgpud goes on."""
import contextlib
import os
import subprocess
import time

import pytest

from daemon_case import LOG, SESSION, VGPUCTL, DaemonCase, until

NONSENSE = [b"[]", b"7", b'{"ok": "yes"}', b'{"ok": true, "memory_used": {}}', b'{"ok": true, "processes": 3}',
            b'{"ok": true, "processes": [4]}', b'{"ok": true, "vm": {"connected": []}}', b'{"ok": true, "mps": 7}',
            b'{"ok": true, "failing": ["x"]}', b'{"ok": true, "usage": {"sticky": "x"}}',
            b'{"ok": true, "name": "\\u001b[2J"}', b'{"a": ' + b"[" * 200000 + b"]" * 200000 + b"}",
            b'{"a": "' + b"x" * (2 << 20) + b'"}']


SPEAKER = """#!/usr/bin/python3
import socket, sys
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
folder = arguments["--run"] + "/" + arguments["--name"]
answer = open(arguments["--state"].rsplit("/", 2)[0] + "/../answer", "rb").read()
listener = socket.socket(socket.AF_UNIX)
listener.bind(folder + "/session.sock")
listener.listen(8)
while True:
    connection, _ = listener.accept()
    for line in connection.makefile("rb"):
        if b'"shutdown"' in line: sys.exit()
        connection.sendall(answer + b"\\n")
"""


class TestHostileSession(DaemonCase):
    @contextlib.contextmanager
    def speaker(self, answer: bytes, script: str = SPEAKER):
        """Sessions that start meanwhile answer whatever they are asked with this."""
        (self.folder / "answer").write_bytes(answer)
        self.replace("bandsaw-session", script)
        try:
            yield
        finally:
            link = self.libexec / "bandsaw-session"
            link.unlink()
            link.symlink_to(SESSION)

    @pytest.mark.parametrize("answer", NONSENSE, ids=range(len(NONSENSE)))
    def test_nonsense_costs_its_own_tenant(self, answer):
        self.ok("create", "good", "--memory", "1G")
        with self.speaker(answer):
            result = self.ctl("create", "bad", "--memory", "1G")
            assert result.returncode != 0, result.stdout
            assert self.daemon.poll() is None, self.log_text()
        assert self.show("good")["live"]["ok"]
        assert "answer is no use" in self.log_text()

    # The first is of an earlier version, which knows of no other device.
    @pytest.mark.parametrize(("answer", "why"), [(b'{"ok": true, "state": "paused"}', "is of an earlier version"),
                                                 (b'{"ok": false, "state": "paused", "error": ""}', "gives no reason")])
    def test_one_that_does_not_move_stays(self, answer, why):
        self.ok("shutdown")
        self.daemon.wait(10)
        self.config.write_text('devices = [{name = "soft:0", memory = "4G"}, {name = "soft:1", memory = "4G"}]\n')
        self.start()
        with self.speaker(answer):
            self.ok("create", "a", "--memory", "1G", "--compute", "80", "--gpu", "soft:0")
            self.refused(1, why, "move", "a", "soft:1")
            assert self.show("a")["device"] == "soft:0" and self.show("a")["engines"]
            self.ok("create", "b", "--memory", "1G", "--compute", "80", "--gpu", "soft:1")
            self.refused(1, "compute shares would sum to 160 %", "create", "c", "--memory", "1G", "--compute", "80",
                         "--gpu", "soft:0")

    def test_a_session_that_does_not_accept_holds_nobody_up(self):
        self.ok("create", "web0", "--memory", "1G")
        script = SPEAKER.replace("while True:", "listener.listen(0)\nimport time\n"
                                 "clients = [socket.socket(socket.AF_UNIX) for _ in range(4)]\n"
                                 "for client in clients:\n    client.setblocking(False)\n"
                                 "    client.connect_ex(folder + '/session.sock')\n"
                                 "time.sleep(30)\nwhile True:")
        with self.speaker(b"{}", script):
            creating = subprocess.Popen([VGPUCTL, "create", "bad", "--memory", "1G"], env=self.environment,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until((self.folder / "run" / "bad" / "session.sock").exists)
            time.sleep(0.5)
            begin = time.monotonic()
            self.show("web0")
            assert time.monotonic() - begin < 15  # the session sleeps for twice as long
            creating.kill()
            creating.wait()


def test_a_log_has_bounds(tmp_path):
    log, old = tmp_path / "session.log", tmp_path / "session.log.1"
    reads, writes = os.pipe()
    descriptors = [os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND), os.open(old, os.O_WRONLY | os.O_CREAT)]
    command = f"exec {LOG} <&{reads} 3<&{descriptors[0]} 4<&{descriptors[1]}"
    writer = subprocess.Popen(["bash", "-c", command], pass_fds=[reads, *descriptors])
    os.close(reads)
    for descriptor in descriptors:
        os.close(descriptor)
    lines = b"".join(b"a line of the log, number %d\n" % i for i in range(2000))
    with os.fdopen(writes, "wb") as pipe:
        pipe.write(b"first\n")
        for _ in range(1000):  # about 60 MB
            pipe.write(lines)
    assert writer.wait(60) == 0
    text = log.read_bytes()
    assert text.startswith(b"first\n")
    assert len(text) < 4 << 20  # a burst, and what came in the meantime
    assert b"bytes of the log were left out" in text
    assert all(len(line) < 200 for line in text.splitlines())


def test_a_full_log_becomes_the_old_one(tmp_path):
    log, old = tmp_path / "session.log", tmp_path / "session.log.1"
    log.write_bytes(b"of before\n" * 838860)  # almost 8 MiB
    reads, writes = os.pipe()
    with open(log, "ab+") as new, open(old, "wb") as kept:
        command = f"exec {LOG} <&{reads} 3<&{new.fileno()} 4<&{kept.fileno()}"
        writer = subprocess.Popen(["bash", "-c", command], pass_fds=[reads, new.fileno(), kept.fileno()])
    os.close(reads)
    with os.fdopen(writes, "wb") as pipe:
        pipe.write(b"of now\n" * 10)
    assert writer.wait(60) == 0
    assert old.read_bytes().startswith(b"of before\n")
    assert log.read_bytes() == b"of now\n" * 10
