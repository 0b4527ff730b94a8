"""A runner that cannot load its filter of system calls serves nobody."""
import os
import socket
import subprocess

from lab.paths import BUILD

RUNNER = BUILD / "backend/runner/bandsaw-runner"

# Becomes the runner where seccomp(2) fails with EPERM, as in a container that forbids it.
LAUNCHER = """
import ctypes, os, struct, sys
socket, runner = int(sys.argv[1]), sys.argv[2]
load, jump_if_equal, give, seccomp = 0x20, 0x15, 0x06, 317
code = [(load, 0, 0, 0), (jump_if_equal, 0, 1, seccomp), (give, 0, 0, 0x00050001), (give, 0, 0, 0x7fff0000)]
instructions = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *one) for one in code))
program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(code), ctypes.addressof(instructions)))
libc = ctypes.CDLL(None)
if socket != 3:
    os.dup2(socket, 3)
os.set_inheritable(3, True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
os.execv(runner, [runner])
"""


def test_no_filter_no_service():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "BANDSAW_DEVICE": "soft", "BANDSAW_SLICES": "enabled=0"}
    with ours, theirs:
        done = subprocess.run(["/usr/bin/python3", "-c", LAUNCHER, str(theirs.fileno()), RUNNER], env=environment,
                              pass_fds=[theirs.fileno()], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert "filter of system calls" in done.stderr
