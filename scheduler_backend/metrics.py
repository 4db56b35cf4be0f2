"""Prometheus metrics, made from the server's counts when somebody scrapes; the hot path pays nothing.

One table names them all. Labels are tenants and GPUs of this node, so cardinality is bounded by what is registered; a
tenant that is gone takes its series along.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from libhook import info
from scheduler_backend import bounds
from scheduler_backend.core.policy import entitled_shares
from scheduler_backend.core.seat import State
from scheduler_backend.tally import BUSY

if TYPE_CHECKING:
    from scheduler_backend.server import Server
    from scheduler_backend.tally import Series

Sample = tuple[list[str], float]
_CODES = ("EINVAL", "EMSGSIZE", "ENODEV", "EPROTO", "EPROTONOSUPPORT", "EUSERS")


class Row(NamedTuple):
    """One metric: what it says, its labels, and where its samples come from."""

    name: str
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily]
    text: str
    labels: tuple[str, ...]
    samples: Callable[[Server], Iterator[Sample]]


def _seats(value: Callable[[Server, str, int], float]) -> Callable[[Server], Iterator[Sample]]:
    def samples(server: Server) -> Iterator[Sample]:
        for tenant, gpu in server.tallies:
            yield [tenant, server.gpus[gpu].uuid], value(server, tenant, gpu)

    return samples


def _tenants(value: Callable[[Server, str], float]) -> Callable[[Server], Iterator[Sample]]:
    def samples(server: Server) -> Iterator[Sample]:
        for tenant in server.endpoints:
            yield [tenant], value(server, tenant)

    return samples


def _quantiles(series: Callable[[Server, str, int], Series]) -> Callable[[Server], Iterator[Sample]]:
    def samples(server: Server) -> Iterator[Sample]:
        for tenant, gpu in server.tallies:
            for part in (0.5, 0.99):
                value = series(server, tenant, gpu).ms(part)
                yield [tenant, server.gpus[gpu].uuid, str(part)], (value or 0.0) / 1e3

    return samples


def _gaps(server: Server) -> Iterator[Sample]:
    for gpu, series in zip(server.gpus, server.tally.gaps, strict=True):
        for part in (0.5, 0.99):
            yield [gpu.uuid, str(part)], (series.ms(part) or 0.0) / 1e3


def _holding(server: Server) -> Iterator[Sample]:
    for tenant, gpu in server.tallies:
        holder = server.node.machines[gpu].holder
        yield [tenant, server.gpus[gpu].uuid], float(holder is not None and holder.name == tenant)


def _entitled(server: Server) -> Iterator[Sample]:
    shares = [entitled(server, gpu.index) for gpu in server.gpus]
    for tenant, gpu in server.tallies:
        yield [tenant, server.gpus[gpu].uuid], shares[gpu].get(tenant, 0) / 1e6


def _waited_ns(server: Server, tenant: str, gpu: int) -> int:
    """Time waited for the token up to now: one that never gets it waits too."""
    seat = server.node.machines[gpu].seats[tenant]
    waits_ns = time.monotonic_ns() - seat.waiting_since_ns if seat.state is State.WAITING else 0
    return server.tallies[tenant, gpu].wait.sum_ns + waits_ns


def _waited_lately_ns(server: Server, tenant: str, gpu: int, now_ns: int) -> int:
    """Of the last window."""
    machine = server.node.machines[gpu]
    seat = machine.seats[tenant]
    waits_ns = now_ns - seat.waiting_since_ns if seat.state in (State.WAITING, State.PAUSED) else 0
    return min(machine.policy.window_ns, server.tallies[tenant, gpu].waited.used_ns(now_ns) + waits_ns)


def _cards(value: Callable[[Server, int], float]) -> Callable[[Server], Iterator[Sample]]:
    def samples(server: Server) -> Iterator[Sample]:
        for gpu in server.gpus:
            yield [gpu.uuid], value(server, gpu.index)

    return samples


def _refused(server: Server) -> Iterator[Sample]:
    for code in {**dict.fromkeys(_CODES), **server.refused}:  # what begins with 1 has not grown, for Prometheus
        yield [code], float(server.refused.get(code, 0))


def _build(server: Server) -> Iterator[Sample]:
    yield list(info.build().values()), 1.0


def _trace_lost(server: Server) -> Iterator[Sample]:
    yield [], float(server.recorder.lost)


def _counted(server: Server, tenant: str, name: str) -> float:
    return float(server.endpoints[tenant].counters.total()[name])


def enforced(server: Server, tenant: str) -> str:
    """Is the promise kept by our library in all that this tenant runs? "yes", or why that cannot be said.

    "outside": a process of its is on a card without the library. "ungated calls": a process was handed driver entries
    newer than the library knows. "says too little": the card says that it used more than it told us; it has turns and
    is charged what it holds. "no process": none is there, or none has used a card yet.
    """
    if server.outside.count(tenant):
        return "outside"
    if _counted(server, tenant, "ungated_lookups"):
        return "ungated calls"
    machines = server.node.machines
    if any(not machines[gpu].seats[tenant].duty.believed for gpu in server.node.tenants[tenant].gpus):
        return "says too little"
    return "yes" if server.endpoints[tenant].by_nonce else "no process"


def entitled(server: Server, gpu: int) -> dict[str, int]:
    """What the policy owes the tenants of one GPU if all are always busy, in ppm."""
    return entitled_shares([spec for spec in server.node.tenants.values() if gpu in spec.gpus])


def achieved(server: Server, tenant: str, gpu: int) -> float:
    """Held time / elapsed over the last window."""
    machine = server.node.machines[gpu]
    now_ns = time.monotonic_ns()
    window_ns = min(machine.policy.window_ns, max(1, now_ns - server.started_ns))
    return min(1.0, machine.charges.usage_ns(tenant, now_ns)[1] / window_ns)


def owed(server: Server, tenant: str, gpu: int) -> float:
    """Its part of the time in which it wants the card: its request; its limit, where the limits of those that have
    processes leave the card idle, for nobody else may take that."""
    spec = server.node.tenants[tenant]
    return (spec.request_ppm if server.node.machines[gpu].tenants.is_full() else spec.limit_ppm) / 1e6


def missed(server: Server, tenant: str, gpu: int) -> float:
    """What it did not get of that over the last window, as a part of the GPU's time."""
    now_ns = time.monotonic_ns()
    window_ns = min(server.node.policy.window_ns, max(1, now_ns - server.started_ns))
    had = achieved(server, tenant, gpu)
    wanted = min(1.0, had + _waited_lately_ns(server, tenant, gpu, now_ns) / window_ns)
    return max(0.0, owed(server, tenant, gpu) * wanted - had) if wanted > BUSY else 0.0


def held_ns(server: Server, tenant: str, gpu: int) -> int:
    """Held time up to now."""
    return server.node.machines[gpu].charges.usage_ns(tenant, time.monotonic_ns())[0]


_SEAT = ("tenant", "gpu")
_G, _C = GaugeMetricFamily, CounterMetricFamily
METRICS: tuple[Row, ...] = (
    Row("gemini_request_ratio", _G, "Promised share of the GPU's time.", _SEAT,
        _seats(lambda s, t, g: s.node.tenants[t].request_ppm / 1e6)),
    Row("gemini_limit_ratio", _G, "The most it may take of the GPU's time.", _SEAT,
        _seats(lambda s, t, g: s.node.tenants[t].limit_ppm / 1e6)),
    Row("gemini_entitled_ratio", _G, "What the policy owes it if all tenants are always busy.", _SEAT,
        _entitled),
    Row("gemini_achieved_ratio", _G, "GPU time held / elapsed over the last window.", _SEAT, _seats(achieved)),
    Row("gemini_owed_ratio", _G, "What it is owed of the time in which it wants the GPU: its request; its limit, where "
        "the limits leave the GPU idle.", _SEAT, _seats(owed)),
    Row("gemini_missed_ratio", _G, "What it did not get of that over the last window / elapsed.", _SEAT,
        _seats(missed)),
    Row("gemini_held_seconds", _C, "GPU time held, grant to drain confirmed.", _SEAT,
        _seats(lambda s, t, g: held_ns(s, t, g) / 1e9)),
    Row("gemini_reported_busy_seconds", _C, "GPU time of its work, as its library measured it.", _SEAT,
        _seats(lambda s, t, g: s.tallies[t, g].work.busy_ns / 1e9)),
    Row("gemini_launches", _C, "Launches, as its library counted them.", _SEAT,
        _seats(lambda s, t, g: s.tallies[t, g].work.launches)),
    Row("gemini_grants", _C, "Times the token was handed to it.", _SEAT,
        _seats(lambda s, t, g: s.tallies[t, g].grants)),
    Row("gemini_revokes", _C, "Times the token was asked back early.", _SEAT,
        _seats(lambda s, t, g: s.tallies[t, g].revokes)),
    Row("gemini_leases_lost", _C, "Leases that ran out: the process was dead, frozen or cut off.", _SEAT,
        _seats(lambda s, t, g: s.tallies[t, g].leases_lost)),
    Row("gemini_overruns", _C, "Live holders that did not drain long after their quota.", _SEAT,
        _seats(lambda s, t, g: s.tallies[t, g].overran)),
    Row("gemini_wait_seconds_sum", _C, "Time waited for the token.", _SEAT,
        _seats(lambda s, t, g: _waited_ns(s, t, g) / 1e9)),
    Row("gemini_wait_seconds", _G, "Recent waits for the token, by quantile.", (*_SEAT, "quantile"),
        _quantiles(lambda s, t, g: s.tallies[t, g].wait)),
    Row("gemini_overuse_seconds_sum", _C, "Held time past the quota, all of it charged.", _SEAT,
        _seats(lambda s, t, g: s.tallies[t, g].overuse.sum_ns / 1e9)),
    Row("gemini_overuse_seconds", _G, "Recent overuse, by quantile.", (*_SEAT, "quantile"),
        _quantiles(lambda s, t, g: s.tallies[t, g].overuse)),
    Row("gemini_holding", _G, "1 while it holds the token.", _SEAT, _holding),
    Row("gemini_beside", _G, "1 while it runs beside others, without the token.", _SEAT,
        _seats(lambda s, t, g: t in s.node.machines[g].beside.sharing)),
    Row("gemini_duty_ratio", _G, "GPU time worked / held, over turns with nobody beside it; 0 is unknown.", _SEAT,
        _seats(lambda s, t, g: s.node.machines[g].seats[t].duty.ppm / 1e6)),
    Row("gemini_memory_bytes", _G, "Bytes it holds on the GPU, credit included.", _SEAT,
        _seats(lambda s, t, g: s.node.accounts[t, g].used_bytes)),
    Row("gemini_memory_limit_bytes", _G, "Its memory limit; 0 is none.", _SEAT,
        _seats(lambda s, t, g: s.node.accounts[t, g].limit_bytes)),
    Row("gemini_memory_refusals", _C, "Reservations refused.", ("tenant",),
        _tenants(lambda s, t: s.tally.mem_refusals.get(t, 0))),
    Row("gemini_clients", _G, "Its live processes.", ("tenant",),
        _tenants(lambda s, t: len(s.endpoints[t].by_nonce))),
    Row("gemini_enforced", _G, "1 when all it has on the GPUs is under the library.", ("tenant",),
        _tenants(lambda s, t: enforced(s, t) == "yes")),
    Row("gemini_outside_processes", _G, "Its processes that are on the GPU without the library.", _SEAT,
        _seats(lambda s, t, g: s.outside.count(t, g))),
    Row("gemini_stranger_processes", _G, "Processes on the GPU that are no tenant's.", ("gpu",),
        _cards(lambda s, g: s.outside.count(None, g))),
    Row("gemini_gpu_memory_bytes", _G, "The GPU's memory.", ("gpu",), _cards(lambda s, g: s.gpus[g].memory_bytes)),
    Row("gemini_gate_wait_seconds", _C, "Time its threads waited at the gate.", ("tenant",),
        _tenants(lambda s, t: _counted(s, t, "gate_wait_ns") / 1e9)),
    Row("gemini_valve_admissions", _C, "Threads let in while draining, for others waited for them.", ("tenant",),
        _tenants(lambda s, t: _counted(s, t, "valve_admissions"))),
    Row("gemini_ungated_lookups", _C, "Driver entries newer than the table that it was handed.", ("tenant",),
        _tenants(lambda s, t: _counted(s, t, "ungated_lookups"))),
    Row("gemini_copied_to_device_bytes", _C, "Bytes copied from host to device.", ("tenant",),
        _tenants(lambda s, t: _counted(s, t, "copies_h2d_bytes"))),
    Row("gemini_copied_to_host_bytes", _C, "Bytes copied from device to host.", ("tenant",),
        _tenants(lambda s, t: _counted(s, t, "copies_d2h_bytes"))),
    Row("gemini_flood_pauses", _C, "Times it was not read for a while for having said too much.", ("tenant",),
        _tenants(lambda s, t: s.endpoints[t].pauses)),
    Row("gemini_handover_gap_seconds", _G, "Drain confirmed to next grant, by quantile.", ("gpu", "quantile"), _gaps),
    Row("gemini_protocol_errors", _C, "Connections closed for breaking the protocol.", ("code",), _refused),
    Row("gemini_build_info", _G, "1; version, commit, and the build id of the library.", tuple(info.BUILD), _build),
    Row("gemini_trace_lost_events", _C, "Events that no disk took.", (), _trace_lost),
)  # fmt: skip


class _One:
    """One metric of one server, as prometheus_client's writer takes it."""

    def __init__(self, server: Server, row: Row) -> None:
        self._server, self._row = server, row

    def collect(self) -> Iterable[Metric]:
        family = self._row.kind(self._row.name, self._row.text, labels=self._row.labels)
        for labels, value in self._row.samples(self._server):
            family.add_metric(labels, value)
        yield family


def render(server: Server) -> Iterator[bytes]:
    """The text that /metrics answers with, metric by metric, so that the tenants may have their turn between two."""
    server.catch_up()
    for row in METRICS:
        yield generate_latest(cast(CollectorRegistry, _One(server, row)))


class Spaced:
    """The text for all who ask: never older than the question, and made at most every METRICS_SECONDS, or METRICS_TIMES
    as seldom as it takes long, whoever asks how often. `before` is awaited first each time."""

    def __init__(self, server: Server, before: Callable[[], Awaitable[None]]) -> None:
        self._server, self._before = server, before
        self._next: asyncio.Task[bytes] | None = None  # begins yet: all who ask now get its text
        self._making = asyncio.Lock()
        self._began = -bounds.METRICS_SECONDS
        self._rests_seconds = bounds.METRICS_SECONDS

    async def text(self) -> bytes:
        """The text as it is now, or somewhat later."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._make())
        return await asyncio.shield(self._next)

    async def _make(self) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            async with self._making:
                await asyncio.sleep(max(0.0, self._began + self._rests_seconds - loop.time()))
                await self._before()
                self._next, self._began = None, loop.time()
                parts, took_seconds, since = [], 0.0, time.perf_counter()
                for part in render(self._server):
                    parts.append(part)
                    took_seconds += time.perf_counter() - since
                    await asyncio.sleep(0)
                    since = time.perf_counter()
                self._rests_seconds = max(bounds.METRICS_SECONDS, bounds.METRICS_TIMES * took_seconds)
                return b"".join(parts)
        except BaseException:
            self._next = None
            raise
