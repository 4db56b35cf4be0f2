"""A proxy on a tenant's ZeroMQ socket that loses, doubles or delays messages of one type, or says another version.

    python -m bench.proxy LISTEN TARGET

It reads one order a line from stdin, {"type": 3, "mode": "lose", "down": false, "flag": 0, "ms": 50}, and answers each
line on stdout with what the order before it did, {"applied": 7}. An order holds until the next one; {} passes all, and
{"tell": true} is no order: it only asks. "cut": true closes every connection first; "spoil": 1 makes nonsense of the
next message to the daemon, which answers with an Error. The bytes of a stream keep their order, as a socket's do: a
message that is late holds up what comes after it. It knows frames and the wire's header (libhook/core/wire.h) and
nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
import sys
import time
from typing import Any

GREETING = 64  # bytes of ZMTP before the first frame
NO_TYPE = 99  # of a message


def _with_byte(frame: bytes, at: int, byte: int) -> bytes:
    return frame[:at] + bytes([byte]) + frame[at + 1 :]


class Flow:
    """One direction of one connection."""

    def __init__(self, source: socket.socket, target: socket.socket, down: bool) -> None:
        self.source, self.target, self.down = source, target, down
        self.greeted = 0
        self.taken = b""
        self.out = b""
        self.held: list[tuple[float, bytes]] = []  # what is late, and all that came after it

    def frames(self, more: bytes) -> list[bytes]:
        """Whole frames out of the stream; the greeting passes as it is."""
        self.taken += more
        found = []
        if self.greeted < GREETING:
            part = self.taken[: GREETING - self.greeted]
            self.greeted += len(part)
            self.taken = self.taken[len(part) :]
            found.append(part)
        while len(self.taken) >= 2:
            head = 9 if self.taken[0] & 2 else 2
            if len(self.taken) < head:
                break
            size = self.taken[1] if head == 2 else struct.unpack(">Q", self.taken[1:9])[0]
            if len(self.taken) < head + size:
                break
            found.append(self.taken[: head + size])
            self.taken = self.taken[head + size :]
        return found


class Proxy:
    def __init__(self, listen: str, target: str) -> None:
        self.target = target
        self.order: dict[str, Any] = {}
        self.applied = 0
        self.flows: dict[socket.socket, Flow] = {}
        self.select = selectors.DefaultSelector()
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(listen)
        os.chmod(listen, 0o666)
        self.server.listen(64)
        self.select.register(self.server, selectors.EVENT_READ)
        self.select.register(0, selectors.EVENT_READ)
        self.words = b""

    def run(self) -> None:
        while True:
            late = [flow.held[0][0] for flow in self.flows.values() if flow.held]
            timeout = max(0.0, min(late) - time.monotonic()) if late else None
            for key, _ in self.select.select(timeout):
                if key.fileobj is self.server:
                    self.accept()
                elif isinstance(key.fileobj, socket.socket):
                    if key.fileobj in self.flows:
                        self.read(self.flows[key.fileobj])
                elif not self.obey():
                    return
            for flow in list(self.flows.values()):
                self.release(flow)

    def accept(self) -> None:
        client, _ = self.server.accept()
        daemon = socket.socket(socket.AF_UNIX)
        try:
            daemon.connect(self.target)
        except OSError:
            client.close()
            return
        for source, target, down in ((client, daemon, False), (daemon, client, True)):
            self.flows[source] = Flow(source, target, down)
            self.select.register(source, selectors.EVENT_READ)

    def close(self, flow: Flow) -> None:
        for end in (flow.source, flow.target):
            if self.flows.pop(end, None) is not None:
                self.select.unregister(end)
                end.close()

    def read(self, flow: Flow) -> None:
        try:
            more = flow.source.recv(65536)
        except OSError:
            more = b""
        if not more:
            self.close(flow)
            return
        for frame in flow.frames(more):
            for passed, delay in self.judge(frame, flow.down):
                if delay or flow.held:
                    flow.held.append((max(time.monotonic() + delay, flow.held[-1][0] if flow.held else 0), passed))
                else:
                    self.write(flow, passed)

    def judge(self, frame: bytes, down: bool) -> list[tuple[bytes, float]]:
        """What becomes of a frame: (bytes, seconds late)."""
        order = self.order
        body = frame[9:] if frame[0] & 2 else frame[2:]
        if "mode" not in order or frame[0] & 4 or len(body) < 16 or body[:2] != b"GM":
            return [(frame, 0)]
        if order["mode"] == "version":
            self.applied += 1
            return [(_with_byte(frame, len(frame) - len(body) + 2, order["version"]), 0)]
        if not down and order.get("spoil"):
            order["spoil"] -= 1
            return [(_with_byte(frame, len(frame) - len(body) + 3, NO_TYPE), 0)]
        flag = order.get("flag", 0)
        if order["down"] != down or body[3] != order["type"] or (flag and not body[20] & flag):
            return [(frame, 0)]
        self.applied += 1
        if order["mode"] == "lose":
            return []
        return [(frame, 0), (frame, 0)] if order["mode"] == "double" else [(frame, order["ms"] / 1000)]

    def release(self, flow: Flow) -> None:
        while flow.held and flow.held[0][0] <= time.monotonic():
            self.write(flow, flow.held.pop(0)[1])

    def write(self, flow: Flow, part: bytes) -> None:
        with contextlib.suppress(OSError):  # the other end is gone: its own side will say so
            flow.target.sendall(part)

    def obey(self) -> bool:
        more = os.read(0, 65536)
        if not more:
            return False
        self.words += more
        while b"\n" in self.words:
            line, self.words = self.words.split(b"\n", 1)
            order = json.loads(line)
            print(json.dumps({"applied": self.applied}), flush=True)
            if order.get("tell"):
                continue
            self.order, self.applied = order, 0
            if self.order.get("cut"):
                for flow in list(self.flows.values()):
                    self.close(flow)
        return True


if __name__ == "__main__":
    Proxy(sys.argv[1], sys.argv[2]).run()
