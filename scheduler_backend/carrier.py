"""The carrier (libhook/carrier) as the server sees it: orders go out, and come back as done or not.

The thread in C stores epochs into token pages and wakes who sleeps there; this module has its descriptor and numbers.
Only the loop's thread calls it. Where the thread cannot be had, no order is taken and every hand-over goes through the
machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from typing import Any

from libhook.core import ffi, lib
from scheduler_backend.page import TokenPage

log = logging.getLogger("gemini.carrier")


class Carrier:
    """`on_done` is called in the loop soon after an order was carried out; `take_back` says which."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_done: Callable[[], None]) -> None:
        self._loop, self._on_done = loop, on_done
        self._carrier = lib.carrier_start()
        self._done = ffi.new("struct carrier_done[]", lib.CARRIER_AHEAD)
        if self._carrier == ffi.NULL:
            log.warning("carrier error=%s; every hand-over goes through the machine", os.strerror(ffi.errno))
            return
        self._fd = int(lib.carrier_done_fd(self._carrier))
        loop.add_reader(self._fd, self._ready)

    def _ready(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
        self._on_done()

    def listen(self, fd: int, account: int) -> int:
        """Listen to a page connection; its number, or below 0 where that cannot be. `account` is its tenant's number:
        who says too much on all of its connections together is not listened to.
        """
        return -1 if self._carrier == ffi.NULL else int(lib.carrier_listen(self._carrier, fd, account))

    def forget(self, number: int) -> None:
        """Do not listen to it any more; a number below 0 is none."""
        if number >= 0 and self._carrier != ffi.NULL:
            lib.carrier_forget(self._carrier, number)

    def prepare(
        self,
        gpu: int,
        behind: bool,
        channel: int,
        holder: TokenPage,
        holder_epoch: int,
        following: TokenPage,
        epoch: int,
        not_before_ns: int,
        wanting_from_ns: int,
        by_message: bool,
    ) -> None:
        """When `holder_epoch` has drained by what comes from `channel`, show `epoch` in the page that follows.

        Not before that time, and for a holder that wants more at once not before `wanting_from_ns`. Instead of all
        orders of this GPU, or `behind` them: then it counts, and that time is from, when the last of them was carried
        out for a holder that wanted more. by_message: who is next has no page, and waits for our word.
        """
        if channel >= 0 and self._carrier != ffi.NULL:
            lib.carrier_prepare(
                self._carrier,
                gpu,
                behind,
                channel,
                holder.pointer,
                gpu,
                holder_epoch,
                following.pointer,
                gpu,
                epoch,
                not_before_ns,
                wanting_from_ns,
                by_message,
            )

    def take_back(self, gpu: int) -> list[Any]:
        """The orders of this GPU are off; those that had been carried out, struct carrier_done until the next call."""
        if self._carrier == ffi.NULL:
            return []
        done = self._done
        return [done[i] for i in range(lib.carrier_take_back(self._carrier, gpu, done))]

    def carried(self, gpu: int) -> bool:
        """Was something carried out that take_back() has not told yet?"""
        return self._carrier != ffi.NULL and bool(lib.carrier_carried(self._carrier, gpu))

    def close(self) -> None:
        """End the thread."""
        if self._carrier != ffi.NULL:
            self._loop.remove_reader(self._fd)
            lib.carrier_stop(self._carrier)
            self._carrier = ffi.NULL
