"""A stand-in for the cluster's API server: nodes, ResourceSlices and ResourceClaims, and its refusals."""
import http.server
import json
import threading

from lab.kubernetes_objects import check

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: "_Server"
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        pass

    def _answer(self, status: int, content: dict) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _status(self, code: int, message: str) -> None:
        self._answer(code, {"kind": "Status", "status": "Failure", "code": code, "message": message})

    def _body(self) -> dict:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        check(body)
        return body

    def do_GET(self) -> None:
        objects = self.server.stand_in.objects
        if self.path in objects:
            self._answer(200, objects[self.path])
        else:
            self._status(404, f'"{self.path.rpartition("/")[2]}" not found')

    def do_POST(self) -> None:
        stand_in, body = self.server.stand_in, self._body()
        stand_in.put(f"{self.path}/{body['metadata']['name']}", body)
        self._answer(201, body)

    def do_PUT(self) -> None:
        stand_in, body = self.server.stand_in, self._body()
        if body["metadata"].get("resourceVersion") != stand_in.objects[self.path]["metadata"]["resourceVersion"]:
            self._status(409, "the object has been modified")
            return
        stand_in.put(self.path, body)
        self._answer(200, body)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    stand_in: "ApiServer"


class ApiServer:
    def __init__(self) -> None:
        self.objects: dict[str, dict] = {}
        self._version = 0
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.stand_in = self
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def put(self, path: str, content: dict) -> None:
        self._version += 1
        content["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = content

    def put_claim(self, name: str, uid: str, results: list[dict], config: list[dict] | None = None) -> None:
        """As the scheduler has left it."""
        devices = {"results": results, **({"config": config} if config else {})}
        claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                 "metadata": {"name": name, "namespace": "default", "uid": uid},
                 "spec": {"devices": {}}, "status": {"allocation": {"devices": devices}}}
        check(claim)
        self.put(f"{CLAIMS}/{name}", claim)

    def slices(self) -> list[dict]:
        return [one for path, one in self.objects.items() if path.startswith(SLICES)]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
