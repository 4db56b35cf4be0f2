"""A ROUTER that answers at once and decides nothing: the floor under a hand-over by messages alone (bench/handover.py).

    python -m bench.echo ROUNDS

prints {"p50": .., "p99": ..}: microseconds from a message's send to its answer, every 4.5 ms. The client speaks ZMTP on
a plain socket, as the library does; the other end is a pyzmq ROUTER in another process, which waits for nothing else. A
hand-over by messages is such a round, a Return and then a Grant, but for what is decided between the two.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import sys
import tempfile
import time

import numpy as np
import zmq

from bench.flood import OPENING, frame

PAUSE_S = 0.0045
PATIENCE_S = 60.0
MESSAGE = bytes(96)  # as long as a Return


def answer(path: str) -> None:
    router: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    router.bind(f"ipc://{path}")
    while True:
        router.send_multipart(router.recv_multipart())


def connect(path: str) -> socket.socket:
    """A greeted connection; the other end may only be starting."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(path)
            break
        except OSError:
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.sendall(OPENING)
    said = b""
    while b"ROUTER" not in said:  # it takes messages only once it has said its own part
        said += heard(connection, 4096)
    return connection


def heard(connection: socket.socket, most: int) -> bytes:
    octets = connection.recv(most)
    if not octets:
        raise ConnectionError("the ROUTER closed the connection")
    return octets


def rounds_us(path: str, rounds: int) -> list[float]:
    connection, found = connect(path), []
    for _ in range(rounds):
        time.sleep(PAUSE_S)
        at_ns, left = time.monotonic_ns(), len(frame(MESSAGE))
        connection.sendall(frame(MESSAGE))
        while left:
            left -= len(heard(connection, left))
        found.append((time.monotonic_ns() - at_ns) / 1e3)
    connection.close()
    return found


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="gemini-echo-") as folder:
        path = f"{folder}/echo"
        process = multiprocessing.get_context("spawn").Process(target=answer, args=(path,), daemon=True)
        process.start()
        try:
            found = rounds_us(path, int(sys.argv[1]))
        finally:
            process.kill()
            process.join()
    print(json.dumps({"p50": float(np.percentile(found, 50)), "p99": float(np.percentile(found, 99))}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
