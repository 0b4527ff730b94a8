"""What administrators apply: objects with known fields only, by kubectl's kustomize and by the chart."""
import re
import subprocess

import pytest
import yaml

from fleet.kubernetes import settings
from lab.kubernetes_objects import check
from lab.paths import REPO

FOLDER = REPO / "tools/fleet/kubernetes"
FILES = sorted([*FOLDER.glob("chart/manifests/*.yaml"), *FOLDER.glob("examples/*.yaml")])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_field_is_known(file):
    found = list(yaml.safe_load_all(file.read_text()))
    assert found
    for one in found:
        check(one)


def test_a_field_that_is_not_known_is_found():
    [content] = yaml.safe_load_all((FOLDER / "examples/pod.yaml").read_text())
    content["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(AssertionError):
        check(content)


def test_kustomize_makes_one_configuration_of_the_files():
    done = subprocess.run(["kubectl", "kustomize", FOLDER / "chart"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    objects = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    for one in objects.values():
        check(one)
    assert settings.parse(objects["ConfigMap"]["data"]["kubernetes.toml"]).profiles[0].name == "small"
    volumes = objects["DaemonSet"]["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]


def test_the_chart_finds_what_it_replaces():
    """Helm itself is in no package of Debian's: its template is only read here."""
    template = (FOLDER / "chart/templates/bandsaw.yaml").read_text()
    values = yaml.safe_load((FOLDER / "chart/values.yaml").read_text())
    assert set(re.findall(r"\.Values\.(\w+)", template)) == set(values)
    for name in re.findall(r'Files\.Get "([^"]+)"', template):
        text = (FOLDER / "chart" / name).read_text()
        for replaced in ("image: bandsaw-kubernetes:latest", "namespace: bandsaw"):
            assert name == "kubernetes.toml" or replaced in text
    assert template.count("{{- if") == template.count("{{- end")
