"""The life of the packages on a fresh machine: installed, used, upgraded, removed. The tests follow one another."""
import dataclasses
import json
import pathlib
import re
import subprocess
import tempfile
import time

import pytest

from lab.booted_root import BootedRoot
from lab.cuda_programs import Program
from lab.paths import REPO

# What apt, dpkg and systemd keep of what they did. The rest of the root is as before when the packages are purged.
KEPT = re.compile(r"/(etc/(ld\.so\.cache|\.pwd\.lock|.*-$)|root|tmp|"
                  r"var/(cache|log|lib/(apt|dpkg|systemd|ucf)|tmp)(/|$))")
ETC_USERS = "/etc/group /etc/gshadow /etc/passwd"


def files_of(root: BootedRoot) -> set[str]:
    listed = root.shell("find / -xdev -not -path '/files/*' -printf '%p\\n'; find /run -maxdepth 1 -name 'bandsaw*'")
    return {line for line in listed.splitlines() if not KEPT.match(line)}


@dataclasses.dataclass
class Before:
    files: set[str]
    users: str


@pytest.fixture(scope="module")
def before(booted: BootedRoot) -> Before:
    """With what the packages depend on, which apt may keep for other packages' sake."""
    fields = booted.shell("for deb in /files/*.deb; do dpkg-deb -f $deb Depends; done").replace("\n", ",").split(",")
    wanted = ", ".join(sorted({field.strip() for field in fields if field.strip() and "bandsaw" not in field}))
    booted.apt(f"satisfy --no-install-recommends '{wanted}'")
    return Before(files_of(booted), booted.shell(f"cat {ETC_USERS}"))


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    assert match, text
    return match.group(1)


def test_without_a_runner_the_service_waits_for_one(booted: BootedRoot, before: Before):
    assert before.files
    said = booted.apt("install --no-install-recommends /files/bandsaw_*.deb")
    assert "Could not" not in said and "failed" not in said.lower(), said
    assert booted.shell("systemctl show --value -p ActiveState -p ConditionResult vgpud").split() == ["inactive", "no"]
    assert "the package bandsaw-cuda has the runner of GPUs" in booted.try_("vgpuctl doctor")[1]


def test_installing_all_of_them_ends_with_a_running_service(booted: BootedRoot, before: Before):
    assert before.files
    booted.apt("install --no-install-recommends /files/bandsaw*.deb")
    assert booted.shell("systemctl is-active vgpud").strip() == "active"
    assert booted.shell("systemctl is-enabled vgpud").strip() == "enabled"
    assert "soft" in booted.shell("vgpuctl status")
    assert booted.shell("getent group bandsaw bandsaw-admin")
    booted.shell("systemd-analyze verify vgpud.service bandsaw-devices.service")


def test_manuals_completion_and_sample_are_there(booted: BootedRoot):
    listed = booted.shell("dpkg -L bandsaw")
    for file in ("man8/vgpud.8.gz", "man1/vgpuctl.1.gz", "man1/vgpuctl-create.1.gz", "man5/vgpud.toml.5.gz",
                 "completions/vgpuctl", "_vgpuctl", "vgpuctl.fish", "/etc/libvirt/hooks/qemu.d/bandsaw"):
        assert file in listed, file
    sample = booted.shell("cat /etc/bandsaw/vgpud.toml")
    assert "devices" in sample
    assert all(line.startswith(("#", "[")) or not line.strip() for line in sample.splitlines())
    assert "/usr/bin/vgpuctl" in booted.shell("cat /etc/libvirt/hooks/qemu.d/bandsaw")


def test_only_the_software_device_pulls_llvm(booted: BootedRoot):
    for name in ("bandsaw", "bandsaw-cuda", "bandsaw-guest"):
        assert "llvm" not in booted.shell(f"dpkg-query -W -f '${{Depends}}' {name}").lower()
    assert "llvm" in booted.shell("dpkg-query -W -f '${Depends}' bandsaw-soft").lower()


def put_program(booted: BootedRoot, name: str) -> str:
    built = Program(REPO / f"tests/cuda/{name}.cu").compile()
    target = booted.path / "opt" / name
    target.write_bytes(pathlib.Path(built).read_bytes())
    target.chmod(0o755)
    return f"/opt/{name}"


def test_a_program_finds_libcuda_by_itself(booted: BootedRoot):
    booted.shell("vgpuctl create web0 --memory 1G")
    program = put_program(booted, "vector_add")
    assert "/bandsaw/libcuda.so.1" in booted.shell("ldconfig -p | grep libcuda.so.1")
    booted.shell(f"BANDSAW_VGPU=web0 {program}")


def test_compiled_code_is_kept(booted: BootedRoot):
    """What the unit forbids is not needed for it."""
    kept = booted.shell("find /var/lib/bandsaw/vgpus/web0/cache -name '*.o' -size +0").split()
    assert kept, booted.shell("cat /run/bandsaw/web0/session.log")


def test_sessions_are_nobody_and_vgpud_is_hardened(booted: BootedRoot):
    users = booted.shell("ps -C bandsaw-session -o uid=").split()
    assert users and "0" not in users
    exposure = booted.shell("systemd-analyze security vgpud | tail -1")
    assert float(found(r"([\d.]+) [A-Z]+", exposure)) < 5


def test_the_unit_may_start_anew_a_hundred_times_in_a_minute(booted: BootedRoot):
    session, begin = booted.shell("pgrep -x bandsaw-session"), time.monotonic()
    booted.shell("for i in $(seq 100); do systemctl restart vgpud && vgpuctl status >/dev/null || exit 1; done")
    assert time.monotonic() - begin < 60
    assert booted.shell("pgrep -x bandsaw-session") == session
    assert booted.shell("systemctl show --value -p Result vgpud").strip() == "success"


def test_a_reload_with_what_cannot_work_changes_nothing(booted: BootedRoot):
    file, daemon = "/etc/bandsaw/vgpud.toml", booted.shell("systemctl show --value -p MainPID vgpud")
    booted.shell(f"cp -p {file} {file}.before")
    for wrong, said in (('[scheduler]\npolicy = "most"\n', f"{file}:2:10: 'scheduler.policy' is wrong"),
                        ('[metrics]\nlisten = "127.0.0.1:9495"\n', "/usr/share/bandsaw/systemd/network.conf")):
        booted.shell(f"printf '{wrong}' >{file}")
        assert booted.try_("systemctl reload vgpud")[0] != 0
        assert said in booted.shell("journalctl --sync; journalctl -u vgpud -o cat -n 20")
        assert "band+" in booted.shell("vgpuctl status")
    booted.shell(f"mv {file}.before {file}; systemctl reload vgpud && vgpuctl status")
    assert booted.shell("systemctl show --value -p MainPID vgpud") == daemon


def test_the_journal_has_fields(booted: BootedRoot):
    booted.shell("vgpuctl set web0 --compute 50; journalctl --sync")
    entries = [json.loads(line) for line in booted.shell("journalctl -u vgpud VGPU=web0 -o json").splitlines()]
    assert any(one["MESSAGE"].startswith("web0: ") and one.get("DEVICE") == "soft" for one in entries), entries
    assert any(one["MESSAGE"].startswith("audit: ") and one["PRIORITY"] == "6" for one in entries), entries


def newer(packages: pathlib.Path, folder: pathlib.Path) -> None:
    """The same packages with a later version."""
    for deb in sorted(packages.glob("*.deb")):
        tree = folder / deb.stem
        subprocess.run(["dpkg-deb", "-R", deb, tree], check=True)
        control = tree / "DEBIAN/control"
        version = found("^Version: (.*)$", control.read_text())
        control.write_text(control.read_text().replace(version, version + "+later"))
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, folder], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", tree], check=True)


def test_an_upgrade_keeps_programs_running_and_settings(booted: BootedRoot, packages: pathlib.Path):
    program = put_program(booted, "many_threads")
    booted.shell("sed -i 's/^# *warm = .*/warm = 2/' /etc/bandsaw/vgpud.toml")
    booted.start(f"while [ ! -e /tmp/enough ]; do BANDSAW_VGPU=web0 {program} || exit 1; done", "tenant")
    session, daemon = booted.shell("pgrep -x bandsaw-session"), booted.shell("pgrep -x vgpud | head -1")
    with tempfile.TemporaryDirectory(dir=booted.path / "opt") as place:
        newer(packages, pathlib.Path(place))
        booted.apt(f"install --no-install-recommends /opt/{pathlib.Path(place).name}/bandsaw*.deb")
    assert "+later" in booted.shell("dpkg-query -W bandsaw")
    assert booted.shell("pgrep -x bandsaw-session") == session
    assert booted.shell("pgrep -x vgpud | head -1") != daemon
    status = json.loads(booted.shell("vgpuctl --json show web0"))
    assert status["name"] == "web0"
    booted.shell("touch /tmp/enough")
    assert booted.ended("tenant", 60) == "success"


def test_a_physical_driver_comes_first(booted: BootedRoot):
    """Without its library in the way ours is found, with it its own, and an administrator may choose."""
    library = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    first = "ldconfig; ldconfig -p | grep 'libcuda.so.1 ' | head -1"
    assert "/bandsaw/" in booted.shell(first)
    booted.shell("mkdir -p /opt/driver/DEBIAN /opt/driver/usr/lib/x86_64-linux-gnu && cp -L "
                 f"/usr/lib/x86_64-linux-gnu/bandsaw/libcuda.so.1 /opt/driver{library} && printf 'Package: physical\\n"
                 "Version: 1\\nArchitecture: amd64\\nMaintainer: x <x@example.org>\\nDescription: x\\n' "
                 ">/opt/driver/DEBIAN/control && dpkg-deb -b /opt/driver /opt/physical.deb")
    booted.shell("dpkg -i /opt/physical.deb")
    assert "/bandsaw/" not in booted.shell(first)
    booted.shell("update-alternatives --set bandsaw-libraries /usr/lib/x86_64-linux-gnu/bandsaw/ld.so.conf")
    assert "/bandsaw/" in booted.shell(first)
    booted.shell("update-alternatives --auto bandsaw-libraries; dpkg -P physical")
    assert "/bandsaw/" in booted.shell(first)
    booted.shell("rm -rf /opt/driver /opt/physical.deb")


@pytest.mark.parametrize("how", ["remove", "purge"])
def test_removing_leaves(booted: BootedRoot, before: Before, how: str):
    """Settings after `remove`, nothing after `purge`."""
    booted.apt(f"{how} 'bandsaw*'")
    assert booted.try_("ps -e -o comm= | grep -E '^(vgpud|bandsaw-)'")[1] == ""
    if how == "remove":
        assert "/etc/bandsaw/vgpud.toml" in files_of(booted)
        return
    booted.shell("rm -rf /opt/vector_add /opt/many_threads /tmp/enough; ldconfig")
    left, gone = sorted(files_of(booted) - before.files), sorted(before.files - files_of(booted))
    assert (left, gone) == ([], [])
    assert booted.shell(f"cat {ETC_USERS}") == before.users
