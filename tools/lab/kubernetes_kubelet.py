"""A real kubelet beside this machine's root: Debian has none any more, but its source of Kubernetes 1.20 builds."""
import os
import pathlib
import shutil
import signal
import subprocess

from lab import overlay_root

PACKAGES = "golang-go dpkg-dev containerd runc".split()
BUILD_KUBELET = r"""
find /etc/apt/sources.list.d -name '*.sources' -exec sed -i 's/^Types: deb$/Types: deb deb-src/' {} +
sed -n 's/^deb /deb-src /p' /etc/apt/sources.list 2>/dev/null >/tmp/source.list || true
mv /tmp/source.list /etc/apt/sources.list.d/source.list
apt-get update -qq
mkdir -p /tmp/go/src/k8s.io
cd /tmp/go/src/k8s.io
apt-get source -q --allow-unauthenticated kubernetes
mv kubernetes-*/ kubernetes
cd kubernetes
export GOPATH=/tmp/go GO111MODULE=off GOFLAGS=-p=1 GOCACHE=/tmp/go/cache HOME=/root
nice -n 19 go build -o /usr/local/bin/kubelet ./cmd/kubelet
cd /
rm -rf /tmp/go
"""
# Without an API server, and without a network but its own. A pod's containers do not start here, since no image can be
# had; it is admitted all the same, which is what device plugins are asked for.
START = """set -e
ip link set lo up
mkdir -p /var/lib/kubelet
mount --bind "$1" /var/lib/kubelet
containerd &
exec /usr/local/bin/kubelet --pod-manifest-path="$2" --container-runtime=remote \
  --container-runtime-endpoint=unix:///run/containerd/containerd.sock --hostname-override=n0 --fail-swap-on=false \
  --cgroups-per-qos=false --enforce-node-allocatable= --cgroup-driver=cgroupfs --eviction-hard= \
  --file-check-frequency=1s
"""


class Kubelet:
    """`folder`: its /var/lib/kubelet, as others reach it."""

    def __init__(self, folder: pathlib.Path, log: pathlib.Path):
        self._folder, self._log = folder, log
        self._manifests = folder.parent / "manifests"
        self._manifests.mkdir(exist_ok=True)
        for old in self._manifests.iterdir():
            old.unlink()
        self._scratch = folder.parent / "root"
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        root = overlay_root.layer("kubelet", PACKAGES, BUILD_KUBELET, "(from source, about 6 minutes)")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "bash", "-c", overlay_root.ENTER,
                 "enter", root, self._scratch, "--", "bash", "-c", START, "start", self._folder, self._manifests],
                env=overlay_root.environment(self._folder.parent), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        if self._process:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait(20)
            self._process = None

    def run_pod(self, name: str, manifest: str) -> None:
        (self._manifests / f"{name}.yaml").write_text(manifest)

    def remove_pod(self, name: str) -> None:
        (self._manifests / f"{name}.yaml").unlink()

    def pods(self) -> str:
        """What it says of its pods, as JSON."""
        assert self._process
        ask = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())"
        command = ["nsenter", f"--target={self._process.pid}", "--net", "/usr/bin/python3", "-c", ask]
        return subprocess.run([*command, "http://127.0.0.1:10255/pods"], check=True, capture_output=True, text=True,
                              timeout=20).stdout

    def said(self) -> str:
        return self._log.read_text(errors="replace")
