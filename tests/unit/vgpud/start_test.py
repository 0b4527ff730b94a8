"""How vgpud begins and ends: its command line, its configuration, and whoever started it."""
import ctypes
import errno
import os
import pathlib
import signal
import socket
import struct
import subprocess

import pytest

from daemon_case import VGPUD, DaemonCase, UnixConnection, until


def vgpud(*arguments) -> tuple[int, str]:
    done = subprocess.run([VGPUD, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("wrong", [["--bogus"], ["more"], ["--config"]])
def test_wrong_usage(wrong):
    status, said = vgpud(*wrong)
    assert status == 2 and said.startswith("vgpud: ") and said.endswith("see `vgpud --help`\n"), said


def test_a_configuration_is_checked_and_nothing_else_is_done(tmp_path):
    file = tmp_path / "vgpud.toml"
    file.write_text('[scheduler]\npolicy = "fifo"\n')
    assert vgpud("--config", file, "--check-config") == (0, "")
    file.write_text('[scheduler]\npolicy = "most"\n')
    status, said = vgpud("--config", file, "--check-config")
    assert status == 2 and f"{file}:2:10: 'scheduler.policy' is wrong" in said, said
    status, said = vgpud("--config", tmp_path, "--check-config")
    assert status == 2 and f"{tmp_path} is a folder" in said, said


def test_who_may_not_make_its_folders_hears_what_to_do(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    folder = tmp_path / "roots"
    folder.mkdir()
    variables = {**os.environ, "BANDSAW_RUN": str(folder / "run"), "BANDSAW_STATE": str(folder / "state")}
    run = subprocess.run([VGPUD, "--config", "/dev/null"], user=65534, group=65534, extra_groups=[], env=variables,
                         capture_output=True, text=True, check=False, timeout=60, cwd="/")
    assert run.returncode == 1 and "become root, or name folders of yours" in run.stderr, run.stderr


def forbid_network():
    """In this process and its children, as systemd's RestrictAddressFamilies=AF_UNIX does."""
    af_inet, number_of_socket, refuse, allow = socket.AF_INET, 41, 0x00050000 | errno.EAFNOSUPPORT, 0x7FFF0000
    load, equal, end = 0x20, 0x15, 0x06  # of the number, then of the first argument
    program = b"".join(struct.pack("=HBBI", *line) for line in [
        (load, 0, 0, 0), (equal, 0, 3, number_of_socket), (load, 0, 0, 16), (equal, 0, 1, af_inet), (end, 0, 0, refuse),
        (end, 0, 0, allow)])
    lines = ctypes.create_string_buffer(program, len(program))
    filters = struct.pack("HP", len(program) // 8, ctypes.addressof(lines))
    call = ctypes.CDLL(None, use_errno=True).prctl
    no_new_privileges, set_seccomp, by_filter = 38, 22, 2
    assert call(no_new_privileges, 1, 0, 0, 0) == 0 and call(set_seccomp, by_filter, filters, 0, 0) == 0


def test_a_unit_without_a_network_says_what_metrics_need(tmp_path):
    file = tmp_path / "vgpud.toml"
    file.write_text('[metrics]\nlisten = "127.0.0.1:9495"\n')
    done = subprocess.run([VGPUD, "--config", file, "--check-config"], preexec_fn=forbid_network, capture_output=True,
                          text=True, check=False, timeout=60)
    assert done.returncode == 2 and "/usr/share/bandsaw/systemd/network.conf" in done.stderr, done.stderr
    assert vgpud("--config", file, "--check-config") == (0, "")


class TestStart(DaemonCase):
    @pytest.mark.parametrize("abstract", [False, True])
    def test_a_service_manager_hears_once_it_answers(self, abstract):
        self.ok("shutdown")
        self.daemon.wait(10)
        name = f"\0{self.folder}" if abstract else str(self.folder / "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(name)
            manager.settimeout(10)
            self.environment["NOTIFY_SOCKET"] = name.replace("\0", "@")
            self.daemon = self.spawn()
            assert manager.recv(100) == b"READY=1"
            self.ok("status")
        self.ok("create", "web0", "--memory", "1G")
        session = pathlib.Path(f"/proc/{self.show('web0')['session']['pid']}/environ").read_bytes()
        assert b"NOTIFY_SOCKET" not in session

    def test_groups_that_this_host_does_not_have(self):
        if os.geteuid() != 0:
            pytest.skip("only root gives sockets to groups")
        self.refused(1, "this host has no group 'no-such'", "create", "web0", "--memory", "1G", "--direct-group",
                     "no-such")
        assert not any(f"({key})" in self.log_text() for key in ("direct.group", "vm.group", "vm.user"))  # built in
        self.daemon.terminate()
        self.daemon.wait(10)
        self.config.write_text(self.config.read_text() + '[direct]\ngroup = "nobody-1"\n'
                               '[vm]\ngroup = "nobody-2"\nuser = "nobody-3"\n[control]\nadmin_group = "nobody-4"\n')
        self.start()
        for said in ("no group 'nobody-1' (direct.group)", "no group 'nobody-2' (vm.group)",
                     "no user 'nobody-3' (vm.user)", "no group 'nobody-4' (control.admin_group)"):
            assert said in self.log_text()

    def test_nothing_is_changed_while_it_ends(self):
        self.ok("create", "web0", "--memory", "1G")
        session = self.show("web0")["session"]["pid"]
        os.kill(session, signal.SIGSTOP)
        try:
            connections = [UnixConnection(str(self.folder / "run/control.sock")) for _ in range(2)]
            connections[0].request("POST", "/v1/shutdown", "{}", {"Content-Type": "application/json"})
            assert until(lambda: "asked to end every session" in self.log_text())
            connections[1].request("DELETE", "/v1/vgpus/web0?force=1")
            reply = connections[1].getresponse()
            assert (reply.status, b"vgpud is ending" in reply.read()) == (503, True)
        finally:
            os.kill(session, signal.SIGCONT)
        self.daemon.wait(20)
        self.start()
        assert self.show("web0")["name"] == "web0"

    def test_another_one_may_begin_after_a_shutdown(self):
        for _ in range(5):
            assert self.ok("shutdown") == "vgpud and all sessions have ended\n"
            assert not (self.folder / "run/control.sock").exists()
            ended, self.daemon = self.daemon, self.spawn()
            assert until(lambda: self.ctl("status").returncode == 0), self.log_text()
            ended.wait(10)
