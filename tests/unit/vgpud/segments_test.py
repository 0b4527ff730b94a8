"""Shared segments as administrators see them: vgpuctl segment, vgpud's word to sessions, its log and its memory."""
import json
import os
import subprocess

import pytest

from daemon_case import VGPUCTL, DaemonCase, until


class TestSegments(DaemonCase):
    def made(self) -> None:
        for name in ("camera", "viewer", "other"):
            self.ok("create", name, "--memory", "64M")
        self.ok("segment", "create", "frames", "--vgpu", "camera", "--size", "3M")

    def listed(self) -> list[dict]:
        return json.loads(self.ok("segment", "list", "--json"))

    def test_a_table_of_all(self):
        self.made()
        self.ok("segment", "grant", "frames", "viewer")
        self.ok("segment", "grant", "frames", "other", "--write")
        assert until(lambda: self.listed()[0]["state"] == "ready")
        assert self.ok("segment", "list").splitlines() == [
            "NAME    OWNER   DEVICE  SIZE     MADE BY        GRANTS                   USERS  STATE",
            "frames  camera  soft    4.0 MiB  administrator  other:write viewer:read  -      ready"]
        assert self.ok("segment", "list", "-o", "name,size", "--no-header") == "frames  4.0 MiB\n"
        assert self.show("camera")["live"]["memory_used"] == 4 << 20
        self.ok("segment", "revoke", "frames", "other")
        assert [one["vgpu"] for one in self.listed()[0]["grants"]] == ["viewer"]
        self.ok("segment", "destroy", "frames")
        assert self.listed() == []
        assert until(lambda: self.show("camera")["live"]["memory_used"] == 0)

    @pytest.mark.parametrize(("words", "exit_code", "said"), [
        (["create", "frames", "--vgpu", "viewer", "--size", "2M"], 1, "there is a shared segment 'frames'"),
        (["create", "A", "--vgpu", "viewer", "--size", "2M"], 1, "not a name"),
        (["create", "big", "--vgpu", "viewer", "--size", "65M"], 1, "from 1 to the owner's memory share"),
        (["create", "big", "--vgpu", "camera", "--size", "62M"], 1, "has 60.0 MiB left"),
        (["create", "big", "--vgpu", "viewer", "--size", "x"], 2, "x"),
        (["create", "big", "--vgpu", "nobody", "--size", "2M"], 4, "no virtual GPU 'nobody'"),
        (["grant", "frames", "nobody"], 4, "no virtual GPU 'nobody'"),
        (["grant", "none", "viewer"], 4, "no shared segment 'none'"),
        (["grant", "frames", "camera"], 1, "owns the segment"),
        (["revoke", "frames", "viewer"], 1, "has no rights"),
        (["destroy", "none"], 4, "no shared segment 'none'"),
        (["destroy"], 2, "SEGMENT"),
    ])
    def test_refusals(self, words, exit_code, said):
        self.made()
        done = self.ctl("segment", *words)
        assert done.returncode == exit_code and said in done.stderr, done.stderr
        assert [one["name"] for one in self.listed()] == ["frames"]

    def test_they_outlive_vgpud(self):
        self.made()
        self.ok("segment", "grant", "frames", "viewer")
        before = until(lambda: [one for one in self.listed() if one["state"] == "ready"])
        self.daemon.terminate()
        self.daemon.wait(10)
        self.start()
        assert until(lambda: self.listed() == before), self.listed()

    def test_a_virtual_gpu_that_goes_leaves_no_rights(self):
        self.made()
        self.ok("segment", "grant", "frames", "viewer")
        self.ok("destroy", "viewer")
        assert self.listed()[0]["grants"] == []
        self.ok("create", "viewer", "--memory", "64M")
        assert self.listed()[0]["grants"] == [], "nor to another of its name"
        assert "owns the shared segment 'frames'" in self.ctl("destroy", "camera").stderr
        self.ok("destroy", "camera", "--force")
        assert self.listed() == []

    def test_who_may_and_what_the_log_says(self):
        if os.geteuid() != 0:
            pytest.skip("only root can be another user")
        self.made()
        self.ok("segment", "grant", "frames", "viewer")
        self.ok("segment", "revoke", "frames", "viewer")
        lines = [line.partition("audit: ")[2] for line in self.log_text().splitlines() if "/v1/segments" in line]
        made, granted, revoked = lines
        assert ", from nothing, to {" in made and '"name":"frames"' in made
        before, _, after = granted.partition(", from ")[2].partition(", to ")
        assert '"viewer"' in after and '"viewer"' not in before
        before, _, after = revoked.partition(", from ")[2].partition(", to ")
        assert '"viewer"' in before and '"viewer"' not in after
        self.let_all_look()
        for words in (["create", "x", "--vgpu", "viewer", "--size", "2M"], ["grant", "frames", "viewer"],
                      ["revoke", "frames", "viewer"], ["destroy", "frames", "--force"]):
            done = self.as_user("segment", *words)
            assert done.returncode == 1 and "may look, and not change" in done.stderr, done.stderr
        assert json.loads(self.as_user("segment", "list", "--json").stdout)[0]["name"] == "frames"

    def let_all_look(self) -> None:
        self.daemon.terminate()
        self.daemon.wait(10)
        self.config.write_text(self.config.read_text() + '[control]\nmode = "0666"\n')
        self.start()

    def as_user(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([VGPUCTL, *words], env=self.environment, user=12345, extra_groups=[], cwd="/",
                              capture_output=True, text=True, check=False, timeout=60)
