"""A fresh Debian root with systemd as its first process, in which packages are tried: what is written there is gone
afterwards."""
import os
import pathlib
import shlex
import subprocess
import tempfile
import time

from lab import bare_root, debian_root
from lab.machine import install_packages
from lab.shell import Failure, need_root, run, wait_until

BOOT_SECONDS = 60
# Copied to the root's apt, so that what was once downloaded stays; and no question is asked.
APT = "DEBIAN_FRONTEND=noninteractive apt-get -y -q -o APT::Keep-Downloaded-Packages=true"


class BootedRoot:
    """One at a time for a release; needs root. `files` is seen there as /files."""

    def __init__(self, release: str, files: pathlib.Path):
        need_root("booting a Debian root")
        install_packages(["systemd-container"])
        lower = debian_root.fresh_root(release)
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{release}-run-", dir=debian_root.folder()))
        self.path = self._folder / "root"
        for name in ("upper", "work", "root"):
            (self._folder / name).mkdir()
        run(["mount", "-t", "overlay", "overlay", "-o",
             f"lowerdir={lower},upperdir={self._folder}/upper,workdir={self._folder}/work", self.path])
        archives = debian_root.folder() / f"{release}-archives"
        (archives / "partial").mkdir(parents=True, exist_ok=True)
        # Control groups of version 2 alone, whatever this host has: systemd of Debian 13 wants no others.
        self._console = (self._folder / "console.log").open("wb")
        self._process = subprocess.Popen(
            ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot", "--directory", self.path,
             f"--bind={archives}:/var/cache/apt/archives", f"--bind-ro={files}:/files", "--resolv-conf=replace-host"],
            env={**os.environ, "UNIFIED_CGROUP_HIERARCHY": "1"}, stdin=subprocess.DEVNULL, stdout=self._console,
            stderr=self._console)
        self._leader = 0
        try:
            wait_until(self._is_up, BOOT_SECONDS, f"the boot of {lower.name}")
        except Failure as failure:
            console = (self._folder / "console.log").read_text(errors="replace")[-1500:]
            self.close()
            raise Failure(f"{failure}\n{console}") from failure

    def __enter__(self) -> "BootedRoot":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _is_up(self) -> bool:
        children = pathlib.Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        if self._process.poll() is not None or not children.exists():
            return False
        found = children.read_text().split()
        self._leader = int(found[0]) if found else 0
        return self._leader != 0 and self._call("systemctl is-system-running").stdout.strip() in ("running", "degraded")

    def _call(self, command: str, timeout: float = 300) -> subprocess.CompletedProcess:
        return subprocess.run(["nsenter", f"--target={self._leader}", "--all", "/usr/bin/env", "-i", "HOME=/root",
                               "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "sh", "-c", command], text=True,
                              errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, timeout=timeout)

    def try_(self, command: str, timeout: float = 300) -> tuple[int, str]:
        """The shell command's exit status and output."""
        done = self._call(command, timeout)
        return done.returncode, done.stdout

    def shell(self, command: str, timeout: float = 300) -> str:
        """The output of a shell command that must succeed."""
        status, text = self.try_(command, timeout)
        assert status == 0, f"`{command}` ended with {status}:\n{text[-3000:]}"
        return text

    def apt(self, arguments: str) -> str:
        return self.shell(f"{APT} {arguments}", timeout=900)  # DKMS compiles, and archives may be slow

    def start(self, command: str, name: str) -> None:
        """A command in the background, as a unit of that name; see ended()."""
        self.shell(f"systemd-run --quiet --unit={name} --property=Type=exec sh -c {shlex.quote(command)}")

    def ended(self, name: str, seconds: float) -> str:
        """The result of what start() started, once it has ended: "success", or systemd's word for what happened."""
        deadline = time.monotonic() + seconds
        while self.try_(f"systemctl is-active {name}")[1].strip() in ("active", "activating", "deactivating"):
            assert time.monotonic() < deadline, f"{name} runs after {seconds} s"
            time.sleep(0.2)
        return self.shell(f"systemctl show --value -p Result {name}").strip()

    def close(self) -> None:
        if self._leader and self._process.poll() is None:
            self._call("systemctl poweroff --force")
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                pass
        self._process.kill()
        self._process.wait()
        self._console.close()
        bare_root.remove(self._folder)
