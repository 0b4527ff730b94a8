"""Packages of Debian beside this machine's own root: an overlay, of which the machine itself sees nothing."""
import hashlib
import pathlib
import shutil

from lab.paths import cache
from lab.shell import need_root, run, step

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
"""


def environment(*seen: pathlib.Path) -> dict[str, str]:
    """Of what runs ENTER; these folders of the machine are seen, and written, inside."""
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "BANDSAW_SEEN": " ".join(map(str, seen))}


def layer(name: str, packages: list[str], then: str = "", size: str = "") -> pathlib.Path:
    """What the packages, and a shell script after them, add to this machine's root; made if it is missing, and anew
    where other packages of this machine lie below."""
    status = pathlib.Path("/var/lib/dpkg/status").read_bytes()
    digest = hashlib.sha256(status + " ".join([*packages, INSTALL, then]).encode()).hexdigest()[:12]
    path = cache() / f"{name}-root-{digest}"
    if path.exists():
        return path
    need_root(f"installing {packages[0]} beside this machine's root")
    for old in path.parent.glob(f"{name}-root-*"):
        if old.is_dir():
            shutil.rmtree(old)
    temporary = path.with_name(path.name + ".new")
    with step(f"installing {', '.join(packages[:3])} beside this machine's root {size}".rstrip()):
        run(["unshare", "--mount", "bash", "-c", ENTER, "enter", temporary, "--", "bash", "-c", INSTALL + then,
             "install", *packages], log=path.with_name(f"{name}-root.log"), what=f"installing {packages[0]}",
            env=environment())
    temporary.rename(path)
    return path
