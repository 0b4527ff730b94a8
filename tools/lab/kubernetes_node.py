"""A node's part of Kubernetes on this machine: what gives pods virtual GPUs, run by Debian's Python, and a vgpud."""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

from lab import host, overlay_root
from lab.daemon import Daemon
from lab.machine import wheels
from lab.paths import BUILD, REPO, cache, lab_dir
from lab.shell import Failure

PACKAGES = "python3-grpcio python3-protobuf python3-yaml podman crun".split()
PROGRAM = REPO / "tools/fleet/kubernetes/bandsaw-kubernetes"
LIBRARIES = (BUILD / "guest-driver/libcuda").resolve()
# Stubs of the kubelet's interfaces and models of its objects that others have written.
PYPI = ["kubernetes-pydra==0.1.0", "kubernetes==37.0.2", "grpcio==1.85.1", "protobuf==7.36.2"]


def python_folder() -> pathlib.Path:
    """For sys.path."""
    folder = cache() / ("kubernetes-" + "-".join(word.partition("==")[2] for word in PYPI))
    wheels(folder, PYPI, "about 50 MB")
    return folder


def inside(*words) -> list[str]:
    """A command beside Debian's packages, to be run in environment()."""
    packages = overlay_root.layer("kubernetes", PACKAGES, size="(about 200 MB)")
    return ["unshare", "--mount", "bash", "-c", overlay_root.ENTER, "enter", str(packages), "--", *map(str, words)]


def environment() -> dict[str, str]:
    return overlay_root.environment(REPO, cache().resolve())


class Node:
    """A vgpud with a software device of 1 GiB, the kubelet's folder, and a configuration."""

    def __init__(self, config: str, name: str = "kube", pods: str = ""):
        self._name, self._tables = name, {"device": {"memory": "1G"}}
        self._pid = 0  # of a vgpud that is frozen
        self.daemon = Daemon("soft", name=name, tables=self._tables)
        self.folder = lab_dir().resolve() / name
        self.kubelet = self.folder / "kubelet"
        shutil.rmtree(self.kubelet, ignore_errors=True)
        self.cdi = self.folder / "cdi"
        shutil.rmtree(self.cdi, ignore_errors=True)
        for part in ("device-plugins", "pod-resources", "plugins", "plugins_registry"):
            (self.kubelet / part).mkdir(parents=True)
        self.config = self.folder / "kubernetes.toml"
        self.config.write_text(config + f"""
[node]
run = "{self.daemon.run.resolve()}"
kubelet = "{self.kubelet}"
keep_seconds = 2
[pods]
libraries = "{LIBRARIES}"
cdi_folder = "{self.cdi}"
{pods}
""")
        self.log = self.folder / "kubernetes.log"
        self.log.write_bytes(b"")
        self._processes: dict[str, subprocess.Popen] = {}

    def start(self, command: str, *words: str, **variables: str) -> None:
        with self.log.open("ab") as log:
            self._processes[command] = subprocess.Popen(
                inside("/usr/bin/python3", "-B", PROGRAM, command, "--config", self.config, *words),
                env={**environment(), **variables}, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def end(self, command: str, how: int = signal.SIGTERM) -> None:
        process = self._processes.pop(command)
        process.send_signal(how)
        if process.wait(20) not in (0, -how):
            raise Failure(f"{command} ended with {process.returncode}:\n{self.log.read_text()[-2000:]}")

    def refusal(self, config: str, command: str = "device-plugin") -> str:
        """What it says of a configuration that is wrong."""
        path = self.folder / "wrong.toml"
        path.write_text(config)
        done = subprocess.run(inside("/usr/bin/python3", "-B", PROGRAM, command, "--config", path), env=environment(),
                              capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode == 2, done.stderr
        return done.stderr

    def vgpus(self) -> list[str]:
        return [view["name"] for view in self.daemon.control.need("GET", "/v1/vgpus")]

    def freeze_vgpud(self, frozen: bool) -> None:
        if frozen:
            self._pid = self.daemon.status()["pid"]
        os.kill(self._pid, signal.SIGSTOP if frozen else signal.SIGCONT)
        self._pid = self._pid if frozen else 0

    def kill_vgpud(self) -> None:
        """As it is, frozen or not; its sessions go on."""
        if not self._pid:
            self._pid = self.daemon.status()["pid"]
        os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._pid = 0

    def restart_vgpud(self) -> None:
        if self._pid or host.current_device(self.daemon.run):
            self.kill_vgpud()
        self.daemon = Daemon("soft", name=self._name, tables=self._tables, keep=True)

    def close(self) -> None:
        for command in list(self._processes):
            self.end(command)
        self.daemon.end()


# A root with a program and the libraries that it needs, and a container in it. podman wants version 2 of cgroups, and
# limits that it may set.
CONTAINER = """set -e
cdi=$1; devices=$(echo "$2" | sed 's/^/--device /; s/,/ --device /g'); root=/tmp/container; shift 2
mount -t tmpfs tmpfs /tmp
mkdir -p $root/proc $root/sys $root/dev $root/tmp $root/run /var/run/cdi
cp "$cdi"/*.json /var/run/cdi
for file in /bin/sh /usr/bin/env "$@"; do
  [ -x "$file" ] || continue
  cp --parents "$file" $root
  for library in $(ldd "$file" | grep -o '/[^ ]*'); do cp --parents -n "$library" $root; done
done
mount -t cgroup2 none /sys/fs/cgroup
exec podman --root /tmp/podman/root --runroot /tmp/podman/run --storage-driver vfs --runtime crun \
  --cgroup-manager cgroupfs run --rm --network none --cgroups disabled --ulimit nofile=1024:1024 \
  --ulimit nproc=1024:1024 $devices --rootfs $root "$@"
"""


def run_in_container(node: Node, devices: str, *words) -> subprocess.CompletedProcess:
    """A program of this machine in a container by podman and crun, with CDI devices of the node's: A,B."""
    return subprocess.run(inside("bash", "-c", CONTAINER, "container", node.cdi, devices, *words), env=environment(),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120)
