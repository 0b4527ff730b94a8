"""A real Prometheus scrapes vgpud: names and rules are as it wants them, and the dashboard's questions have answers."""
import json
import re
import subprocess
import time
import urllib.parse
import urllib.request

import pytest
import yaml

from lab import overlay_root
from lab.cuda_programs import Program
from lab.daemon import Daemon
from lab.paths import REPO
from lab.shell import wait_until

METRICS, PROMETHEUS = 19495, 19090  # ports
SOURCES = REPO / "backend/vgpud/metrics"
DASHBOARD = SOURCES / "grafana/bandsaw.json"
# What Grafana puts in; a rate wants a few scrapes.
VARIABLES = {"$instance": ".*", "$gpu": ".*", "$vgpu": ".*", "$__rate_interval": "10s"}


def _ask(path: str, **words: str) -> dict:
    target = f"http://127.0.0.1:{PROMETHEUS}{path}?{urllib.parse.urlencode(words)}"
    with urllib.request.urlopen(target, timeout=10) as answer:
        return json.load(answer)


def _inside(*words) -> list[str]:
    packages = overlay_root.layer("prometheus", ["prometheus"], size="(about 120 MB)")
    return ["unshare", "--mount", "bash", "-c", overlay_root.ENTER, "enter", str(packages), "--", *map(str, words)]


def _promtool(*words, stdin: str = "") -> str:
    """What it says where something is wrong."""
    done = subprocess.run(_inside("promtool", *words), env=overlay_root.environment(REPO), input=stdin, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return "" if done.returncode == 0 and "SUCCESS" in done.stdout + "SUCCESS" * bool(stdin) else (
        f"exit {done.returncode}: {done.stdout}")


@pytest.fixture(scope="module")
def daemon():
    """A vgpud with a virtual GPU that has done something."""
    started = Daemon("soft", "band+", name="metrics", tables={"metrics": {"listen": f"127.0.0.1:{METRICS}"}})
    started.create("web0", 40)
    program = Program(REPO / "tests/cuda/vector_add.cu")
    status, output = program.run(started.program_environment("web0"), 60)
    assert status == 0, output
    yield started
    started.end()


@pytest.fixture(scope="module")
def prometheus(daemon, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "prometheus.yml").write_text(yaml.safe_dump({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(SOURCES / "prometheus/bandsaw.rules.yml")],
        "scrape_configs": [{"job_name": "bandsaw", "static_configs": [{"targets": [f"127.0.0.1:{METRICS}"]}]}]}))
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            _inside("prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address=127.0.0.1:{PROMETHEUS}"),
            env=overlay_root.environment(REPO, folder), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def scraped() -> bool:
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            try:
                found = _ask("/api/v1/query", query='count_over_time(up{job="bandsaw"}[1m]) >= 5')
            except OSError:
                return False
            return bool(found["data"]["result"])
        try:
            wait_until(scraped, 40, "five scrapes of vgpud")
            yield process
        finally:
            process.terminate()
            process.wait(20)


def _with_values(text: str) -> str:
    for name, value in VARIABLES.items():
        text = text.replace(name, value)
    return text


def _page() -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{METRICS}/metrics", timeout=10) as answer:
        return answer.read().decode()


def test_names_are_as_the_conventions_want_them(daemon):
    page = _page()
    assert 'vgpu="web0"' in page and "bandsaw_build_info{" in page
    assert not _promtool("check", "metrics", stdin=page)


def test_alert_rules_are_right_and_fire_when_they_should():
    assert not _promtool("check", "rules", SOURCES / "prometheus/bandsaw.rules.yml")
    assert not _promtool("test", "rules", SOURCES / "prometheus/bandsaw.rules.test.yml")


def test_prometheus_scrapes_vgpud(prometheus):
    [target] = _ask("/api/v1/targets")["data"]["activeTargets"]
    assert target["health"] == "up", target["lastError"]
    [group] = _ask("/api/v1/rules")["data"]["groups"]
    assert all(rule["health"] == "ok" and rule["state"] == "inactive" for rule in group["rules"]), group


def test_the_dashboards_questions_have_answers(prometheus):
    dashboard = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(asked) > 15
    for text in map(_with_values, asked):
        assert "$" not in text, text
        deadline = time.monotonic() + 10
        while not (found := _ask("/api/v1/query", query=text))["data"]["result"]:
            assert time.monotonic() < deadline, f"nothing for {text}"
            time.sleep(0.5)
        assert found["status"] == "success"
    for variable in dashboard["templating"]["list"][1:]:
        match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
        assert match, variable
        series = re.sub(r"\$\w+", ".*", match[1])
        assert _ask(f"/api/v1/label/{match[2]}/values", **{"match[]": series})["data"]
