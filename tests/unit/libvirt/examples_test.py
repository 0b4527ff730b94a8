"""The example for cloud-init is YAML whose script a shell takes."""
import subprocess

import yaml

from lab.paths import REPO

USER_DATA = REPO / "hypervisor/libvirt/examples/user-data.yaml"


def test_user_data():
    text = USER_DATA.read_text()
    assert text.startswith("#cloud-config\n")
    data = yaml.safe_load(text)
    [script] = data["write_files"]
    assert data["runcmd"] == [[script["path"]]] and script["permissions"] == "0755"
    checked = subprocess.run(["sh", "-n"], input=script["content"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
