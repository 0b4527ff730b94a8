"""vgpud, its sessions and vgpuctl together: lives and deaths."""
import grp
import json
import os
import pathlib
import pwd
import re
import signal
import socket
import struct
import subprocess

import pytest

from daemon_case import RUNNER, VGPUD, DaemonCase, alive, until

RESTARTS = 30


class TestDaemon(DaemonCase):
    def test_life_of_a_virtual_gpu(self):
        assert "created web0" in self.ok("create", "web0", "--memory", "8G", "--compute", "30", "--copy", "30")
        assert [view["name"] for view in json.loads(self.ok("list", "--json"))] == ["web0"]
        assert "web0" in self.ok("list")
        self.ok("set", "web0", "--memory", "4G", "--compute", "100")
        view = self.show("web0")
        assert (view["memory"], view["compute"], view["copy"]) == (4 << 30, 100, 30)
        assert view["live"]["memory_share"] == 4 << 30
        session = view["session"]["pid"]
        assert alive(session)
        self.ok("destroy", "web0")
        assert until(lambda: not alive(session))
        assert not (self.folder / "run" / "web0").exists()
        assert not (self.folder / "state" / "vgpus" / "web0").exists()

    def test_a_failed_create_leaves_the_log_that_it_names(self):
        (self.libexec / "bandsaw-session").unlink()
        (self.libexec / "bandsaw-session").write_text("#!/bin/sh\necho the reason >&2\nexit 1\n")
        (self.libexec / "bandsaw-session").chmod(0o755)
        log = self.folder / "run/failed.d/web0.log"
        self.refused(1, f"nothing was created; {log} says why", "create", "web0", "--memory", "1G")
        assert until(lambda: log.exists() and "the reason" in log.read_text())
        assert until(lambda: not (self.folder / "run/web0").exists()) and json.loads(self.ok("list", "--json")) == []

    def test_refusals(self):
        self.ok("create", "web0", "--memory", "8G", "--compute", "60", "--copy", "60")
        self.refused(1, "is taken", "create", "web0", "--memory", "1G")
        self.refused(1, "sum to 110 %", "create", "web1", "--memory", "1G", "--compute", "50")
        self.refused(1, "sum to 101 %", "create", "web1", "--memory", "1G", "--copy", "41")
        self.refused(1, "8.0 GiB of 16.0 GiB", "create", "web1", "--memory", "9G")
        self.refused(1, "below the least", "create", "web1", "--memory", "1")
        self.refused(1, "is not a name", "create", "Web!", "--memory", "1G")
        self.refused(1, "this host has 'soft'", "create", "web1", "--memory", "1G", "--device", "h100")
        self.refused(2, "is not a size", "create", "web1", "--memory", "lots")
        self.refused(2, "", "create", "web1")
        self.refused(2, "", "frobnicate")
        self.refused(2, "nothing to set", "set", "web0")
        self.refused(4, "did you mean 'web0'", "show", "wbe0")
        self.refused(4, "no virtual GPU", "destroy", "../web0")
        self.refused(1, "attached to no domain", "detach", "web0")
        self.refused(4, "nosuchdomain", "attach", "web0", "nosuchdomain")
        assert self.show("web0")["domain"] == ""
        self.ok("attach", "web0", "dom", "--record-only")
        self.refused(1, "attached to domain 'dom'", "destroy", "web0")
        self.refused(1, "attached to domain 'dom'", "attach", "web0", "other", "--record-only")
        self.ok("detach", "web0", "--record-only")
        assert json.loads(self.ok("list", "--json"))[0]["memory"] == 8 << 30
        self.ok("attach", "web0", "dom", "--record-only")
        assert "`vgpuctl detach web0 dom`" in self.ok("destroy", "web0", "--force")

    def test_no_daemon(self):
        self.daemon.terminate()
        self.daemon.wait(10)
        self.refused(3, "vgpud is not running", "list")
        (self.folder / "old").write_text("a trace")
        for name in ("old", "new"):
            self.refused(3, "vgpud is not running", "trace", "-o", str(self.folder / name), "--seconds", "0.1")
        assert (self.folder / "old").read_text() == "a trace" and not (self.folder / "new").exists()

    def test_a_second_daemon_is_refused(self):
        second = self.spawn()
        assert second.wait(10) == 1
        assert f"runs already (pid {self.daemon.pid}" in self.log_text()
        self.ok("status")

    def test_sessions_live_through_a_restart(self):
        self.ok("create", "web0", "--memory", "1G")
        client = self.direct("web0")
        session = self.show("web0")["session"]["pid"]
        for how in (signal.SIGTERM, signal.SIGKILL):
            self.daemon.send_signal(how)
            self.daemon.wait(10)
            assert alive(session)
            self.start()
            view = until(lambda: (v := self.show("web0"))["live"] and v)
            assert view["session"]["pid"] == session
            assert len(view["live"]["processes"]) == 1
        client.close()
        assert until(lambda: not self.show("web0")["live"]["processes"])
        self.ok("destroy", "web0")
        assert until(lambda: not alive(session))

    def test_a_wrong_configuration_is_not_taken(self):
        self.ok("create", "web0", "--memory", "1G")
        session = self.show("web0")["session"]["pid"]
        good = self.config.read_text()
        self.config.write_text(good + '[scheduler]\npolicy = "most"\n')
        self.daemon.send_signal(signal.SIGHUP)
        assert until(lambda: f"{self.config}:4:10: 'scheduler.policy'" in self.log_text()), self.log_text()
        assert self.show("web0")["session"]["pid"] == session
        self.config.write_text(good + '[scheduler]\npolicy = "fifo"\n')
        self.daemon.send_signal(signal.SIGHUP)
        # The same process with the new configuration, and the same sessions.
        assert until(lambda: '"policy": "fifo"' in self.ctl("status", "--json").stdout), self.log_text()
        assert until(lambda: self.show("web0")["live"])
        assert self.daemon.poll() is None and self.show("web0")["session"]["pid"] == session

    def test_who_asks_during_a_reload_waits(self):
        logged = self.log_text().count("vgpud is ready")
        for number in range(1, 4):
            self.daemon.send_signal(signal.SIGHUP)
            while self.log_text().count("vgpud is ready") < logged + number:
                self.ok("status")
        environment = pathlib.Path(f"/proc/{self.daemon.pid}/environ").read_bytes()  # as of the last exec
        assert b"BANDSAW_CONTROL_LISTENER=" in environment

    def test_restarts_in_a_row_harm_nobody(self):
        self.ok("create", "web0", "--memory", "1G")
        client = self.direct("web0")
        session = self.show("web0")["session"]["pid"]
        for number in range(RESTARTS):
            self.daemon.send_signal(signal.SIGKILL if number % 2 else signal.SIGTERM)
            self.daemon.wait(10)
            self.daemon = self.spawn()
            if number % 5 == 0:  # the others are ended while they begin
                assert until(lambda: self.ctl("status").returncode == 0), self.log_text()
        assert until(lambda: self.ctl("status").returncode == 0), self.log_text()
        view = until(lambda: (v := self.show("web0"))["live"] and v)
        told = {key: view["session"][key] for key in ("pid", "state", "restarts")}
        assert told == {"pid": session, "state": "running", "restarts": 0}
        assert len(view["live"]["processes"]) == 1
        client.close()

    def test_a_dead_session_is_replaced_and_harms_no_other(self):
        self.ok("create", "web0", "--memory", "1G")
        self.ok("create", "web1", "--memory", "1G")
        victim, other = self.direct("web0"), self.direct("web1")
        runner = self.show("web0")["live"]["processes"][0]["runner"]
        session = self.show("web0")["session"]["pid"]
        os.kill(session, signal.SIGKILL)
        assert victim.recv(100) == b""
        assert until(lambda: not alive(runner)), "its runners go with it"
        assert until(lambda: self.show("web0")["session"]["state"] == "running"
                     and self.show("web0")["session"]["pid"] != session)
        self.direct("web0").close()
        assert len(self.show("web1")["live"]["processes"]) == 1
        other.close()

    def test_a_dead_runner_takes_only_its_process(self):
        self.ok("create", "web0", "--memory", "1G")
        first, second = self.direct("web0"), self.direct("web0")
        os.kill(self.show("web0")["live"]["processes"][0]["runner"], signal.SIGKILL)
        assert first.recv(100) == b""
        assert len(until(lambda: self.show("web0")["live"]["processes"])) == 1
        second.send(struct.pack("<II", 8, 1))
        assert struct.unpack_from("<I", second.recv(4096))[0] == 0
        second.close()

    def test_a_virtual_gpu_in_use_is_not_destroyed(self):
        self.ok("create", "web0", "--memory", "1G")
        client = self.direct("web0")
        self.refused(1, "in use", "destroy", "web0")
        self.ok("destroy", "web0", "--force")
        assert client.recv(100) == b""

    def test_sessions_are_unprivileged(self):
        if os.geteuid() != 0:
            pytest.skip("not root")
        self.ok("create", "web0", "--memory", "1G")
        client = self.direct("web0")
        view = self.show("web0")
        for pid, uid in ((view["session"]["pid"], "60600"), (view["live"]["processes"][0]["runner"], "80000")):
            status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                          if ":\t" in line)
            assert set(status["Uid"].split()) == {uid}
            assert status["NoNewPrivs"] == "1"
            assert int(status["CapEff"], 16) in (0, 1 << 12)
        runner = view["live"]["processes"][0]["runner"]
        assert {int(fd) for fd in os.listdir(f"/proc/{runner}/fd")} <= set(range(12))
        client.close()

    def test_a_full_disk_refuses_and_loses_nothing(self):
        self.ok("create", "web0", "--memory", "1G", "--compute", "10")
        self.daemon.terminate()
        self.daemon.wait(10)
        state = self.folder / "state"
        saved = (state / "registry.json").read_text()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", state], capture_output=True,
                          check=False).returncode != 0:
            pytest.skip("cannot mount a small disk here")
        try:
            (state / "registry.json").write_text(saved)
            self.start()
            with open(state / "filler", "wb", buffering=0) as filler:
                try:
                    while True:
                        filler.write(b"x" * 4096)
                except OSError:
                    pass
            self.refused(1, "No space left", "create", "web1", "--memory", "1G")
            self.refused(1, "No space left", "set", "web0", "--compute", "20")
            self.refused(1, "No space left", "destroy", "web0")
            assert self.show("web0")["compute"] == 10
            (state / "filler").unlink()
            self.ok("create", "web1", "--memory", "1G")
            self.ok("shutdown")
            self.daemon.wait(10)
        finally:
            subprocess.run(["umount", "-l", state], check=False)

    def test_http(self):
        self.ok("create", "web0", "--memory", "1G")
        for method, target, body, code in [
                ("GET", "/", b"", 404), ("GET", "/v2/status", b"", 404), ("GET", "/v1/nothing", b"", 404),
                ("POST", "/v1/status", b"", 405), ("DELETE", "/v1/vgpus", b"", 405), ("GET", "/v1/vgpus/x", b"", 404),
                ("GET", "/v1/vgpus/web0/nothing", b"", 404), ("GET", "/v1/vgpus/web0/attach", b"", 405),
                ("POST", "/v1/vgpus", b"", 400), ("POST", "/v1/vgpus", b"{", 400), ("POST", "/v1/vgpus", b"[]", 400),
                ("POST", "/v1/vgpus", b'{"name":3}', 400), ("POST", "/v1/vgpus", b'{"name":"a"}', 400),
                ("POST", "/v1/vgpus", b'{"name":"a","memory":-5}', 400),
                ("POST", "/v1/vgpus", b'{"name":"a","memory":1e30}', 400),
                ("POST", "/v1/vgpus", b'{"name":"a","memory":1073741824,"index":4}', 400),
                ("PATCH", "/v1/vgpus/web0", b'{"domain":"x"}', 400), ("PATCH", "/v1/vgpus/web0", b"null", 400),
                ("POST", "/v1/vgpus/web0/attach", b"{}", 400), ("POST", "/v1/vgpus", b"[" * 60000, 400),
                ("GET", "/v1/vgpus/%2e%2e%2fetc", b"", 404), ("GET", "/v1/vgpus/web0", b"", 200)]:
            status, reply = self.http(method, target, body)
            assert status == code, (method, target, reply)
            if code >= 400:
                assert "error" in json.loads(reply)
        assert self.http("POST", "/v1/vgpus", b"x" * 1000000)[0] == 413
        raw = socket.socket(socket.AF_UNIX)
        raw.connect(str(self.folder / "run" / "control.sock"))
        raw.send(b"GET /v1/vgpus HTTP/1.1\r\nHost: x\r\n\r\n")
        raw.close()  # gone before its answer
        self.ok("status")

    def as_user(self, uid, groups, method, target, body=""):
        """The status of a request by another user of this host."""
        script = ("import http.client, socket, sys\n"
                  "c = http.client.HTTPConnection('bandsaw', timeout=10)\n"
                  "c.sock = socket.socket(socket.AF_UNIX); c.sock.connect(sys.argv[1])\n"
                  "c.request(*sys.argv[2:5]); print(c.getresponse().status)")
        command = ["/usr/bin/python3", "-c", script, self.folder / "run/control.sock", method, target, body]
        done = subprocess.run(command, user=uid, group=uid, extra_groups=groups, capture_output=True, text=True,
                              check=True, cwd="/")
        return int(done.stdout)

    def test_roles_and_the_audit(self):
        if os.geteuid() != 0:
            pytest.skip("only root can be another user")
        self.ok("create", "web0", "--memory", "1G")
        self.ctl("shutdown", "--force")
        self.daemon.wait(10)
        group = next(entry for entry in grp.getgrall() if entry.gr_gid != 0)
        self.config.write_text(self.config.read_text() +
                               f'[control]\nmode = "0666"\nadmin_group = "{group.gr_name}"\n')
        self.start()
        change = ("PATCH", "/v1/vgpus/web0", '{"compute": 42}')
        assert self.as_user(12345, [], "GET", "/v1/vgpus") == 200
        assert self.as_user(12345, [], *change) == 403
        assert self.as_user(12345, [], "DELETE", "/v1/vgpus/web0") == 403
        assert self.as_user(12345, [], "POST", "/v1/shutdown") == 403
        assert self.show("web0")["compute"] != 42
        assert self.as_user(12345, [group.gr_gid], *change) == 200
        assert self.show("web0")["compute"] == 42
        log = self.log_text()
        assert "audit: user 12345" in log and "may not DELETE /v1/vgpus/web0" in log
        line = next(line for line in log.splitlines() if "audit" in line and "PATCH" in line and ": 200, " in line)
        before, _, after = line.partition(", from ")[2].partition(", to ")
        assert '"compute":42' in after and '"compute":42' not in before

    def connect_as(self, uid, groups, name="web0", kind="direct"):
        """What comes of a user's connection: the first words of the answer, or the error of connect."""
        script = ("import socket, struct, sys\n"
                  "direct = sys.argv[2] == 'direct'\n"
                  "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET if direct else socket.SOCK_STREAM)\n"
                  "s.settimeout(10)\n"
                  "try:\n"
                  "    s.connect(sys.argv[1])\n"
                  "except OSError as error:\n"
                  "    sys.exit(print('connect', error.errno))\n"
                  "if direct:\n"
                  "    release = map(int, sys.argv[3].split('.'))\n"
                  "    s.send(struct.pack('<II3H26sII16s', 1, 1, *release, b'', 0, 0, b'test'))\n"
                  "    reply = s.recv(4096)\n"
                  "    print('reply', struct.unpack_from('<I', reply)[0], reply[4:].split(b'\\0\\0')[-1] or reply)\n"
                  "else:\n"
                  "    s.settimeout(1)\n"
                  "    try:\n"
                  "        print('end' if s.recv(1) == b'' else 'data')\n"
                  "    except TimeoutError:\n"
                  "        print('stays')\n")
        release = self.show(name)["live"]["release"]
        command = ["/usr/bin/python3", "-c", script, self.folder / "run" / name / f"{kind}.sock", kind, release]
        return subprocess.run(command, user=uid, group=uid, extra_groups=groups, capture_output=True, text=True,
                              check=True, cwd="/").stdout.strip()

    def test_an_owner_alone_uses_a_virtual_gpu(self):
        if os.geteuid() != 0:
            pytest.skip("only root can be another user")
        (self.folder / "run").chmod(0o755)
        alice, group = pwd.getpwnam("daemon"), grp.getgrnam("games")
        self.refused(1, "this host has no user 'no-such-user'", "create", "web0", "--memory", "1G", "--owner",
                     "no-such-user")
        self.refused(1, "this host has no group 'no-such-group'", "create", "web0", "--memory", "1G", "--owner",
                     "@no-such-group")
        self.refused(1, "it has no mode or group beside", "create", "web0", "--memory", "1G", "--owner", "daemon",
                     "--direct-group", "games")
        assert "for daemon" in self.ok("create", "web0", "--memory", "1G", "--owner", "daemon")
        assert re.search(r"owner +daemon\n", self.ok("show", "web0"))
        assert self.connect_as(alice.pw_uid, []).startswith("reply 0")
        assert self.connect_as(alice.pw_uid, [], kind="vfio") == "stays"
        for kind in ("direct", "vfio"):
            assert self.connect_as(12345, [group.gr_gid], kind=kind) == "connect 13"
        # Whoever gets past the file's permissions is known by the kernel's word.
        for kind in ("direct", "vfio"):
            (self.folder / "run/web0" / f"{kind}.sock").chmod(0o666)
        assert self.connect_as(12345, [group.gr_gid]).startswith("reply 13")
        assert self.connect_as(12345, [group.gr_gid], kind="vfio") == "end"
        assert "user 12345 is not it" in (self.folder / "run/web0/session.log").read_text()
        # Another owner, while the session runs, and after a restart.
        assert "is @games's alone" in self.ok("set", "web0", "--owner", "@games")
        self.daemon.terminate()
        self.daemon.wait(10)
        self.start()
        assert until(lambda: self.show("web0")["live"])
        assert self.show("web0")["owner"] == "@games"
        assert self.connect_as(12345, [group.gr_gid]).startswith("reply 0")
        assert self.connect_as(alice.pw_uid, []) == "connect 13"
        self.refused(1, "no user 'nobody-here'", "set", "web0", "--owner", "nobody-here")
        self.ok("set", "web0", "--owner", "none")
        (self.folder / "run/web0/direct.sock").chmod(0o666)
        assert self.connect_as(12345, []).startswith("reply 0")

    def test_a_domain_takes_the_vm_socket_from_its_owner(self):
        if os.geteuid() != 0:
            pytest.skip("only root can be another user")
        self.ok("create", "web0", "--memory", "1G", "--owner", "games")
        self.ctl("shutdown", "--force")
        self.daemon.wait(10)
        self.config.write_text(self.config.read_text() + '[vm]\nuser = "daemon"\n')
        self.start()
        sockets = [self.folder / "run/web0" / name for name in ("vfio.sock", "direct.sock")]
        assert until(lambda: all(path.exists() for path in sockets))

        def owners():
            return [pwd.getpwuid(path.stat().st_uid).pw_name for path in sockets]

        assert owners() == ["games", "games"]
        self.ok("attach", "web0", "guest", "--record-only")
        assert owners() == ["daemon", "games"]
        self.ok("detach", "web0", "--record-only")
        assert owners() == ["games", "games"]

    def test_the_audit_says_from_what_to_what(self):
        self.ok("create", "web0", "--memory", "1G")
        self.ok("scheduler", "set", "--policy", "fifo")
        self.ctl("set", "web0", "--memory", "64G")
        self.ok("destroy", "web0")
        lines = [line.partition("audit: ")[2] for line in self.log_text().splitlines() if "audit: " in line]
        made, scheduled, refused, ended = lines[:4]
        assert ", from nothing, to {" in made and '"name":"web0"' in made
        before, _, after = scheduled.partition(", to ")
        assert '"policy":"band+"' in before and '"policy":"fifo"' in after
        assert ": 409, nothing changed" in refused
        assert ended.endswith(", to nothing")
        assert made.startswith(f"user {pwd.getpwuid(os.geteuid()).pw_name} ({os.geteuid()}) (pid ")

    def test_xml(self):
        self.ok("create", "web0", "--memory", "1G")
        text = self.ctl("xml", "web0")
        if "without libvirt" in text.stderr:
            pytest.skip("built without libvirt")
        assert str(self.folder / "run" / "web0" / "vfio.sock") in text.stdout

    def test_a_gpu_is_chosen_by_configuration(self):
        status = json.loads(self.ok("status", "--json"))["device"]
        assert (status["id"], status["kind"], status["index"]) == ("soft", "soft", 0)
        self.ok("create", "web0", "--memory", "1G")
        self.ok("shutdown")
        self.daemon.wait(10)
        self.replace("bandsaw-runner", f"""#!/bin/sh
if [ "$1" = --probe ]; then echo '{{"name":"Test GPU","uuid":"GPU-1","memory":{4 << 30},"driver":"13000"}}'; exit; fi
if [ "$1" = --watch-gpu ]; then exit 1; fi
mkdir -p "$BANDSAW_CACHE"; env > "$BANDSAW_CACHE/new.$$" && mv "$BANDSAW_CACHE/new.$$" "$BANDSAW_CACHE/environment"
exec {RUNNER}
""")
        self.config.write_text('[device]\nname = "cuda"\nindex = 1\n')
        self.environment |= {"CUDA_MODULE_LOADING": "LAZY", "LD_LIBRARY_PATH": "/nonexistent", "SECRET": "x"}
        self.start()
        assert "Test GPU" in self.ok("status")
        status = json.loads(self.ok("status", "--json"))["device"]
        assert ((status["id"], status["kind"], status["index"], status["name"], status["memory"]) ==
                ("cuda:1", "cuda", 1, "Test GPU", 4 << 30))
        # One of another device is kept and not started.
        assert self.show("web0")["session"]["state"] == "none"
        self.ok("destroy", "web0")
        self.refused(1, "on device 'cuda:1'", "create", "web1", "--memory", "5G")
        self.ok("create", "web1", "--memory", "1G")
        assert self.show("web1")["device"] == "cuda:1"
        self.direct("web1").close()
        lines = (self.folder / "state/vgpus/web1/cache/environment").read_text().splitlines()
        for line in ("BANDSAW_DEVICE=cuda:0", "CUDA_VISIBLE_DEVICES=GPU-1", "CUDA_MODULE_LOADING=LAZY",
                     "LD_LIBRARY_PATH=/nonexistent"):
            assert line in lines
        assert "SECRET=x" not in lines

    def test_a_gpu_that_is_not_there_is_said_clearly(self):
        self.config.write_text('[device]\nname = "cuda"\n')
        self.replace("bandsaw-runner",
                     "#!/bin/sh\necho 'no libcuda.so.1 of an NVIDIA driver was found' >&2; exit 1\n")
        second = self.spawn()
        assert second.wait(10) == 1
        assert "no libcuda.so.1 of an NVIDIA driver was found" in self.log_text()
        self.config.write_text("")

    def test_stop_sessions(self):
        self.ok("create", "web0", "--memory", "1G")
        session = self.show("web0")["session"]["pid"]
        assert subprocess.run([VGPUD, "--config", self.config, "--stop-sessions"], env=self.environment,
                                        check=False, timeout=60).returncode == 0
        self.daemon.wait(10)
        assert not alive(session)
        self.start()
        assert [view["name"] for view in json.loads(self.ok("list", "--json"))] == ["web0"]
