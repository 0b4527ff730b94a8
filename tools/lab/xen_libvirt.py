"""libvirt for a Xen host to test on: Debian 13's libvirtd with its driver libxl, added to dom0."""
import pathlib

from lab import xen_guest, xen_root
from lab.paths import cache
from lab.xen_host import LIBRARIES, XenHost

PACKAGES = ["libvirt-daemon", "libvirt-daemon-driver-xen", "libvirt-clients"]
PROGRAMS = ["usr/sbin/libvirtd", "usr/bin/virsh"]
DRIVER = f"{LIBRARIES}/libvirt/connection-driver/libvirt_driver_libxl.so"
CPU_MAP = "usr/share/libvirt/cpu_map"
CPU_FILES = ["x86_vendors.xml", "x86_features.xml"]

# The emulated processor is none of those that libvirt knows.
ANY_CPU = b"""<cpus>
  <arch name='x86'>
    <include filename='x86_vendors.xml'/>
    <include filename='x86_features.xml'/>
    <model name='any'><decode host='on' guest='off'/></model>
  </arch>
</cpus>
"""

DOMAIN = f"""<domain type='xen'>
  <name>guest</name>
  <memory unit='MiB'>512</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='xenpv'>linux</type>
    <kernel>{xen_guest.FOLDER}/vmlinuz</kernel>
    <initrd>{xen_guest.FOLDER}/initramfs</initrd>
    <cmdline>console=hvc0 mitigations=off quiet</cmdline>
  </os>
  <clock offset='utc'><timer name='tsc' mode='native'/></clock>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>destroy</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <console type='pty'><target type='xen'/></console>
  </devices>
</domain>
"""


def _root() -> pathlib.Path:
    path = cache() / "xen-libvirt-root"
    xen_root.make(path, PACKAGES, "with libvirt for Xen (about 60 MB to fetch, half a minute)")
    return path


def files() -> dict[str, bytes]:
    """What dom0 needs beside the rest: for XenHost.start."""
    root = _root()
    result = {name: (root / name).read_bytes() for name in [*PROGRAMS, DRIVER]}
    result |= {f"{CPU_MAP}/{name}": (root / CPU_MAP / name).read_bytes() for name in CPU_FILES}
    result[f"{CPU_MAP}/index.xml"] = ANY_CPU
    for name, source in xen_root.libraries([root / name for name in [*PROGRAMS, DRIVER]], root).items():
        result[f"{LIBRARIES}/{name}"] = source.read_bytes()
    result["opt/guest/guest.xml"] = DOMAIN.encode()
    return result


def start(host: XenHost) -> None:
    """libvirtd in dom0, with the hook that vgpud's tool writes."""
    host.must("vgpuctl hook --install")
    host.must("mkdir -p /run/libvirt /var/lib/libvirt /var/log/libvirt; libvirtd --daemon")
    host.must("for i in $(seq 100); do virsh -c xen:///system list >/dev/null 2>&1 && exit 0; sleep 0.3; done; "
              "virsh -c xen:///system list; cat /var/log/libvirt/*", 60)
