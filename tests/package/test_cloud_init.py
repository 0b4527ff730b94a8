"""The example for cloud-init: a guest that has installed its packages when its first boot is over.

All of it runs but what needs a machine of its own: uname and modprobe are stand-ins here, and the VM's tests load the
module."""
import pytest

from lab.booted_root import BootedRoot
from lab.paths import REPO

EXAMPLE = REPO / "hypervisor/libvirt/examples/user-data.yaml"
SEED = "var/lib/cloud/seed/nocloud"
# Of a guest that has just loaded the module, or is about to boot.
STAND_INS = {
    "usr/local/sbin/modprobe": "#!/bin/sh\necho \"$*\" >/tmp/modprobe\ntouch /dev/vgpu0\n",
    "usr/local/sbin/systemctl": "#!/bin/sh\necho \"$*\" >>/tmp/systemctl\n",
    "usr/local/bin/uname": "#!/bin/sh\nif [ \"$1\" = -r ]; then cat /tmp/kernel; else exec /usr/bin/uname \"$@\"; fi\n",
}
STAGES = ("init --local", "init", "modules --mode=config", "modules --mode=final")


@pytest.fixture(scope="module", autouse=True)
def _ready(booted: BootedRoot) -> None:
    booted.apt("install --no-install-recommends cloud-init python3")
    booted.shell("mkdir /srv/debs; cp /files/bandsaw-guest_*.deb /srv/debs/bandsaw-guest.deb")
    booted.start("exec python3 -m http.server --directory /srv/debs 8000", "packages-server")
    text = EXAMPLE.read_text().replace("http://192.168.122.1:8000", "http://127.0.0.1:8000")
    assert "127.0.0.1" in text
    files = {f"{SEED}/user-data": text, "etc/cloud/cloud.cfg.d/99-test.cfg": "datasource_list: [NoCloud]\n"}
    for name, content in {**files, **STAND_INS}.items():
        path = booted.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o755)


def _boot(booted: BootedRoot, kernel: str) -> str:
    """The first boot of a guest with this kernel. What it said, should it not have come as far as was hoped."""
    booted.shell("cloud-init clean --logs; "
                 f"echo 'instance-id: {kernel}' >/{SEED}/meta-data; echo {kernel} >/tmp/kernel")
    for stage in STAGES:  # so small a root has no locales and no ssh, which is said
        booted.try_(f"PATH=/usr/local/sbin:/usr/local/bin:$PATH cloud-init {stage}", timeout=900)
    return booted.shell("tail -c 8000 /var/log/cloud-init-output.log")


def _headers(booted: BootedRoot) -> str:
    """The kernel whose headers the archive has."""
    return booted.shell("apt-cache depends linux-headers-amd64 | grep -o '[0-9].*-amd64' | head -1").strip()


def test_cloud_init_takes_it(booted: BootedRoot):
    said = booted.shell(f"cloud-init schema --config-file /{SEED}/user-data")
    assert "Valid" in said, said


def test_the_guest_has_its_packages_after_the_first_boot(booted: BootedRoot):
    kernel = _headers(booted)
    said = _boot(booted, kernel)
    assert booted.try_("cat /tmp/modprobe")[1].strip() == "virtio_vgpu", said
    assert "install ok installed" in booted.shell("dpkg-query -W -f '${Status}' bandsaw-guest")
    status = booted.shell("dkms status -m virtio_vgpu")
    assert any(kernel in line and "installed" in line for line in status.splitlines()), status
    assert "/bandsaw/libcuda.so.1" in booted.shell("ldconfig -p | grep libcuda.so.1")


def test_an_older_image_boots_a_kernel_that_has_headers(booted: BootedRoot):
    booted.shell("rm /tmp/modprobe")
    said = _boot(booted, "6.1.0-1-amd64" if _headers(booted).startswith("6.1.") else "6.12.1+deb13-amd64")
    assert "reboot" in booted.try_("cat /tmp/systemctl")[1], said
    assert booted.try_("test -e /tmp/modprobe")[0] != 0
