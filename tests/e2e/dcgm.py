"""NVIDIA's DCGM exporter, as far as our boards ask it. The real one needs a real card."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator, Sequence

ROWS = (("DCGM_FI_DEV_GPU_UTIL", 87), ("DCGM_FI_DEV_FB_USED", 9000))  # two of its default counters


@contextlib.contextmanager
def dcgm_exporter(uuids: Sequence[str]) -> Iterator[str]:
    """Serves these cards' figures with the labels that the real one gives them; yields its URL."""
    page = "".join(
        f'# TYPE {name} gauge\n{name}{{gpu="{at}",UUID="{uuid}",device="nvidia{at}",modelName="NVIDIA H200"}} {value}\n'
        for name, value in ROWS
        for at, uuid in enumerate(uuids)
    ).encode()

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_words: object) -> None:
            """Not into the test's output."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
