#!/usr/bin/env python3
"""Stands for nvidia-cuda-mps-control, which runs only beside NVIDIA's driver: it listens where that would, writes down
how it was started, and ends when it is told to quit. It serves nobody.

`-f`: the daemon. Without it: hands what it reads from standard input to the daemon, as the real one does.
"""
import json
import os
import pathlib
import socket
import sys


def serve(pipe: pathlib.Path) -> None:
    log = pathlib.Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]) / "control.log"
    log.write_text("the stand-in has started\n")
    variables = {name: value for name, value in os.environ.items() if name.startswith("CUDA_")}
    (pipe.parent / "started.json").write_text(json.dumps({"arguments": sys.argv[1:], "variables": variables}))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(pipe / "control"))
    listener.listen(16)
    while True:
        client, _ = listener.accept()
        if client.recv(64).strip() == b"quit":
            return


def main() -> None:
    pipe = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    if "-f" in sys.argv:
        serve(pipe)
        return
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.connect(str(pipe / "control"))
    client.send(sys.stdin.buffer.readline())


if __name__ == "__main__":
    main()
