"""Holds openapi.yaml against the real vgpud: the same routes, and answers of the form that it says."""
import json
import pathlib
import re
import subprocess

import jsonschema
import pytest
import yaml

from daemon_case import VGPUD, DaemonCase, until

DOCUMENT = yaml.safe_load((pathlib.Path(__file__).parents[3] / "backend/vgpud/api/openapi.yaml").read_text())
METHODS = ("get", "post", "patch", "delete", "put")


def routes() -> list[str]:
    """All that the document has, as vgpud writes its own."""
    return [f"{method.upper()} {path}" for path, resource in DOCUMENT["paths"].items() for method in METHODS
            if method in resource]


def template_of(target: str) -> str:
    path = target.partition("?")[0]
    for template in DOCUMENT["paths"]:
        if re.fullmatch(template.replace("{name}", "[^/]+"), path):
            return template
    raise AssertionError(f"no path of the document is {path}")


def resolved(part: dict) -> dict:
    while "$ref" in part:
        reference, part = part["$ref"], DOCUMENT
        for name in reference.removeprefix("#/").split("/"):
            part = part[name]
    return part


def check(schema: dict, value) -> None:
    resolver = jsonschema.RefResolver.from_schema(DOCUMENT)
    jsonschema.Draft202012Validator(schema, resolver=resolver).validate(value)


class TestDocument:
    def test_it_has_the_routes_that_vgpud_has(self):
        printed = subprocess.run([VGPUD, "--print-routes"], capture_output=True, text=True, timeout=60, check=True)
        assert sorted(printed.stdout.splitlines()) == sorted(routes())

    def test_every_schema_is_one_and_every_reference_leads_somewhere(self):
        for schema in DOCUMENT["components"]["schemas"].values():
            jsonschema.Draft202012Validator.check_schema(schema)
        for reference in re.findall(r"'\$ref': '([^']+)'", repr(DOCUMENT)):
            assert resolved({"$ref": reference})

    def test_names_in_paths_are_parameters(self):
        for path, resource in DOCUMENT["paths"].items():
            declared = {resolved(parameter)["name"] for parameter in resource.get("parameters", [])}
            assert declared == set(re.findall(r"{(\w+)}", path)), path

    def test_a_request_of_another_form_is_noticed(self):
        schema = DOCUMENT["components"]["schemas"]["Change"]
        check(schema, {"compute": 30, "sharing": "mps"})
        refused: list = [{"compute": 0}, {"colour": 1}, {"sharing": "mine"}, [], {"memory": 1},
                         {"latency_us": 19}, {"kernel_deadline_ms": -1}, {"guard": "on"}]
        for wrong in refused:
            with pytest.raises(jsonschema.ValidationError):
                check(schema, wrong)


class TestAnswers(DaemonCase):
    def make_folder(self):
        super().make_folder()
        self.config.write_text('devices = [{name = "soft", memory = "16G"}, {name = "soft:1", memory = "16G"}]\n')

    def ask(self, method: str, target: str, body=None, code: int = 200):
        """The answer, once it and the request have been held against the document."""
        seen, text = self.http(method, target, b"" if body is None else json.dumps(body).encode())
        assert seen == code, text
        operation = DOCUMENT["paths"][template_of(target)][method.lower()]
        self.walked.add(f"{method} {template_of(target)}")
        if body is not None and code < 300:
            check(resolved(operation["requestBody"])["content"]["application/json"]["schema"], body)
        assert str(code) in operation["responses"], f"{method} {target} answers {code}, which the document has not"
        (kind, form), = resolved(operation["responses"][str(code)])["content"].items()
        answer = json.loads(text) if kind == "application/json" else text.decode()
        check(form["schema"], answer)
        return answer

    def test_a_walk_through_all_of_it(self):
        self.walked: set[str] = set()
        self.ask("GET", "/v1/status")
        assert self.ask("GET", "/v1/vgpus") == []
        made = self.ask("POST", "/v1/vgpus", {"name": "web0", "memory": 1 << 30, "compute": 30, "copy": 20, "cap": 90,
                                              "reserve": 10, "priority": -5, "latency_us": 250, "sharing": "mps",
                                              "group": "ml", "kernel_deadline_ms": 60000, "idle_suspend_s": 600,
                                              "direct_mode": "0600", "guard": False, "allow_machine_code": True,
                                              "clear_shared": True},
                        201)
        assert made["notes"]
        self.ask("POST", "/v1/vgpus", {"name": "web0", "memory": 1 << 30}, 409)
        self.ask("POST", "/v1/vgpus", {"name": "web1"}, 400)
        client = self.direct("web0")
        assert until(lambda: self.ask("GET", "/v1/vgpus/web0")["live"]["processes"])
        assert self.ask("GET", "/v1/vgpus")[0]["live"]["processes"]
        self.ask("GET", "/v1/vgpus/web9", code=404)
        self.ask("PATCH", "/v1/vgpus/web0", {"compute": 40, "memory": 1 << 29})
        self.ask("PATCH", "/v1/vgpus/web0", {"compute": 400}, 400)
        for drained in (True, False):
            assert self.ask("PATCH", "/v1/devices/soft", {"drained": drained})["drained"] == drained
        self.ask("PATCH", "/v1/devices/soft", {"lost": True}, 400)
        self.ask("PATCH", "/v1/devices/soft:9", {"drained": True}, 404)
        self.ask("PATCH", "/v1/vgpus/web0", {"memory": 1 << 50}, 409)
        self.ask("PATCH", "/v1/vgpus/web0", {"latency_us": 3}, 400)
        self.ask("PATCH", "/v1/vgpus/web0", {"latency_us": 50, "sharing": "time-sliced"}, 409)
        self.ask("PATCH", "/v1/vgpus/web0", {"latency_us": 0})
        self.ask("POST", "/v1/vgpus/web0/attach", {"domain": "guest"})
        self.ask("POST", "/v1/vgpus/web0/attach", {"domain": "other"}, 409)
        self.ask("POST", "/v1/vgpus/web0/attach", {}, 400)
        self.ask("POST", "/v1/vgpus/web0/detach")
        self.ask("POST", "/v1/vgpus/web0/resume", code=409)
        self.ask("POST", "/v1/vgpus/web0/suspend", code=409)
        self.ask("PATCH", "/v1/vgpus/web0", {"sharing": "time-sliced"})
        assert self.ask("POST", "/v1/vgpus/web0/suspend")["suspended"]
        self.ask("POST", "/v1/vgpus/web0/suspend", code=409)
        self.ask("POST", "/v1/vgpus/web0/restore", code=409)
        assert self.ask("POST", "/v1/vgpus/web0/save")["socket"].endswith("/web0/files.sock")
        assert not self.ask("POST", "/v1/vgpus/web0/resume")["suspended"]
        self.ask("POST", "/v1/vgpus/web0/save", code=409)
        self.ask("POST", "/v1/vgpus/web0/restore", code=409)
        self.ask("POST", "/v1/vgpus/web9/save", code=404)
        self.ask("POST", "/v1/vgpus/web9/restore", code=404)
        self.ask("POST", "/v1/vgpus/web0/move", {"device": "soft:7"}, 400)
        self.ask("POST", "/v1/vgpus/web2/move", {}, 404)
        assert self.ask("POST", "/v1/vgpus/web0/move", {})["device"] == "soft:1"
        assert self.ask("POST", "/v1/vgpus/web0/move", {"device": "soft"})["device"] == "soft"
        self.ask("POST", "/v1/vgpus/web0/move", {"device": "soft"}, 409)
        built = self.http("GET", "/v1/vgpus/web0/xml")[0]
        self.ask("GET", "/v1/vgpus/web0/xml", code=built)
        assert built in (200, 501)
        assert self.ask("GET", "/v1/scheduler")["queues"] == "mrq"
        self.ask("PATCH", "/v1/scheduler", {"policy": "fifo", "queues": "sdq", "planning": "kernelet"})
        self.ask("PATCH", "/v1/scheduler", {"policy": "best"}, 400)
        self.ask("GET", "/v1/status")  # with a plan
        self.walk_through_segments()
        assert len(self.ask("GET", "/v1/reports/web0")["hours"]) in (1, 2)
        self.ask("GET", "/v1/reports/web0?hours=0", code=400)
        self.ask("GET", "/v1/reports/web9?hours=48", code=404)
        trace = self.ask("POST", "/v1/trace/start", {"seconds": 0.5})
        self.ask("POST", "/v1/trace/start", {"seconds": 0}, 400)
        self.ask("POST", "/v1/trace/start", {"seconds": 1}, 409)
        self.ask("POST", "/v1/trace/take", trace)
        self.ask("POST", "/v1/trace/take", trace, 409)
        self.ask("DELETE", "/v1/vgpus/web0", code=409)
        self.ask("DELETE", "/v1/vgpus/web0?force=1")
        assert self.ask("GET", "/v1/reports/web0?hours=1")["name"] == "web0"
        client.close()
        self.ask("POST", "/v1/shutdown")
        self.daemon.wait(10)
        assert self.walked == set(routes())

    def walk_through_segments(self):
        self.ask("POST", "/v1/vgpus", {"name": "user", "memory": 1 << 28, "device": "soft"}, 201)
        made = {"name": "frames", "vgpu": "web0", "size": 3 << 20}
        assert self.ask("POST", "/v1/segments", made, 201)["bytes"] == 4 << 20
        self.ask("POST", "/v1/segments", made, 409)
        self.ask("POST", "/v1/segments", {**made, "name": "no name"}, 400)
        self.ask("POST", "/v1/segments", {**made, "name": "large", "size": 1 << 50}, 400)
        self.ask("POST", "/v1/segments", {**made, "name": "full", "size": 1 << 29}, 409)
        self.ask("POST", "/v1/segments", {**made, "vgpu": "nobody"}, 404)
        granted = self.ask("POST", "/v1/segments/frames/grant", {"vgpu": "user", "access": "write"})
        assert granted["grants"] == [{"vgpu": "user", "access": "write"}]
        self.ask("POST", "/v1/segments/frames/grant", {"vgpu": "user", "access": "all"}, 400)
        self.ask("POST", "/v1/segments/frames/grant", {"vgpu": "web0", "access": "read"}, 409)
        self.ask("POST", "/v1/segments/none/grant", {"vgpu": "user", "access": "read"}, 404)
        assert until(lambda: self.ask("GET", "/v1/segments")[0]["state"] == "ready")
        assert self.ask("GET", "/v1/vgpus/web0")["live"]["segments"]
        self.ask("DELETE", "/v1/vgpus/web0?force=0", code=409)
        assert self.ask("POST", "/v1/segments/frames/revoke", {"vgpu": "user"})["grants"] == []
        self.ask("POST", "/v1/segments/frames/revoke", {"vgpu": "user"}, 409)
        self.ask("DELETE", "/v1/segments/frames?force=1")
        self.ask("DELETE", "/v1/segments/frames", code=404)
        assert self.ask("GET", "/v1/segments") == []
        self.ask("DELETE", "/v1/vgpus/user?force=1")

    def test_what_is_not_there_is_refused_in_the_same_form(self):
        for method, target, code in (("GET", "/", 404), ("GET", "/v1/nothing", 404), ("DELETE", "/v1/status", 405),
                                     ("PATCH", "/v1/vgpus", 405)):
            seen, text = self.http(method, target)
            assert seen == code
            check(DOCUMENT["components"]["schemas"]["Error"], json.loads(text))
        assert "GET, POST" in json.loads(self.http("PATCH", "/v1/vgpus")[1])["hint"]
