"""The node daemon as the plugin speaks to it: tenants registered and removed, over its control socket."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from scheduler_backend import private
from scheduler_backend.problem import Problem

CALL_SECONDS = 5.0


class DaemonFault(Exception):
    """The daemon did not do it; one line that goes to the pod's events. `clash`: it is promised already."""

    def __init__(self, text: str, clash: bool = False) -> None:
        super().__init__(text)
        self.clash = clash


class Daemon:
    def __init__(self, state_dir: Path) -> None:
        self.control = state_dir / "control.sock"

    async def tenants(self) -> dict[str, dict[str, Any]]:
        """All tenants by name, as /state tells them."""
        answer = await self._ask("GET", "/state")
        return {tenant["name"]: tenant for tenant in answer.get("tenants", [])}

    async def cards(self) -> dict[str, int]:
        """Bytes of memory of each card, by its uuid."""
        answer = await self._ask("GET", "/state")
        return {card["uuid"]: card["memory_bytes"] for card in answer.get("devices", [])}

    async def register(self, spec: Mapping[str, Any]) -> None:
        """Makes the tenant, or changes the one of that name: it is ours alone."""
        try:
            await self._ask("POST", "/tenants", spec)
        except DaemonFault as fault:
            if not fault.clash or spec["name"] not in await self.tenants():
                raise
            change = {key: value for key, value in spec.items() if key not in ("name", "gpus")}
            await self._ask("PATCH", f"/tenants/{spec['name']}", change)

    async def change(self, spec: Mapping[str, Any]) -> None:
        """Gives the tenant of that name other amounts, all or none: not where it has more memory in use."""
        change = {key: value for key, value in spec.items() if key not in ("name", "gpus")}
        await self._ask("PATCH", f"/tenants/{spec['name']}", {**change, "holding": True})

    async def remove(self, name: str) -> None:
        """No fault where there is none of that name."""
        try:
            await self._ask("DELETE", f"/tenants/{name}")
        except DaemonFault:
            if name in await self.tenants():
                raise

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        try:
            private.check_daemon_folder(self.control.parent)
            connector = aiohttp.UnixConnector(str(self.control))
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.request(method, f"http://gemini{path}", json=body) as reply,
            ):
                answer = await reply.json(content_type=None)
        except Problem as problem:
            raise DaemonFault(str(problem)) from None
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            why = str(error) or "no word within its time"
            raise DaemonFault(
                f"no answer from the daemon at {self.control} ({why}); see that gemini serve runs on this node with "
                "the same --state-dir"
            ) from None
        if reply.status >= 400:
            said = answer.get("error") if isinstance(answer, dict) else None
            raise DaemonFault(
                f"the daemon refuses {method} {path}: {said or reply.status}; gemini ps shows what it has",
                reply.status == 409,
            )
        return answer if isinstance(answer, dict) else {}
