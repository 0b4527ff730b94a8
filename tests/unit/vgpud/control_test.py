"""What an administrator controls through vgpuctl and vgpud: shares, policies, top, traces, metrics, libvirt's hook."""
import concurrent.futures
import http.client
import json
import os
import pty
import re
import signal
import socket
import subprocess
import termios
import time

import pytest

from daemon_case import VGPUCTL, VGPUD, DaemonCase, until

WRONG = [
    "create web0 --memory 8X", "create web0 --memory 8G --resident 4Q", "create web0 --memory 8G --host-memory -1",
    "create web0 --memory 8G --limit apples", "create web0 --memory 8G --limit streams=many",
    "create web0 --memory 8G --idle-suspend soon", "create web0 --memory", "create web0", "create",
    "set web0 --memory 8X", "set web0", "list -o colour", "segment", "segment create s --vgpu web0 8X",
    "segment create s --vgpu", "scheduler", "scheduler set", "report web0 --last 3y", "trace --seconds soon",
    "top --interval 0", "completion fishh", "attach web0 vm --hypervisor vmm", "xml web0 --xl",
    "hook", "lst", ""]


class TestControl(DaemonCase):
    def test_shares_and_policies(self):
        said = self.ok("create", "web0", "--memory", "1G", "--compute", "50", "--copy", "30", "--cap", "80",
                       "--reserve", "20", "--priority=-5")
        assert "reserve 20 %, cap 80 %, priority -5" in said
        assert "fifo, mrq" in self.ok("scheduler", "set", "--policy", "fifo")
        assert "fifo, mrq" in self.ok("scheduler", "show")
        assert "fifo, mrq" in self.ok("status")
        assert "compute" in self.ok("show", "web0")
        self.ok("create", "web1", "--memory", "1G")
        assert (self.show("web1")["compute"], self.show("web1")["cap"]) == (1, 100)
        for value, reason in (("0", "is 0 %"), ("-5", "is -5 %"), ("101", "is 101 %"), ("51", "would sum to 101 %")):
            self.refused(1, reason, "set", "web1", "--compute", value)
        self.refused(1, "reserve of 30 % is above the cap of 20 %", "set", "web1", "--cap", "20", "--reserve", "30")
        self.refused(1, "no policy 'best'; there are band+, band, credit, fifo", "scheduler", "set", "--policy", "best")
        self.refused(2, "settings of all devices together", "set", "web1", "--policy", "band")
        self.refused(2, "settings of all devices together", "create", "web2", "--memory", "1G", "--queues", "sdq")
        self.refused(2, "nothing to set", "scheduler", "set")
        self.refused(4, "", "show", "web2")
        self.refused(2, "", "set", "web1", "--compute", "many")
        self.ok("scheduler", "set", "--queues", "sdq")
        self.daemon.terminate()
        self.daemon.wait(10)
        self.start()
        status = json.loads(self.ok("status", "--json"))
        assert (status["scheduler"]["policy"], status["scheduler"]["queues"]) == ("fifo", "sdq")
        view = self.show("web0")
        assert [view[key] for key in ("compute", "copy", "cap", "reserve", "priority")] == [50, 30, 80, 20, -5]

    def test_reports(self):
        """What was promised is counted from the creation on, also across vgpud's restart and after the end."""
        self.ok("create", "web0", "--memory", "1G", "--compute", "50")
        time.sleep(0.5)
        report = json.loads(self.ok("report", "web0", "--last", "2h", "--json"))
        seen = report["total"]["observed_s"]
        assert seen >= 0.5
        assert abs(report["total"]["promised_compute_s"] - seen / 2) < 1e-6
        self.daemon.terminate()
        self.daemon.wait(10)
        self.start()
        assert json.loads(self.ok("report", "web0", "--json"))["total"]["observed_s"] >= seen
        self.ok("destroy", "web0")
        lines = self.ok("report", "web0").splitlines()
        assert lines[0].startswith("HOUR") and lines[-1].startswith("all")
        self.refused(4, "no virtual GPU 'web1'", "report", "web1")
        self.refused(2, "--last is '2w'", "report", "web0", "--last", "2w")

    def test_limits(self):
        self.daemon.terminate()
        self.daemon.wait(10)
        self.config.write_text(self.config.read_text() + "[limits]\nstreams = 100\n")
        self.start()
        self.ok("create", "web0", "--memory", "1G", "--limit", "processes=1", "--limit", "events=5")
        limits = self.show("web0")["live"]["limits"]
        assert (limits["streams"]["most"], limits["events"]["most"], limits["processes"]["most"]) == (100, 5, 1)
        client = self.direct("web0")
        assert "processes 1 of 1" in self.ok("show", "web0")
        with pytest.raises(AssertionError):
            self.direct("web0")
        self.ok("set", "web0", "--limit", "processes=2", "--limit", "events=default", "--limit", "streams=7")
        self.direct("web0")
        limits = self.show("web0")["live"]["limits"]
        assert (limits["streams"]["most"], limits["events"]["most"]) == (7, 1 << 20)
        assert self.show("web0")["limits"] == {"processes": 2, "streams": 7}
        self.refused(2, "no limit 'colours'; there are contexts, streams", "set", "web0", "--limit", "colours=3")
        for wrong in ("streams", "streams=", "streams=-1", "streams=16777217", "streams=x"):
            self.refused(2, "must be a whole number", "set", "web0", "--limit", wrong)
        assert self.http("PATCH", "/v1/vgpus/web0", b'{"limits": {"streams": "x"}}')[0] == 400
        assert self.http("PATCH", "/v1/vgpus/web0", b'{"limits": 3}')[0] == 400
        self.daemon.terminate()
        self.daemon.wait(10)
        self.start()
        assert until(lambda: self.show("web0")["live"])
        assert self.show("web0")["live"]["limits"]["streams"]["most"] == 7
        client.close()

    def test_a_deadline_for_kernels(self):
        made = self.ok("create", "web0", "--memory", "1G", "--kernel-deadline-ms", "5000")
        assert "kernels end within 5000 ms" in made
        assert "has run for 5000 ms" in self.ok("show", "web0")
        self.refused(1, "kernel_deadline_ms", "set", "web0", "--kernel-deadline-ms", "86400001")
        self.refused(2, "", "set", "web0", "--kernel-deadline-ms", "soon")
        self.ok("set", "web0", "--kernel-deadline-ms", "none")
        assert self.show("web0")["kernel_deadline_ms"] == 0

    def test_a_guard_for_kernels(self):
        assert "guarded" in self.ok("create", "web0", "--memory", "1G", "--guard", "on", "--clear-shared", "on")
        assert "code without PTX is refused" in self.ok("show", "web0")
        assert "cleared when kernels end" in self.ok("show", "web0")
        self.ok("set", "web0", "--allow-machine-code", "on")
        assert "runs unguarded" in self.ok("show", "web0")
        self.refused(2, "", "set", "web0", "--guard", "perhaps")
        self.ok("set", "web0", "--guard", "off")
        shown = self.show("web0")
        assert (shown["guard"], shown["allow_machine_code"], shown["clear_shared"]) == (False, True, True)

    def test_a_time_after_which_it_sleeps(self):
        self.ok("create", "web0", "--memory", "1G")
        assert "[idle]" in self.ok("show", "web0") and self.show("web0")["idle_suspend_s"] is None
        self.ok("set", "web0", "--idle-suspend", "600")
        assert "after 600 s" in self.ok("show", "web0") and self.show("web0")["idle_suspend_s"] == 600
        self.refused(2, "never or default", "set", "web0", "--idle-suspend", "soon")
        self.refused(1, "idle_suspend_s", "set", "web0", "--idle-suspend", "2678401")
        self.ok("set", "web0", "--idle-suspend", "never")
        assert self.show("web0")["idle_suspend_s"] == 0
        self.ok("set", "web0", "--idle-suspend", "default")
        assert self.show("web0")["idle_suspend_s"] is None

    def test_a_latency_bound(self):
        assert "latency 250 us" in self.ok("create", "web0", "--memory", "1G", "--latency-us", "250")
        assert "noted, and not kept" in self.ok("set", "web0", "--latency-us", "300")
        assert "at most 300 us, not kept here" in self.ok("show", "web0")
        for least, sharing in ((250, "time-sliced"), (20, "mps")):
            self.ok("set", "web0", "--sharing", sharing, "--latency-us", str(least))
            assert self.show("web0")["latency"] == {"kept_by": "nothing", "least_us": least, "cost_us": 0}
        self.refused(1, "below the least that a GPU can keep for a time-sliced virtual GPU: 250 us", "set", "web0",
                     "--sharing", "time-sliced")
        for wrong in ("19", "1000001", "-1"):
            self.refused(1, "latency_us", "set", "web0", f"--latency-us={wrong}")
        self.refused(2, "", "set", "web0", "--latency-us", "soon")
        self.daemon.terminate()
        self.daemon.wait(10)
        self.start()
        assert self.show("web0")["latency_us"] == 20
        assert "no bound (the least that it can have is 20 us)" in (
            self.ok("set", "web0", "--latency-us", "none") and self.ok("show", "web0"))
        assert self.show("web0")["latency_us"] == 0

    def test_shares_may_have_a_percent_sign(self):
        self.ok("create", "web0", "--memory", "1G", "--compute", "50%", "--copy", "30 %", "--cap=80%",
                "--reserve", "20%")
        view = self.show("web0")
        assert [view[key] for key in ("compute", "copy", "cap", "reserve")] == [50, 30, 80, 20]
        for wrong in ("%", "many%", "5%%", "%5"):
            self.refused(2, "", "set", "web0", "--compute", wrong)

    def test_wrong_usage(self):
        self.refused(2, "did you mean 'list'?", "lst")
        self.refused(2, "the commands are create, destroy", "frobnicate")
        self.refused(2, "the commands are create, destroy")
        self.refused(2, "did you mean 'show'?", "scheduler", "shw")
        self.refused(2, "did you mean '--compute'?", "create", "web0", "--memory", "1G", "--compte", "3")
        self.refused(2, "see `vgpuctl create --help`", "create", "web0")
        self.refused(2, "--compute takes a whole number, and not '30percent'", "create", "web0", "--memory", "1G",
                     "--compute", "30percent")
        self.refused(2, "--memory: '8X' is not a size; write for example", "create", "web0", "--memory", "8X")
        self.refused(2, "`vgpuctl segment` needs a command", "segment")
        for program in (VGPUCTL, VGPUD):
            said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
            assert re.fullmatch(rf"{program.name} \d+\.\d+\.\d+\n", said), said
        assert "Usage" in self.ok("create", "--help")

    def test_wrong_usage_as_json_says_what_to_do(self):
        for wrong in WRONG:
            said = self.ctl(*wrong.split(), "--json")
            assert said.returncode == 2 and not said.stderr, said
            refusal = json.loads(said.stdout)
            assert set(refusal) == {"error", "hint"} and all(refusal.values()), (wrong, refusal)

    def test_list(self):
        for name in ("vm-10", "vm-2"):
            self.ok("create", name, "--memory", "1G", "--compute", "30%")
        assert [line.split()[0] for line in self.ok("list").splitlines()] == ["NAME", "vm-2", "vm-10"]
        assert self.ok("list", "-o", "name,Compute", "--no-header") == "vm-2   30 %\nvm-10  30 %\n"
        self.refused(2, "no column 'colour'; there are NAME, DEVICE", "list", "-o", "colour")
        assert len(json.loads(self.ok("list", "-o", "name", "--json"))) == 2

    def test_two_administrators_at_once(self):
        self.ok("create", "web0", "--memory", "2G")
        self.ok("create", "web1", "--memory", "2G")
        for body in ({"compute": 60}, {"compute": 60, "memory": 1 << 30}):  # the second asks the sessions in between
            for name in ("web0", "web1"):
                assert self.http("PATCH", f"/v1/vgpus/{name}", b'{"compute":1,"memory":2147483648}')[0] == 200
            with concurrent.futures.ThreadPoolExecutor() as both:
                text = json.dumps(body).encode()
                answers = [both.submit(self.http, "PATCH", f"/v1/vgpus/{name}", text) for name in ("web0", "web1")]
                codes = [answer.result()[0] for answer in answers]
            assert sorted(codes) == [200, 409]
            assert sorted(self.show(name)["compute"] for name in ("web0", "web1")) == [1, 60]

    def test_metrics(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.ok("create", "web0", "--memory", "1G", "--compute", "30")
        self.daemon.terminate()
        self.daemon.wait(10)
        self.config.write_text(f'[device]\nmemory = "16G"\n[metrics]\nlisten = "127.0.0.1:{port}"\n')
        self.start()
        until(lambda: self.show("web0")["live"])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/metrics")
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        assert reply.status == 200
        assert 'bandsaw_vgpu_engine_share_ratio{vgpu="web0",gpu="soft",engine="compute"} 0.3' in text
        assert 'bandsaw_vgpu_engine_busy_seconds_total{vgpu="web0",gpu="soft",engine="copy_in"} 0' in text
        assert 'bandsaw_vgpu_up{vgpu="web0",gpu="soft"} 1' in text

    def test_top(self):
        self.ok("create", "web0", "--memory", "1G", "--compute", "30")
        client = self.direct("web0")
        table = self.ok("top", "--interval", "0.05", "--count", "2").split("\n\n")
        assert len([part for part in table if "web0" in part]) == 2
        assert self.ok("list", "-o", "name,state", "--no-header") == "web0  direct\n"
        for name in ("web10", "web2"):
            self.ok("create", name, "--memory", "1G")
        names = [line.split()[0] for line in self.ok("top", "--interval", "0.05", "--count", "1").splitlines() if line]
        assert names[2:] == ["web0", "web2", "web10"]
        assert "\x1b" not in "".join(table)
        lines = self.ok("top", "--interval", "0.05", "--count", "3", "--json").splitlines()
        assert len(lines) == 3
        vgpu = json.loads(lines[-1])["vgpus"][0]
        assert (vgpu["name"], vgpu["processes"], vgpu["engines"]["compute"]["share_percent"]) == ("web0", 1, 30)
        assert abs(json.loads(lines[-1])["interval_s"]-0.05) < 0.5
        self.refused(2, "", "top", "--interval", "0")
        client.close()

    def in_a_terminal(self, rows, columns, *arguments):
        """vgpuctl in a terminal of this size: its process, and the terminal's other end."""
        pid, terminal = pty.fork()
        if pid == 0:
            termios.tcsetwinsize(0, (rows, columns))
            os.execve(VGPUCTL, [str(VGPUCTL), *arguments], {**self.environment, "TERM": "xterm"})
        return pid, terminal

    def read_until(self, terminal, wanted, output=b""):
        deadline = time.monotonic() + 20
        while wanted not in output:
            assert time.monotonic() < deadline, output
            output += os.read(terminal, 65536)
        return output

    @staticmethod
    def settings_of_a_new_terminal():
        ends = os.openpty()
        settings = termios.tcgetattr(ends[0])
        for end in ends:
            os.close(end)
        return settings

    def test_top_in_a_terminal(self):
        self.ok("create", "web0", "--memory", "1G")
        for end in (b"q", b"\x03", b"/web\n\x03", signal.SIGTERM):
            before = self.settings_of_a_new_terminal()  # those of this one may be the program's before we ask
            pid, terminal = self.in_a_terminal(24, 80, "top", "--interval", "0.05")
            output = self.read_until(terminal, b"web0")
            assert termios.tcgetattr(terminal)[3] != before[3]
            if isinstance(end, bytes):
                os.write(terminal, end)
            else:
                os.kill(pid, end)
            try:
                while chunk := os.read(terminal, 65536):
                    output += chunk
            except OSError:
                pass  # its end
            assert termios.tcgetattr(terminal)[3] | termios.PENDIN == before[3] | termios.PENDIN
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            os.close(terminal)
            # The alternate screen is taken, and given back; it is cleared once at most, and then drawn in place.
            assert output.startswith(b"\x1b[?1049h"), output[:40]
            assert b"\x1b[?1049l" in output[-40:]
            assert output.count(b"\x1b[2J") + output.count(b"\x1b[J") <= 2

    def test_top_follows_the_size_of_its_terminal(self):
        for number in range(4):
            self.ok("create", f"web{number}", "--memory", "1G")
        pid, terminal = self.in_a_terminal(7, 80, "top", "--interval", "60")
        output = self.read_until(terminal, b"1-3 of 4")
        assert b"web3" not in output
        os.write(terminal, b"\x1bOB")  # down
        self.read_until(terminal, b"2-4")
        termios.tcsetwinsize(terminal, (20, 80))
        self.read_until(terminal, b"1-4 of 4")
        os.write(terminal, b"q")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        os.close(terminal)

    def test_top_where_nothing_is_known_of_the_terminal(self):
        self.ok("create", "web0", "--memory", "1G")
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(VGPUCTL, [str(VGPUCTL), "top", "--interval", "0.05", "--count", "1"],
                      {**self.environment, "TERM": "nonsense"})
        output = self.read_until(terminal, b"web0")
        assert b"\x1b" not in output
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        os.close(terminal)

    def test_trace(self):
        self.ok("create", "web0", "--memory", "1G")
        file = self.folder / "trace.json"
        assert "time slices are in" in self.ok("trace", "-o", str(file), "--seconds", "0.1")
        assert isinstance(json.loads(file.read_text())["traceEvents"], list)
        assert isinstance(json.loads(self.ok("trace", "-o", "-", "--seconds", "0.1"))["traceEvents"], list)
        self.refused(1, "cannot write", "trace", "-o", "/nonexistent/x", "--seconds", "0.1")
        self.refused(2, "", "trace", "--seconds", "0.1")

    def hook(self, xml, *arguments):
        return subprocess.run([str(VGPUCTL), "hook", *arguments], env=self.environment, input=xml, capture_output=True,
                              text=True, timeout=30, check=False)

    def test_hook(self):
        self.ok("create", "web0", "--memory", "1G", "--compute", "30")
        self.ok("create", "web1", "--memory", "1G", "--compute", "30")
        domain = ("<domain type='kvm'><name>guest</name><metadata><b:vgpus xmlns:b="
                  "'https://bandsaw.dev/xmlns/libvirt/1.0'>{}</b:vgpus></metadata></domain>")
        if "without libvirt" in self.hook("", "guest").stderr:
            pytest.skip("built without libvirt")
        both = "<b:vgpu name='web0' memory='512M' compute='40'/><b:vgpu name='web1' cap='50' priority='7'/>"
        done = self.hook(domain.format(both), "guest")
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        view = self.show("web0")
        assert (view["memory"], view["compute"]) == (512 << 20, 40)
        assert (self.show("web1")["cap"], self.show("web1")["priority"]) == (50, 7)
        for written, now in (("mps", "mps"), ("isolated", "time-sliced"), ("corun", "mps")):  # earlier words too
            assert self.hook(domain.format(f"<b:vgpu name='web1' sharing='{written}'/>"), "guest").returncode == 0
            assert self.show("web1")["sharing"] == now
        grouped = "<b:vgpu name='web1' sharing='mps' group='ml'/>"
        assert self.hook(domain.format(grouped), "guest").returncode == 0
        assert self.show("web1")["group"] == "ml"
        assert "group='ml'" in self.ok("xml", "web1")
        for xml, code, reason in (("<b:vgpu name='web0' compute='80'/>", 1, "would sum to 110 %"),
                                  ("<b:vgpu name='web0' compute='0'/>", 1, "is 0 %"),
                                  ("<b:vgpu name='web0' compute='lots'/>", 1, "must be a whole number"),
                                  ("<b:vgpu name='web0' colour='1'/>", 1, "'colour', which is not a share"),
                                  ("<b:vgpu name='web0' sharing='mine'/>", 1, "no sharing 'mine'"),
                                  ("<b:vgpu name='web0' group='ml'/>", 1, "for virtual GPUs that are mps"),
                                  ("<b:vgpu compute='1'/>", 1, "has no name"),
                                  ("<b:vgpu name='web9'/>", 4, "no virtual GPU 'web9'"),
                                  ("<b:vgpu name='web0'", 1, "is not a libvirt domain")):
            refused = self.hook(domain.format(xml), "guest")
            assert refused.returncode == code, refused.stderr
            assert "domain 'guest' does not start" in refused.stderr
            assert reason in refused.stderr
        assert self.show("web0")["compute"] == 40
        self.ok("attach", "web0", "other", "--record-only")
        assert "is attached to domain 'other'" in self.hook(domain.format(both), "guest").stderr
        # A domain without our metadata starts without vgpud, whatever its XML is.
        self.daemon.terminate()
        self.daemon.wait(10)
        assert self.hook("<domain><name>plain</name></domain>", "plain").returncode == 0
        assert self.hook(domain.format(both), "--wait", "0", "guest").returncode == 3
        # One that is started with the host waits for vgpud.
        with concurrent.futures.ThreadPoolExecutor(1) as beside:
            early = beside.submit(self.hook, domain.format("<b:vgpu name='web1' cap='60'/>"), "guest")
            self.start()
            assert early.result().returncode == 0, early.result().stderr
        assert self.show("web1")["cap"] == 60

    def test_the_hook_is_installed(self):
        hooks = self.folder / "hooks"
        if "without libvirt" in self.ctl("hook", "--install", "--hooks", str(hooks)).stderr:
            pytest.skip("built without libvirt")
        for driver in ("qemu.d", "libxl.d"):
            script = hooks / driver / "bandsaw"
            assert os.access(script, os.X_OK)
            assert subprocess.run([script, "guest", "prepare", "begin", "-"], input="<domain/>", text=True,
                                  env={"PATH": os.environ["PATH"]}, check=False).returncode == 0

    def test_the_hook_attaches_a_domain_on_xen(self):
        self.ok("create", "web0", "--memory", "1G", "--compute", "30")
        text = self.ctl("xml", "web0", "--hypervisor", "xen")
        if "without libvirt" in text.stderr:
            pytest.skip("built without libvirt")
        snippet = text.stdout.replace("memory='1G'", "memory='512M'")
        assert "type='xen'" in snippet and "qemu" not in snippet
        assert self.hook(snippet, "guest").returncode == 0
        assert self.show("web0")["domain"] == "", "a domain of QEMU's is attached by vgpuctl attach"
        for _ in range(2):
            done = self.hook(snippet, "--hypervisor", "xen", "guest")
            assert (done.returncode, done.stdout) == (0, ""), done.stderr
            assert (self.show("web0")["domain"], self.show("web0")["memory"]) == ("guest", 512 << 20)
        refused = self.hook(snippet, "--hypervisor", "xen", "other")
        assert refused.returncode == 1 and "is attached to domain 'guest'" in refused.stderr

    def test_what_goes_into_a_configuration_of_xls(self):
        self.ok("create", "web0", "--memory", "1G")
        assert "vgpuctl attach web0 DOMAIN --hypervisor xen" in self.ok("xml", "web0", "--hypervisor", "xen", "--xl")
        self.refused(2, "xl is Xen's", "xml", "web0", "--xl")
        self.refused(4, "no virtual GPU 'web9'", "xml", "web9", "--hypervisor", "xen", "--xl")
