"""Spans for an OpenTelemetry collector: what a real vgpud posts, and what it does where nobody takes it."""
import contextlib
import http.server
import json
import threading

from daemon_case import DaemonCase, UnixConnection, until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(http.server.ThreadingHTTPServer):
    def __init__(self, port):
        super().__init__(("127.0.0.1", port), Receiver)
        self.posts = []


class Receiver(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self):
        posted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.posts.append((self.path, self.headers["Content-Type"], posted))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def collector(port=0):
    server = Collector(port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def spans(server):
    return [span for _, _, post in server.posts for resource in post["resourceSpans"]
            for scope in resource["scopeSpans"] for span in scope["spans"]]


def attributes(span):
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


class TestSpans(DaemonCase):
    def start_with(self, port):
        self.daemon.terminate()
        self.daemon.wait(10)
        self.config.write_text(f'[device]\nmemory = "16G"\n[metrics]\ntraces = "127.0.0.1:{port}"\n')
        self.start()

    def test_each_change_is_a_span(self):
        with collector() as server:
            self.start_with(server.server_port)
            self.ok("create", "web0", "--memory", "1G", "--compute", "30")
            self.ok("list")
            connection = UnixConnection(str(self.folder / "run/control.sock"))
            connection.request("PATCH", "/v1/vgpus/web0", json.dumps({"compute": 20}),
                               {"traceparent": f"00-{TRACE}-{PARENT}-01"})
            assert connection.getresponse().read()
            connection.close()
            assert self.http("DELETE", "/v1/vgpus/other")[0] == 404
            assert until(lambda: len(spans(server)) == 3), server.posts
        create, change, refused = spans(server)
        assert all((path, kind) == ("/v1/traces", "application/json") for path, kind, _ in server.posts)
        assert [one["name"] for one in (create, change, refused)] == [
            "POST /v1/vgpus", "PATCH /v1/vgpus/{name}", "DELETE /v1/vgpus/{name}"]
        assert (change["traceId"], change["parentSpanId"]) == (TRACE, PARENT)
        assert "parentSpanId" not in create and len(create["traceId"]) == 32 and len(create["spanId"]) == 16
        assert int(create["startTimeUnixNano"]) <= int(create["endTimeUnixNano"]) <= int(change["endTimeUnixNano"])
        assert (attributes(change)["vgpu"], attributes(change)["http.response.status_code"]) == ("web0", "200")
        assert [one["status"]["code"] for one in (create, change, refused)] == [1, 1, 2]

    def test_without_a_collector_nothing_else_changes(self):
        with collector() as server:
            port = server.server_port
        self.start_with(port)
        for compute in ("30", "20"):
            self.ok("create" if compute == "30" else "set", "web0", "--memory", "1G", "--compute", compute)
            assert until(lambda: "does not take them (no answer)" in (self.folder / "log").read_text())
        with collector(port) as server:
            self.ok("set", "web0", "--compute", "10")
            assert until(lambda: spans(server))
            assert until(lambda: "takes them again" in (self.folder / "log").read_text())
        assert (self.folder / "log").read_text().count("does not take them") == 1
