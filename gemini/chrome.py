"""A recorded run as Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

One process per GPU, one thread per tenant; a tenant waits ("waiting"), then has the token ("token"), from the grant to
the drain confirmed. Revocations, lost leases, overruns and deaths are instants, memory is a counter. The format is the
Trace Event Format, JSON object form; times are microseconds since the daemon's start. Data in, data out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

REASONS = {1: "newcomer", 2: "preempted", 3: "limit", 4: "lease lost", 5: "shutdown"}

TraceEvent = dict[str, Any]


class Entry(Protocol):
    """One recorded event, as scheduler_backend.trace reads it."""

    @property
    def now_ns(self) -> int: ...
    @property
    def event(self) -> Any: ...
    @property
    def actions(self) -> list[tuple[str, list[Any]]]: ...


class Exporter:
    """Turns entries into trace events, in order. `fields` says the field names of an action of the trace."""

    def __init__(self, gpus: list[dict[str, Any]], started_ns: int, fields: dict[str, tuple[str, ...]]) -> None:
        self._started_ns = started_ns
        self._gpus = gpus
        self._fields = fields
        self._threads: dict[tuple[int, str], int] = {}
        self._tenants: dict[int, str] = {}  # client -> tenant
        self._held: dict[tuple[str, int], tuple[int, int]] = {}  # tenant, gpu -> begin, free before
        self._last_ns = started_ns

    def begins_with(self, tenants: dict[int, str], held: dict[tuple[str, int], int]) -> None:
        """What was so before the first entry: the clients' tenants, and who held which GPU since when, in ns."""
        self._tenants.update(tenants)
        self._held.update({key: (begin_ns, 0) for key, begin_ns in held.items()})

    def events(self, entries: Iterable[Entry]) -> Iterator[TraceEvent]:
        for index, gpu in enumerate(self._gpus):
            yield meta("process_name", index + 1, 0, f"GPU {index} {gpu.get('name', '')}".strip())
        for entry in entries:
            self._last_ns = entry.now_ns
            if type(entry.event).__name__ == "ClientJoined":
                self._tenants[entry.event.client] = entry.event.tenant
            if type(entry.event).__name__ == "ClientDied":
                yield from self._died(entry.event.client, entry.now_ns)
            for name, values in entry.actions:
                handler = getattr(self, f"_on_{name}", None)
                if handler is not None:
                    action = dict(zip(self._fields[name], values, strict=False))
                    yield from handler(action, entry.now_ns)
        for (tenant, index), (begin_ns, _gap) in self._held.items():  # still held where the record ends
            yield from self._slice(tenant, index, "token", begin_ns, self._last_ns - begin_ns, {"open": True})

    def _us(self, at_ns: int) -> float:
        return (at_ns - self._started_ns) / 1e3

    def _thread(self, gpu: int, tenant: str) -> Iterator[TraceEvent]:
        if (gpu, tenant) not in self._threads:
            self._threads[gpu, tenant] = len(self._threads) + 1
            yield meta("thread_name", gpu + 1, self._threads[gpu, tenant], tenant)

    def _slice(
        self, tenant: str, gpu: int, name: str, begin_ns: int, length_ns: int, args: dict[str, Any]
    ) -> Iterator[TraceEvent]:
        yield from self._thread(gpu, tenant)
        yield {
            "ph": "X",
            "name": name,
            "cat": "gpu",
            "pid": gpu + 1,
            "tid": self._threads[gpu, tenant],
            "ts": self._us(begin_ns),
            "dur": max(0, length_ns) / 1e3,
            "args": args,
        }

    def _instant(self, tenant: str, gpu: int, name: str, at_ns: int, args: dict[str, Any]) -> Iterator[TraceEvent]:
        yield from self._thread(gpu, tenant)
        thread = self._threads[gpu, tenant]
        common = {"cat": "gpu", "pid": gpu + 1, "tid": thread, "ts": self._us(at_ns)}
        yield {"ph": "i", "name": name, "s": "t", **common, "args": args}

    def _died(self, client: int, now_ns: int) -> Iterator[TraceEvent]:
        tenant = self._tenants.pop(client, None)
        for gpu, name in [key for key in self._threads if key[1] == tenant]:
            yield from self._instant(name, gpu, "process ended", now_ns, {"client": client})

    def _on_Handed(self, action: dict[str, Any], now_ns: int) -> Iterator[TraceEvent]:
        tenant, gpu, wait_ns = action["tenant"], action["gpu"], action["wait_ns"]
        if wait_ns > 0:
            yield from self._slice(tenant, gpu, "waiting", now_ns - wait_ns, wait_ns, {"epoch": action["epoch"]})
        self._held[tenant, gpu] = now_ns, action["gap_ns"]

    def _on_Charged(self, action: dict[str, Any], now_ns: int) -> Iterator[TraceEvent]:
        tenant, gpu = action["tenant"], action["gpu"]
        begin_ns, gap_ns = self._held.pop((tenant, gpu), (now_ns - action["held_ns"], 0))
        args = {
            "epoch": action["epoch"],
            "held_ms": action["held_ns"] / 1e6,
            "busy_ms": action["busy_ns"] / 1e6,
            "overuse_ms": action["overuse_ns"] / 1e6,
            "free_before_us": gap_ns / 1e3,
            "launches": action["launches"],
        }
        yield from self._slice(tenant, gpu, "token", begin_ns, now_ns - begin_ns, args)

    def _on_Revoke(self, action: dict[str, Any], now_ns: int) -> Iterator[TraceEvent]:
        tenant = self._tenants.get(action["client"])
        if tenant is not None:
            reason = REASONS.get(action["reason"], str(action["reason"]))
            args = {"epoch": action["epoch"], "reason": reason}
            yield from self._instant(tenant, action["gpu"], "revoked", now_ns, args)

    def _on_LeaseLost(self, action: dict[str, Any], now_ns: int) -> Iterator[TraceEvent]:
        yield from self._instant(action["tenant"], action["gpu"], "lease lost", now_ns, {"epoch": action["epoch"]})

    def _on_Overran(self, action: dict[str, Any], now_ns: int) -> Iterator[TraceEvent]:
        yield from self._instant(action["tenant"], action["gpu"], "overran", now_ns, {"epoch": action["epoch"]})

    def _on_MemReply(self, action: dict[str, Any], now_ns: int) -> Iterator[TraceEvent]:
        tenant = self._tenants.get(action["client"])
        if tenant is not None:
            name, used = f"memory of {tenant}", {"bytes": action["used_bytes"]}
            yield {"ph": "C", "name": name, "pid": action["gpu"] + 1, "tid": 0, "ts": self._us(now_ns), "args": used}


def meta(kind: str, process: int, thread: int, name: str) -> TraceEvent:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "ts": 0, "args": {"name": name}}
