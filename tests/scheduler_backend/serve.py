"""The daemon as its own process, on two cards that need no NVML: `python serve.py [daemon's options]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import uvloop

from libhook.core import lib
from scheduler_backend import app, config, logs, subids
from scheduler_backend.devices import Gpu
from scheduler_backend.problem import Problem

GPUS = [Gpu(index, f"GPU-0000000{index}-1111-2222-3333-444444444444", "Paper GPU", 80 << 30, True) for index in (0, 1)]


def main() -> int:
    parser = argparse.ArgumentParser()
    config.configure(parser)
    parser.add_argument("--subuid", type=Path, help="in the place of /etc/subuid")
    parser.add_argument("--rights-are-sought", action="store_true", help="as on a kernel that cannot refuse them")
    told = parser.parse_args()
    if told.rights_are_sought:
        lib.rights_forget_option()
    if told.subuid is not None:
        subids.lent.file = told.subuid
    settings = config.read_settings(told)
    logs.start(settings.log.upper(), force=True)

    async def run() -> None:
        await app.Daemon(settings, GPUS).run()

    try:
        uvloop.run(run())
    except Problem as error:
        print(f"gemini: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
