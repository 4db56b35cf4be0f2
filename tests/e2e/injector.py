"""A webhook of somebody else's on the control plane: it adds a container to each pod once, as meshes and agents do."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.e2e.plane import Plane


@contextmanager
def injector(plane: Plane, hook: str, container: str, native: bool = False) -> Iterator[list[int]]:
    """`hook`: the configuration's name, by which the API server orders webhooks. Yields what counts its calls."""
    calls = [0]
    sidecar: dict[str, Any] = {"name": container, "image": "mesh", "resources": {"requests": {"cpu": "1m"}}}
    part = "initContainers" if native else "containers"

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name is http.server's
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            calls[0] += 1
            spec, patch = request["object"]["spec"], []
            if container not in [one["name"] for one in spec.get(part) or ()]:
                added = {**sidecar, "restartPolicy": "Always"} if native else sidecar
                op = {"op": "add", "path": f"/spec/{part}/-", "value": added}
                patch = [op if spec.get(part) else {**op, "path": f"/spec/{part}", "value": [added]}]
            answer: dict[str, Any] = {"uid": request["uid"], "allowed": True}
            if patch:
                answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
            body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = plane.authority.issue(hook, hosts=("127.0.0.1",)).server_context()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"https://127.0.0.1:{server.server_address[1]}/inject"
        with plane.webhook(hook, url, reinvocationPolicy="IfNeeded"):
            yield calls
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
