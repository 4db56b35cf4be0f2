"""Webhooks of somebody else's on the control plane: each adds its containers to a pod once, as meshes and agents do."""

from __future__ import annotations

import base64
import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.e2e.api import Object
from tests.e2e.plane import Plane


@dataclass(frozen=True)
class Kind:
    """What an injector adds. `init`: an init container besides; `native`: the sidecar is an init container that goes
    on; `first`: it comes before the pod's own containers; `mounted`: a folder that it gives to every container; `asks`:
    the resource of which it asks for one."""

    sidecar: str
    init: str = ""
    native: bool = False
    first: bool = False
    mounted: str = ""
    asks: str = ""

    def into(self, pod: Object) -> Object:
        """The pod with what is added; the pod itself where it is there already."""
        spec = pod["spec"]
        if any(one["name"] == self.sidecar for one in [*spec["containers"], *spec.get("initContainers", ())]):
            return pod
        made = copy.deepcopy(pod)
        spec = made["spec"]
        added: Object = {"name": self.sidecar, "image": "mesh", "resources": {"requests": {"cpu": "1m"}}}
        inits = spec.setdefault("initContainers", []) if self.init or self.native else []
        if self.asks:
            added["resources"] = {"limits": {self.asks: "1"}}
        if self.native:
            inits.insert(0, {**added, "restartPolicy": "Always"})
        else:
            spec["containers"].insert(0 if self.first else len(spec["containers"]), added)
        if self.init:
            inits.insert(0, {"name": self.init, "image": "mesh"})
        if self.mounted:
            spec.setdefault("volumes", []).append({"name": self.sidecar, "emptyDir": {}})
            for one in [*spec["containers"], *spec.get("initContainers", ())]:
                one.setdefault("volumeMounts", []).append({"name": self.sidecar, "mountPath": self.mounted})
        return made

    @property
    def names(self) -> set[str]:
        return {self.sidecar, self.init} - {""}


ISTIO = Kind("istio-proxy", "istio-init", first=True)
NATIVE_ISTIO = Kind("istio-proxy", "istio-init", native=True)
LINKERD = Kind("linkerd-proxy", "linkerd-init", native=True)
VAULT = Kind("vault-agent", "vault-agent-init", mounted="/vault/secrets")


@contextmanager
def injector(plane: Plane, hook: str, kind: Kind) -> Iterator[list[Object]]:
    """`hook`: the configuration's name, by which the API server orders webhooks. Yields the pods that it was shown."""
    seen: list[Object] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name is http.server's
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            pod = request["object"]
            seen.append(pod)
            made = kind.into(pod)
            answer: dict[str, Any] = {"uid": request["uid"], "allowed": True}
            if made is not pod:
                patch = json.dumps([{"op": "replace", "path": "/spec", "value": made["spec"]}]).encode()
                answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
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
            yield seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
