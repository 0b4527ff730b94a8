"""The guest's kernel module, built by DKMS for the release's own kernel and for the newest one of its backports, which
Debian unstable has none of."""
from lab import debian_root
from lab.booted_root import BootedRoot


def test_dkms_builds_it_for_each_kernel(booted: BootedRoot, release: str):
    booted.apt("install --no-install-recommends linux-headers-amd64 /files/bandsaw-guest_*.deb")
    if release != "sid":
        line = debian_root.backports(release)
        booted.shell(f"echo '{line}' >/etc/apt/sources.list.d/backports.list")
        booted.apt("update")
        booted.apt(f"install --no-install-recommends -t {release}-backports linux-headers-amd64")
    kernels = booted.shell("ls -d /lib/modules/*/build | cut -d/ -f4").split()
    assert len(kernels) >= (1 if release == "sid" else 2), kernels
    status = booted.shell("dkms status -m virtio_vgpu")
    for kernel in kernels:
        built = [line for line in status.splitlines() if kernel in line]
        assert built and "installed" in built[0], f"{kernel}:\n{status}\n" + booted.try_(
            f"cat /var/lib/dkms/virtio_vgpu/*/build/make.log /var/lib/dkms/virtio_vgpu/*/{kernel}/*/log/make.log")[1]
        for module in ("virtio_vgpu.ko", "vgpu_crypto.ko"):
            assert module in booted.shell(f"find /lib/modules/{kernel}/updates -name '{module}*'")
    assert ".entry vgpu_xts_crypt" in booted.shell("cat /lib/firmware/bandsaw/aes_xts.ptx")
