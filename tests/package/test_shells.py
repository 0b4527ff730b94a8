"""A real zsh and a real fish complete vgpuctl's command lines; bash is asked by tests/unit/vgpud/manual_test.py."""
import subprocess

import pytest

from lab import host, overlay_root
from lab.paths import REPO

pytestmark = pytest.mark.full  # the shells are installed first, beside this machine's root

# What is typed in an interactive zsh, and what stands on its lines afterwards.
ZSH = r"""
folder=$1
mkdir -p /tmp/functions
$folder/vgpuctl completion zsh >/tmp/functions/_vgpuctl
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PATH=$folder:\$PATH; fpath=(/tmp/functions \$fpath); autoload -Uz compinit; compinit -u -D"
sleep 1
for typed in "vgpuctl cre" "vgpuctl create --memo" "vgpuctl set web0 --sharing ti"; do
  zpty -w -n shell "$typed"$'\t'
  sleep 1
  zpty -w -n shell $'\C-u'
done
while zpty -r -t shell line; do print -r -- "$line"; done
"""


def _inside(*words: str) -> str:
    shells = overlay_root.layer("shells", ["zsh", "fish"], size="(about 30 MB)")
    done = subprocess.run(["unshare", "--mount", "bash", "-c", overlay_root.ENTER, "enter", str(shells), "--", *words],
                          env=overlay_root.environment(REPO), capture_output=True, text=True, errors="replace",
                          check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder() -> str:
    return str(host.built("tools/vgpuctl/vgpuctl").parent)


@pytest.mark.parametrize(("typed", "offered"), [
    ("vgpuctl cre", {"create"}), ("vgpuctl create --memo", {"--memory"}),
    ("vgpuctl set web0 --sharing ", {"mps", "time-sliced"}), ("vgpuctl scheduler ", {"set", "show"})])
def test_fish(folder, typed, offered):
    said = _inside("fish", "-c", f"set PATH {folder} $PATH; vgpuctl completion fish | source; complete -C '{typed}'")
    assert {line.split("\t")[0] for line in said.splitlines()} == offered


def test_zsh(folder):
    said = _inside("zsh", "-f", "-c", ZSH, "zsh", folder)
    for line in ("vgpuctl create ", "vgpuctl create --memory ", "vgpuctl set web0 --sharing time-sliced "):
        assert line in said, said
