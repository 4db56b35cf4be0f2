"""A fake client as a process of its own: takes the token, says so, forks if told to, and waits to be killed."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tests.scheduler_backend.rig import Client


def main() -> None:
    path, children = Path(sys.argv[1]), int(sys.argv[2])
    memory = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    client = Client(path)
    if memory:
        from libhook.core import lib

        client.send(lib.WIRE_MEM_RESERVE, device=client.device(0), **{"bytes": memory})
        client.expect(lib.WIRE_MEM_REPLY)
    client.ask()
    grant = client.grant()
    pids = []
    for _ in range(children):
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        pids.append(pid)
    print(grant.epoch, *pids, flush=True)
    time.sleep(30)


if __name__ == "__main__":
    main()
