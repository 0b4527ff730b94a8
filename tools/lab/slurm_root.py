"""Slurm beside this machine's own root: an overlay with Debian's packages of it, of which this machine sees nothing."""
import hashlib
import pathlib
import shutil

from lab.paths import cache
from lab.shell import need_root, run, step

PACKAGES = """slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins munge mariadb-server iproute2""".split()
USERS = ("alice", "bob")  # whose jobs there are

# This machine's root, over it each of these folders, which keeps what is written; the last one's root is entered.
ENTER = """set -e
mount --make-rprivate /
below=/
while [ "$1" != -- ]; do
  scratch=$1; shift
  mkdir -p "$scratch/upper" "$scratch/work" "$scratch/root"
  mount -t overlay overlay -o "lowerdir=$below,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
  below=$scratch/root
done
shift
mount --rbind /dev "$scratch/root/dev"
mount -t proc proc "$scratch/root/proc"
mount --rbind /sys "$scratch/root/sys"
mount -t tmpfs tmpfs "$scratch/root/run"
for folder in $BANDSAW_SEEN; do mount --rbind "$folder" "$scratch/root$folder"; done
exec chroot "$scratch/root" "$@"
"""
# Nothing is started by installing it.
INSTALL = """set -e
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -q --no-install-recommends "$@"
apt-get clean
useradd --uid 20001 --create-home alice
useradd --uid 20002 --create-home bob
"""


def _digest() -> str:
    """Of what lies below: what was installed over other packages fits no longer."""
    status = pathlib.Path("/var/lib/dpkg/status").read_bytes()
    return hashlib.sha256(status + " ".join(PACKAGES).encode() + INSTALL.encode()).hexdigest()[:12]


def layer() -> pathlib.Path:
    """What the packages add to this machine's root; made if it is missing."""
    path = cache() / f"slurm-root-{_digest()}"
    if not path.exists():
        _make(path)
    return path


def _make(path: pathlib.Path) -> None:
    need_root("installing Slurm beside this machine")
    for old in path.parent.glob("slurm-root-*"):
        if old.is_dir():
            shutil.rmtree(old)
    temporary = path.with_name(path.name + ".new")
    with step("installing Slurm, munge and MariaDB beside this machine's root (about 400 MB, a minute)"):
        run(["unshare", "--mount", "bash", "-c", ENTER, "enter", temporary, "--", "bash", "-c", INSTALL, "install",
             *PACKAGES], log=path.with_name("slurm-root.log"), what="installing Slurm",
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "BANDSAW_SEEN": ""})
    temporary.rename(path)
