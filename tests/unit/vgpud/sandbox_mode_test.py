"""What is in force where vgpud may do less than root, and that "required" starts nothing there."""
import json
import os
import shutil
import subprocess

import pytest

from daemon_case import VGPUD, DaemonCase

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


class AsNobody(DaemonCase):
    mode = "auto"

    def make_folder(self):
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            pytest.skip("only root becomes nobody")
        super().make_folder()
        self.folder.chmod(0o777)
        self.config.write_text(f'[sandbox]\nmode = "{self.mode}"\n')

    def spawn(self):
        return subprocess.Popen([*NOBODY, VGPUD, "--config", self.config], env=self.environment, stderr=self.log)


class TestAuto(AsNobody):
    def test_runners_have_a_user_namespace_of_one_user(self):
        if subprocess.run([*NOBODY, "unshare", "-U", "true"], capture_output=True, check=False).returncode != 0:
            pytest.skip("this host lets nobody have user namespaces")
        self.ok("create", "web0", "--memory", "1G")
        said = self.show("web0")["session"]["sandbox"]
        assert {"user", "root", "pid", "net", "ipc"} <= set(said["runners"].split()), said
        assert "users: vgpud does not run as root" in said["runners_lack"]
        assert "root: vgpud does not run as root" in said["session_lacks"]
        status = self.ok("status")
        assert "auto" in status and "without users" in status
        client = self.direct("web0")
        runner = self.show("web0")["live"]["processes"][0]["runner"]
        for kind in ("user", "mnt", "pid", "net", "ipc"):
            assert os.readlink(f"/proc/{runner}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}"), kind
        client.close()


class TestRequired(AsNobody):
    mode = "required"

    def test_nothing_is_started(self):
        self.refused(1, "cannot have the sandbox that 'sandbox.mode' = \"required\" asks for", "create", "web0",
                     "--memory", "1G")
        assert json.loads(self.ok("list", "--json")) == []
