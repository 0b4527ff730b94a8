"""A vgpud of one's own with its sessions, and runners that only speak the link's language, for tests."""
import http.client
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import time

import pytest

from lab.paths import BUILD

VGPUD, SESSION = BUILD / "backend/vgpud/vgpud", BUILD / "backend/session/bandsaw-session"
LOG = BUILD / "backend/session/bandsaw-log"
VGPUCTL, RUNNER = BUILD / "tools/vgpuctl/vgpuctl", BUILD / "tests/unit/session/fake_runner"


def alive(pid: int) -> bool:
    """Whether the process runs; one that nobody reaps is dead."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(condition, seconds: float = 10):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.02)
    return condition()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("bandsaw", timeout=10)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class DaemonCase:
    """Test classes that derive from it have a vgpud for each of their tests."""
    daemon: subprocess.Popen

    @pytest.fixture(autouse=True)
    def _daemon(self):
        self.clients: list[socket.socket] = []
        self.make_folder()
        self.start()
        yield
        self.end()
        for client in self.clients:
            client.close()

    def make_folder(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bandsaw-test-"))
        self.folder.chmod(0o755)
        self.libexec = self.folder / "libexec"
        self.libexec.mkdir()
        for program in (SESSION, LOG):
            (self.libexec / program.name).symlink_to(program)
        (self.libexec / "bandsaw-runner").symlink_to(RUNNER)
        self.config = self.folder / "vgpud.toml"
        self.config.write_text('[device]\nmemory = "16G"\n')
        self.environment = {**os.environ, "BANDSAW_RUN": str(self.folder / "run"), "BANDSAW_LOG": "debug",
                            "BANDSAW_STATE": str(self.folder / "state"), "BANDSAW_LIBEXEC": str(self.libexec),
                            "LIBVIRT_DEFAULT_URI": "test:///default"}
        self.log = open(self.folder / "log", "w+")

    def replace(self, program, script):
        """A script instead of a program of vgpud's, from its next start on."""
        path = self.libexec / program
        path.unlink()
        path.write_text(script)
        path.chmod(0o755)

    def end(self):
        if self.daemon.poll() is not None:
            self.start()
        self.ctl("shutdown", "--force")
        self.daemon.wait(10)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        self.daemon = self.spawn()
        assert until(lambda: self.ctl("status").returncode == 0), self.log_text()

    def spawn(self):
        config = self.config.read_text()
        if not (self.libexec / "bandsaw-runner").is_symlink() and "[sandbox]" not in config:
            # A script needs a shell, which is in no runner's root.
            self.config.write_text(config + '\n[sandbox]\nmode = "off"\n')
        return subprocess.Popen([VGPUD, "--config", self.config], env=self.environment, stderr=self.log)

    def log_text(self):
        return (self.folder / "log").read_text()

    def ctl(self, *arguments):
        return subprocess.run([VGPUCTL, *arguments], env=self.environment, capture_output=True, text=True, timeout=60,
                              check=False)

    def ok(self, *arguments):
        result = self.ctl(*arguments)
        assert result.returncode == 0, result.stderr + self.log_text()
        return result.stdout

    def refused(self, code, text, *arguments):
        result = self.ctl(*arguments)
        assert result.returncode == code, result.stdout + result.stderr
        assert text in result.stderr
        quiet = self.ctl(*arguments, "--json")
        assert quiet.returncode == code
        assert text in "\n".join(json.loads(quiet.stdout).values())

    def show(self, name):
        return json.loads(self.ok("show", name, "--json"))

    def direct(self, name, process=1, comm=b"test"):
        """A guest process; the socket is its life."""
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.clients.append(client)
        client.settimeout(10)
        client.connect(str(self.folder / "run" / name / "direct.sock"))
        release = [int(part) for part in self.show(name)["live"]["release"].split(".")]
        client.send(struct.pack("<II3H26sII16s", 1, process, *release, b"", 0, 0, comm))
        reply, descriptors, _, _ = socket.recv_fds(client, 4096, 8)
        for descriptor in descriptors:
            os.close(descriptor)
        assert struct.unpack_from("<I", reply)[0] == 0, reply
        assert len(descriptors) == 2
        return client

    def http(self, method, target, body=b""):
        connection = UnixConnection(str(self.folder / "run" / "control.sock"))
        try:
            connection.request(method, target, body)
            response = connection.getresponse()
            return response.status, response.read()
        except BrokenPipeError:
            return 413, b""  # hung up on before the body's end
        finally:
            connection.close()
