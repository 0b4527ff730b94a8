"""What vgpud and vgpuctl say of themselves: manual pages, the sample configuration, completion, doctor."""
import json
import os
import pathlib
import re
import subprocess

from daemon_case import VGPUCTL, VGPUD, DaemonCase
from lab.paths import REPO


def output(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pages(folder: pathlib.Path) -> dict[str, str]:
    """Each page as a terminal shows it. troff finds nothing to complain of."""
    output(VGPUCTL, "--write-manual", folder)
    output(VGPUD, "--write-manual", folder)
    shown = {}
    for page in sorted(folder.glob("man*/*")):
        done = subprocess.run(["groff", "-man", "-Tascii", "-P-cbou", "-ww", "-rLL=900n", str(page)], check=True,
                              capture_output=True, text=True)
        assert done.stderr == "", page
        shown[page.name] = done.stdout
    return shown


def test_pages_say_what_help_says(tmp_path):
    shown = pages(tmp_path)
    assert {"vgpud.8", "vgpud.toml.5", "vgpuctl.1", "vgpuctl-create.1", "vgpuctl-scheduler-set.1"} <= shown.keys()
    assert "vgpuctl-create - make a virtual GPU" in shown["vgpuctl-create.1"]
    for name, page in shown.items():
        if not name.startswith("vgpuctl"):
            continue
        said = output(VGPUCTL, *name.removesuffix(".1").split("-")[1:], "--help")
        for option in re.findall(r"^ +(?:-\w,)?(--[\w-]+)", said, re.MULTILINE):
            assert option in page, f"{option} is not in {name}"
    for key in ("run = \"/run/bandsaw\"", "scheduler.period_ms = 30", "cgroup.memory = \"auto\""):
        assert key in shown["vgpud.toml.5"]
    assert "corun_mode" not in shown["vgpud.toml.5"], "a key of earlier versions"


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "man1").write_text("")
    done = subprocess.run([VGPUCTL, "--write-manual", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "cannot write vgpuctl(1): Not a directory" in done.stderr


def test_the_sample_is_in_the_administrators_page():
    page = (REPO / "backend/vgpud/administration.md").read_text()
    sample = "".join(f"    {line}".rstrip() + "\n" for line in output(VGPUD, "--print-config").splitlines())
    assert sample in page, "put the output of `vgpud --print-config` into administration.md"


class TestCompletion(DaemonCase):
    def words(self, *typed: str) -> set[str]:
        lines = self.ok("complete-words", "--", *typed).splitlines()
        return {line.split("\t")[0] for line in lines}

    def test_words(self):
        self.ok("create", "web0", "--memory", "1G")
        self.ok("create", "db0", "--memory", "1G")
        assert self.words("s") == {"save", "scheduler", "segment", "set", "show", "shutdown", "status", "suspend"}
        assert self.words("show", "") == {"db0", "web0"}
        assert self.words("show", "w") == {"web0"}
        assert self.words("attach", "web0", "") == {"test"}, "libvirt's domain"
        assert self.words("set", "web0", "--com") == {"--compute"}
        assert self.words("set", "web0", "--sharing", "t") == {"time-sliced"}
        assert self.words("set", "web0", "--group", "") == {"alone"}
        assert self.words("set", "--sharing", "mps", "d") == {"db0"}
        assert self.words("create", "x", "--gpu", "") == {"soft"}
        assert self.words("scheduler", "") == {"set", "show"}
        assert self.words("segment", "") == {"create", "destroy", "grant", "list", "revoke"}
        self.ok("segment", "create", "frames", "--vgpu", "db0", "--size", "2M")
        assert self.words("segment", "grant", "") == {"frames"}
        assert self.words("segment", "grant", "frames", "w") == {"web0"}
        assert not self.words("list", "x")

    def test_bash_asks_for_them(self):
        self.ok("create", "web0", "--memory", "1G")
        script = self.ok("completion", "bash")
        done = subprocess.run(
            ["bash", "-c", script + 'COMP_WORDS=(vgpuctl show we); COMP_CWORD=2; _vgpuctl; echo "${COMPREPLY[@]}"'],
            capture_output=True, text=True, check=True,
            env=self.environment | {"PATH": f"{VGPUCTL.parent}:{os.environ['PATH']}"})
        assert done.stdout.split() == ["web0"]

    def test_other_shells(self):
        assert self.ok("completion", "zsh").startswith("#compdef vgpuctl")
        assert "complete -c vgpuctl" in self.ok("completion", "fish")
        self.refused(2, "no completion for 'tcsh'", "completion", "tcsh")

    def test_nobody_answers(self):
        assert self.words("--run", "/nonexistent", "show", "") == set()


class TestDoctor(DaemonCase):
    def test_this_host(self):
        done = self.ctl("doctor", "--json")
        findings = {finding["what"]: finding for finding in json.loads(done.stdout)}
        assert findings["vgpud"]["verdict"] == "good"
        assert findings["libvirt"]["verdict"] == "good", "its test driver answers"
        assert findings["device soft"]["found"] == "runs kernels on the CPU"
        assert done.returncode == int(any(finding["verdict"] == "bad" for finding in findings.values()))
        for finding in findings.values():
            assert (finding["to_do"] == "") == (finding["verdict"] == "good"), finding
        assert "runs kernels on the CPU" in self.ctl("doctor").stdout
