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
        self._said = ffi.new("struct wire_return *")
        if self._carrier == ffi.NULL:
            log.warning("carrier error=%s; every hand-over goes through the machine", os.strerror(ffi.errno))
            return
        self._fd = int(lib.carrier_done_fd(self._carrier))
        loop.add_reader(self._fd, self._done)

    def _done(self) -> None:
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
        channel: int,
        holder: TokenPage,
        holder_epoch: int,
        following: TokenPage,
        epoch: int,
        not_before_ns: int,
        wanting_from_ns: int,
    ) -> None:
        """When `holder_epoch` has drained by what comes from `channel`, show `epoch` in the page that follows.

        Not before that time, and for a holder that wants more at once not before `wanting_from_ns`.
        """
        if channel >= 0 and self._carrier != ffi.NULL:
            lib.carrier_prepare(
                self._carrier,
                gpu,
                channel,
                holder.pointer,
                gpu,
                holder_epoch,
                following.pointer,
                gpu,
                epoch,
                not_before_ns,
                wanting_from_ns,
            )

    def take_back(self, gpu: int) -> int:
        """The order of this GPU is off; 0, or when it had been carried out (monotonic ns)."""
        return 0 if self._carrier == ffi.NULL else int(lib.carrier_take_back(self._carrier, gpu))

    def returned(self, gpu: int) -> Any:
        """Of what `take_back` has just told: the Return (struct wire_return, until the next call) that came with the
        holder's word; None: it comes by message.
        """
        return None if lib.carrier_returned(self._carrier, gpu, self._said) else self._said

    def close(self) -> None:
        """End the thread."""
        if self._carrier != ffi.NULL:
            self._loop.remove_reader(self._fd)
            lib.carrier_stop(self._carrier)
            self._carrier = ffi.NULL
