"""Who may come in: connections of tenants' processes are accepted, or wait in the kernel for a while.

A tenant whose processes come ever anew is not listened to for a while, nor are those of a user that has as many of our
descriptors as one user may. Where descriptors are short nobody new is let in.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time

from scheduler_backend import descriptors
from scheduler_backend.bounds import USERS_PART
from scheduler_backend.endpoint import DESCRIPTORS_OF_PAGE, Endpoint
from scheduler_backend.roster import Roster

log = logging.getLogger("gemini.server")

OPEN_AGAIN_SECONDS, SHUT_OUT_SECONDS = 0.1, 2.0  # after a tenant's processes came too often, at least and at most


class Doors:
    """Of all tenants."""

    def __init__(self, loop: asyncio.AbstractEventLoop, roster: Roster) -> None:
        self.loop, self.roster = loop, roster
        self._room = descriptors.Room()
        self._deaf = False  # descriptors are short

    def knock(self, endpoint: Endpoint) -> None:
        """Somebody wants to come in. A tenant whose processes come ever anew is not listened to for a while."""
        now_ns = time.monotonic_ns()
        if self._crowds(endpoint):
            self._keep_out(endpoint, now_ns, OPEN_AGAIN_SECONDS, "descriptors")
            return
        try:
            came = endpoint.accept(now_ns)
        except OSError as error:  # no descriptor is left, to us or to this machine
            log.warning("accept tenant=%s error=%s", endpoint.name, error)
            self._mind_room(False)
            return
        if came and not self._room.take(came):
            self._mind_room(False)
        if endpoint.newcomers.left >= 1 or endpoint.shut:
            return
        pause = min(max(OPEN_AGAIN_SECONDS, endpoint.newcomers.lacks_seconds()), SHUT_OUT_SECONDS)
        self._keep_out(endpoint, now_ns, pause, "connections")

    def _keep_out(self, endpoint: Endpoint, now_ns: int, seconds: float, reason: str) -> None:
        endpoint.shut_out()
        endpoint.pauses += 1
        if endpoint.complaints.spend(now_ns):
            log.warning("shut-out tenant=%s seconds=%.1f reason=%s", endpoint.name, seconds, reason)
        self.loop.call_later(seconds, self._let_in, endpoint)

    def _crowds(self, endpoint: Endpoint) -> bool:
        """Have the tenants of its user as many descriptors as one user may? Else one would have all, and nobody new be
        let in."""
        owner = endpoint.person
        if owner in (None, 0, os.geteuid()):
            return False
        return self.roster.descriptors_of(owner) >= descriptors.limit() // USERS_PART

    def _let_in(self, endpoint: Endpoint) -> None:
        if self.roster.is_there(endpoint) and not self._deaf:
            endpoint.open()

    def look_after(self) -> None:
        """Files of sockets that somebody removed are made anew, so that processes may still join; nobody is cut off.
        What fails is tried again at the next look. Who does not end its handshake is cut off."""
        self._mind_room(self._room.count())
        now_ns = time.monotonic_ns()
        for endpoint in self.roster.endpoints.values():
            if (late := endpoint.end_slow(now_ns)) and endpoint.complaints.spend(now_ns):
                log.warning("handshake-late tenant=%s connections=%d", endpoint.name, late)
            if endpoint.complete():
                continue
            log.warning("sockets-made-anew tenant=%s folder=%s", endpoint.name, endpoint.folder)
            try:
                endpoint.reopen()
            except OSError as error:
                log.error("sockets-lost tenant=%s error=%s", endpoint.name, error)

    def _mind_room(self, room: bool) -> None:
        """Listen to those who are new; where there is no room for them, to nobody."""
        if room != self._deaf:
            return
        self._deaf = not room
        log.warning("descriptors short=%s; nobody new is listened to while they are", self._deaf)
        for endpoint in self.roster.endpoints.values():
            if room:
                self._let_in(endpoint)
            else:
                endpoint.shut_out()

    def has_room_for_page(self, endpoint: Endpoint) -> bool:
        """May one more page connection of this tenant be accepted?"""
        if self._crowds(endpoint):
            return False
        if not self._deaf and not self._room.take(DESCRIPTORS_OF_PAGE):
            self._mind_room(False)
        return not self._deaf
