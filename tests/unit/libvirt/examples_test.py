"""What stands in pages and examples to be copied: cloud-init takes the YAML, and a shell its script; Proxmox hands QEMU
the same device that vgpuctl writes."""
import json
import re
import subprocess

import yaml

from lab.paths import REPO

USER_DATA = REPO / "hypervisor/libvirt/examples/user-data.yaml"
PROXMOX = REPO / "hypervisor/libvirt/proxmox.md"
# PVE::Tools::split_args().
SPLIT = "use Text::ParseWords; print join(chr(10), shellwords($ARGV[0]))"


def test_user_data():
    text = USER_DATA.read_text()
    assert text.startswith("#cloud-config\n")
    data = yaml.safe_load(text)
    [script] = data["write_files"]
    assert data["runcmd"] == [[script["path"]]] and script["permissions"] == "0755"
    checked = subprocess.run(["sh", "-n"], input=script["content"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_arguments_of_proxmox():
    [line] = re.findall(r"^ *args: (.*)$", PROXMOX.read_text(), re.MULTILINE)
    split = subprocess.run(["perl", "-e", SPLIT, "--", line], capture_output=True, text=True, check=True)
    words = split.stdout.split("\n")
    assert words[0::2] == ["-object", "-machine", "-device"]
    assert words[1].split(",")[1] == "id=bandsaw-ram" and words[3] == "memory-backend=bandsaw-ram"
    [device] = re.findall(r"<qemu:arg value='(\{.*?\})'/>", (REPO / "README.md").read_text(), re.DOTALL)
    assert json.loads(words[5]) == json.loads(device)
