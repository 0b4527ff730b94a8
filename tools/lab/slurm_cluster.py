"""A Slurm cluster on this machine: a controller, its database, and nodes that are each a slurmd and a vgpud."""
import collections.abc
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

from lab import host, overlay_root
from lab.paths import BUILD, REPO, cache, lab_dir
from lab.shell import Failure, need_root, wait_until

PACKAGES = """slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins munge mariadb-server iproute2""".split()
USERS = ("alice", "bob")  # whose jobs there are
MAKE_USERS = "".join(f"useradd --uid {20001 + number} --create-home {name}\n" for number, name in enumerate(USERS))
PLUGINS = BUILD / "tools/fleet/slurm"
NODE_PROGRAM = PLUGINS / "bandsaw-slurm"
MEMORY_MIB = 4096  # of each node's software device
START_SECONDS = 30

SLURM_CONF = """ClusterName=bandsaw
SlurmctldHost=cluster(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd-%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
KillWait=2
MinJobAge=300
SchedulerParameters=bf_interval=2,batch_sched_delay=0,sched_min_interval=10000
JobAcctGatherType=jobacct_gather/none
# What Bandsaw needs
PluginDir=/usr/lib/x86_64-linux-gnu/slurm-wlm:{plugins}
JobSubmitPlugins=bandsaw
PrologFlags=Alloc
GresTypes=vgpu,vgpumem,vgpucompute,vgpucopy
HealthCheckProgram=/etc/slurm/health
HealthCheckInterval={health}
"""
ACCOUNTING = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStorageTRES=gres/vgpu,gres/vgpumem,gres/vgpucompute,gres/vgpucopy
AccountingStoreFlags=job_comment
"""
SLURMDBD_CONF = """DbdHost=localhost
SlurmUser=slurm
AuthType=auth/munge
StorageType=accounting_storage/mysql
StorageLoc=slurm_acct_db
StorageUser=slurm
StoragePass=slurm
PidFile=/run/slurmdbd.pid
LogFile=/var/log/slurm/slurmdbd.log
"""
# Each node of this cluster has a vgpud of its own, in folders with the node's name.
PLUGSTACK = """required {plugins}/bandsaw.so run=/run/bandsaw/%n jobs=/run/bandsaw-slurm-%n program={program} \
libraries={libraries}
"""
NODE = "CPUs=16 RealMemory=1000"
# What bandsaw-slurm writes down of a job, for nodes without a vgpud: begin --run RUN --jobs JOBS --job JOB --node NODE
STAND_IN = """#!/bin/sh
case $1 in
  begin) mkdir -p $5; echo "{\\"vgpus\\":[\\"slurm-$7\\"],\\"request\\":\\"${13}\\",\\"refusal\\":\\"\\"}" >$5/$7 ;;
  end) rm -f $5/$7 ;;
esac
"""
HEALTH = """#!/bin/sh
exec {program} --run /run/bandsaw/$SLURMD_NODENAME --jobs /run/bandsaw-slurm-$SLURMD_NODENAME tidy
"""
# Slurm looks for addresses only where there is another one than the loopback's own.
UP = """set -e
hostname cluster
ip link set lo up
ip address add 10.77.0.1/32 dev lo
touch /run/up
exec sleep infinity
"""
VGPUD_TOML = """[device]
name = "soft"
memory = "{memory}M"
[session]
warm_runners = 1
"""


class Cluster:
    """Needs root. What is written in its root is gone afterwards."""

    def __init__(self, nodes: int = 3, accounting: bool = True, health_seconds: int = 2, simulated: bool = False):
        """`simulated`: nodes have no vgpud, and what a job is given there is only written down."""
        need_root("a Slurm cluster in a root of its own")
        if not (PLUGINS / "bandsaw.so").exists():
            raise Failure("Slurm's plugins are not built: install libslurm-dev and build again (tools/setup)")
        self.nodes = [f"n{index}" for index in range(nodes)]
        self._accounting, self._simulated = accounting, simulated
        self._health = 0 if simulated else health_seconds
        self._daemons: dict[str, subprocess.Popen] = {}
        packages = overlay_root.layer("slurm", PACKAGES, MAKE_USERS, "(about 400 MB, a minute)")
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="slurm-", dir=lab_dir()))
        self.log = self._folder / "cluster.log"
        self._output = self.log.open("ab")
        self._leader = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--net", "--uts", "--fork", "--kill-child", "bash", "-c",
             overlay_root.ENTER, "enter", packages, self._folder, "--", "sh", "-c",
             UP],
            stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output,
            env=overlay_root.environment(REPO, cache().resolve()))
        self._pid = 0
        try:
            wait_until(self._is_up, START_SECONDS, "the cluster's root")
            self._start()
        except Failure as failure:
            evidence = self.evidence()
            self.close()
            raise Failure(f"{failure}\n{evidence}") from failure
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _is_up(self) -> bool:
        children = pathlib.Path(f"/proc/{self._leader.pid}/task/{self._leader.pid}/children")
        if self._leader.poll() is not None:
            raise Failure(f"the cluster's root cannot be made:\n{self.log.read_text(errors='replace')[-1000:]}")
        found = children.read_text().split()
        self._pid = int(found[0]) if found else 0
        return self._pid != 0 and (self.path("/run/up")).exists()

    def path(self, inside: str) -> pathlib.Path:
        """A file of the cluster's root, as this process reaches it."""
        return pathlib.Path(f"/proc/{self._pid}/root{inside}")

    def command(self, words: list, user: str = "root") -> list[str]:
        become = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        place = "/root" if user == "root" else f"/home/{user}" if user in USERS else "/"
        return ["nsenter", f"--target={self._pid}", "--mount", "--pid", "--net", "--uts", "--root", f"--wdns={place}",
                *become, "/usr/bin/env", "-i", f"HOME={place}", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
                *map(str, words)]

    def try_(self, *words, user: str = "alice", timeout: float = 60) -> subprocess.CompletedProcess:
        """A command there, with its output and errors together."""
        return subprocess.run(self.command(list(words), user), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False, timeout=timeout)

    def run(self, *words, user: str = "alice", timeout: float = 60) -> str:
        """The output of a command that must succeed."""
        done = self.try_(*words, user=user, timeout=timeout)
        if done.returncode != 0:
            raise Failure(f"`{' '.join(map(str, words))}` ended with {done.returncode}:\n{done.stdout[-2000:]}\n"
                          f"{self.evidence()}")
        return done.stdout

    def start(self, *words, user: str = "alice") -> subprocess.Popen:
        return subprocess.Popen(self.command(list(words), user), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace")

    def _daemon(self, name: str, *words, user: str = "root") -> None:
        self._daemons[name] = subprocess.Popen(self.command(list(words), user), stdin=subprocess.DEVNULL,
                                               stdout=self._output, stderr=self._output)

    def _write(self, inside: str, text: str, mode: int = 0o644, user: str = "root") -> None:
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        if user != "root":
            self.run("chown", user, inside, user="root")

    def _start(self) -> None:
        self._write("/etc/hosts", "127.0.0.1 localhost cluster\n")
        for folder, user in {"/run/munge": "munge", "/var/log/munge": "munge", "/var/lib/munge": "munge",
                             "/var/log/slurm": "slurm", "/var/spool/slurmctld": "slurm"}.items():
            self.run("install", "-d", "-o", user, folder, user="root")
        self.run("sh", "-c", "test -s /etc/munge/munge.key || mungekey --create; chown munge /etc/munge/munge.key",
                 user="root")
        self.run("munged", user="munge")
        for node in self.nodes[:1 if self._simulated else None]:
            self.start_vgpud(node)
        if self._accounting:
            self._start_database()
        self._configure()
        self.start_controller()
        if self._simulated:
            script = f"for node in {' '.join(self.nodes)}; do slurmd -N $node; done"
            self.run("sh", "-c", script, user="root", timeout=300)
        else:
            for node in self.nodes:
                self.start_slurmd(node)
        wait_until(self._idle, START_SECONDS, f"the start of {len(self.nodes)} nodes")

    def _gres(self, node: str) -> tuple[str, str]:
        """Lines for gres.conf, and the word for the node's line in slurm.conf."""
        asked = self.nodes[0] if self._simulated else node
        said = self.run(NODE_PROGRAM, "gres", "--run", f"/run/bandsaw/{asked}", "--node", node, user="root")
        of_gres, of_slurm = said.split("# slurm.conf\n")
        match = re.search(r"Gres=\S+", of_slurm)
        assert match, said
        return of_gres, match[0]

    def _configure(self) -> None:
        lines = SLURM_CONF.format(plugins=PLUGINS, health=self._health) + (ACCOUNTING if self._accounting else "")
        gres = ""
        for index, node in enumerate(self.nodes):
            of_gres, word = self._gres(node)
            gres += of_gres
            lines += f"NodeName={node} NodeHostname=cluster NodeAddr=127.0.0.1 Port={17000 + index} {NODE} {word}\n"
        lines += "PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE\n"
        program = "/etc/slurm/stand-in" if self._simulated else NODE_PROGRAM
        self._write("/etc/slurm/slurm.conf", lines)
        self._write("/etc/slurm/gres.conf", gres)
        self._write("/etc/slurm/plugstack.conf", PLUGSTACK.format(plugins=PLUGINS, program=program,
                                                                  libraries=BUILD / "guest-driver/libcuda"))
        self._write("/etc/slurm/health", HEALTH.format(program=NODE_PROGRAM), 0o755)
        self._write("/etc/slurm/stand-in", STAND_IN, 0o755)

    def _start_database(self) -> None:
        self.run("install", "-d", "-o", "mysql", "/run/mysqld", user="root")
        self._daemon("mariadbd", "mariadbd", "--user=mysql", "--skip-networking", "--innodb-flush-log-at-trx-commit=0")
        wait_until(lambda: self.try_("mariadb", "-e", "select 1", user="root").returncode == 0, START_SECONDS,
                   "the start of MariaDB")
        self.run("mariadb", "-e", "create user slurm@localhost identified by 'slurm'; "
                 "grant all on slurm_acct_db.* to slurm@localhost", user="root")
        self._write("/etc/slurm/slurmdbd.conf", SLURMDBD_CONF, 0o600, "slurm")
        self._daemon("slurmdbd", "slurmdbd", "-D")
        # It looks for slurm.conf when it is asked.
        self._write("/etc/slurm/slurm.conf", SLURM_CONF.format(plugins=PLUGINS, health=0) + ACCOUNTING +
                    "NodeName=none\nPartitionName=none Nodes=none\n")
        wait_until(lambda: self.try_("sacctmgr", "-i", "add", "cluster", "bandsaw", user="root").returncode == 0,
                   START_SECONDS, "the start of slurmdbd")

    def start_controller(self) -> None:
        self._daemon("slurmctld", "slurmctld", "-D")
        wait_until(lambda: self.try_("scontrol", "ping").returncode == 0, START_SECONDS, "the start of slurmctld")

    def start_slurmd(self, node: str) -> None:
        self._daemon(f"slurmd-{node}", "slurmd", "-D", "-N", node)

    def start_vgpud(self, node: str) -> None:
        run, state = f"/run/bandsaw/{node}", f"/var/lib/bandsaw/{node}"
        self.run("mkdir", "-p", run, state, user="root")
        self._write(f"/etc/bandsaw/{node}.toml", VGPUD_TOML.format(memory=MEMORY_MIB))
        self._daemon(f"vgpud-{node}", "env", f"BANDSAW_RUN={run}", f"BANDSAW_STATE={state}",
                     f"BANDSAW_LIBEXEC={BUILD / 'backend'}", host.built("backend/vgpud/vgpud"), "--config",
                     f"/etc/bandsaw/{node}.toml")
        wait_until(lambda: self.vgpuctl(node, "status").returncode == 0, START_SECONDS, f"the start of {node}'s vgpud")

    def _idle(self) -> bool:
        states = self.try_("sinfo", "-h", "-N", "-o", "%t").stdout.split()
        return len(states) == len(self.nodes) and set(states) == {"idle"}

    def _signal(self, name: str, number: signal.Signals) -> None:
        leader = self._daemons[name].pid  # nsenter, which only waits for the daemon, and stops where that stops
        for child in pathlib.Path(f"/proc/{leader}/task/{leader}/children").read_text().split():
            os.kill(int(child), number)
        if number == signal.SIGCONT:
            os.kill(leader, number)

    def kill(self, name: str) -> None:
        """A daemon by its name here: slurmctld, slurmd-n0, vgpud-n0."""
        self._signal(name, signal.SIGKILL)
        self._daemons.pop(name).wait(30)

    @contextlib.contextmanager
    def frozen(self, name: str) -> collections.abc.Iterator[None]:
        """The daemon does nothing meanwhile."""
        self._signal(name, signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(name, signal.SIGCONT)

    def await_begin(self, node: str) -> None:
        """Until a job's virtual GPU is being made there."""
        prolog = ["pgrep", "--full", f"^{NODE_PROGRAM} begin .*--run /run/bandsaw/{node} "]
        wait_until(lambda: self.try_(*prolog, user="root").returncode == 0, START_SECONDS,
                   f"a job's prolog on {node}")

    def kill_job(self, job: int) -> None:
        """What a node loses of a job when it is switched off."""
        self.try_("pkill", "--signal=KILL", "--full", rf"slurmstepd: \[{job}\.", user="root")
        self.try_("pkill", "--signal=KILL", "--euid", "alice", user="root")

    def vgpuctl(self, node: str, *words) -> subprocess.CompletedProcess:
        return self.try_("env", f"BANDSAW_RUN=/run/bandsaw/{node}", host.built("tools/vgpuctl/vgpuctl"), *words,
                         user="root")

    def vgpus(self, node: str) -> list[str]:
        """Names of the virtual GPUs that a node's vgpud has now."""
        done = self.vgpuctl(node, "list", "--json")
        return [view["name"] for view in json.loads(done.stdout)]

    def view(self, node: str, name: str) -> dict:
        return json.loads(self.vgpuctl(node, "show", name, "--json").stdout)

    def state(self, node: str) -> str:
        """As sinfo says it, without the marks behind the word."""
        return self.run("sinfo", "-h", "-n", node, "-o", "%T").strip().rstrip("*~#$@+^-%!")

    def await_node(self, node: str, state: str, seconds: float = 60) -> None:
        wait_until(lambda: self.state(node) == state, seconds, f"{node} as {state}")

    def _all(self) -> list[tuple[str, str]]:
        return [(name, node) for node in self.nodes for name in self.vgpus(node)]

    def await_vgpus(self, count: int) -> list[tuple[str, str]]:
        """The names of all virtual GPUs with their nodes, as soon as there are so many."""
        wait_until(lambda: len(self._all()) == count, START_SECONDS, f"{count} virtual GPUs on all nodes")
        return self._all()

    def await_vgpu(self) -> tuple[str, str]:
        return self.await_vgpus(1)[0]

    def await_empty(self, seconds: float = 30) -> None:
        wait_until(lambda: not self._all() and not self.run("squeue", "-h").strip(), seconds,
                   "the end of all jobs and virtual GPUs")

    def await_jobs_started(self, count: int, beside: str) -> None:
        def running() -> list[str]:
            jobs = self.run("squeue", "--noheader", "--states=RUNNING", "--format=%A").split()
            return [job for job in jobs if job != beside]
        wait_until(lambda: len(running()) == count, START_SECONDS, f"{count} jobs beside {beside}")

    def evidence(self) -> str:
        texts = [self.log.read_text(errors="replace")[-1500:]]
        for log in sorted(self.path("/var/log/slurm").glob("*.log")):
            texts.append(f"-- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-8:]))
        return "\n".join(texts)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._pid:
                os.kill(self._pid, signal.SIGKILL)  # the namespace's first process: all others end with it
        self._leader.kill()
        self._leader.wait()
        for process in self._daemons.values():
            process.wait()
        self._output.close()
        for _ in range(50):  # mounts go with the last process of the namespace
            shutil.rmtree(self._folder, ignore_errors=True)
            if not self._folder.exists():
                return
            time.sleep(0.1)
