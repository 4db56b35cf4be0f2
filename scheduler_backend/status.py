"""HTTP on the control socket: what there is (/state /metrics /healthz /version) and what shall be (/tenants,
/shutdown).

The control socket is for whoever runs the node, and for the users of its group, who see all and change what is theirs
(users.py): its file's mode is 0660. The TCP port, which strangers reach, has
/metrics, /healthz and /readyz alone. A connection is answered once (http_door.py bounds what else it may do).
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web

from libhook import info
from libhook.core import lib
from scheduler_backend import bounds, metrics
from scheduler_backend.allowance import Allowances
from scheduler_backend.core.seat import State
from scheduler_backend.debts import Owing
from scheduler_backend.problem import Problem
from scheduler_backend.registry import Conflict, Registry, Unknown
from scheduler_backend.server import Server
from scheduler_backend.subids import person
from scheduler_backend.tally import Series
from scheduler_backend.users import Forbidden, is_administrator, user_name

OWES_SECONDS = 8.0  # what is paid for by then is waited for here; more than a command would wait for an answer is told
ABSENCE_SECONDS = 0.25  # after which it is seen that one who waits for his turn has left

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def state(server: Server) -> dict[str, Any]:
    """The answer of /state: the shape of `gemini ps --json`, and more."""
    server.catch_up()
    node = server.node
    shares = [metrics.entitled(server, gpu.index) for gpu in server.gpus]
    return {
        "device": _device(server, 0),
        "devices": [{**_device(server, gpu.index), **_token(server, gpu.index)} for gpu in server.gpus],
        "seconds": (time.monotonic_ns() - server.started_ns) / 1e9,
        "window_s": node.policy.window_ns / 1e9,
        "utilization": None,
        "handover_us": _microseconds(server.tally.gaps),
        "decide_us": _microseconds([server.tally.handle_ns]),
        "incarnation": server.incarnation,
        "build": info.build(),
        "ordering": node.policy.ordering,
        "quota_ms": node.policy.quota_ns / 1e6,
        "trace_lost": server.recorder.lost,
        "idle_exit_seconds": server.idle_exit_seconds,
        "tenants": [_tenant(server, name, shares) for name in node.tenants],
    }


def _microseconds(series: Sequence[Series]) -> dict[str, float] | None:
    filled = [one for one in series if one.count]
    if not filled:
        return None
    return {key: 1000 * max(one.ms(part) or 0.0 for one in filled) for key, part in (("p50", 0.5), ("p99", 0.99))}


def _tenant(server: Server, name: str, shares: Sequence[dict[str, int]]) -> dict[str, Any]:
    node = server.node
    spec = node.tenants[name]
    endpoint = server.endpoints[name]
    seats = [node.machines[gpu].seats[name] for gpu in spec.gpus]
    tallies = [server.tallies[name, gpu] for gpu in spec.gpus]
    by_gpu = [metrics.achieved(server, name, gpu) for gpu in spec.gpus]
    held_ns = [metrics.held_ns(server, name, gpu) for gpu in spec.gpus]
    works = [tally.work for tally in tallies]
    return {
        "name": name,
        "request": spec.request_ppm / 1e6,
        "limit": spec.limit_ppm / 1e6,
        "class": "latency" if spec.latency else "batch",
        "entitled": sum(shares[gpu].get(name, 0) for gpu in spec.gpus) / 1e6 / len(spec.gpus),
        "achieved": sum(by_gpu) / len(spec.gpus),
        "missed": sum(metrics.missed(server, name, gpu) for gpu in spec.gpus) / len(spec.gpus),
        "on_gpus": [_on_gpu(server, name, gpu, share, shares) for gpu, share in zip(spec.gpus, by_gpu, strict=True)],
        "user": None if endpoint.owner is None else user_name(endpoint.owner),
        "registered_by": [pid for pid, tenant in server.outside.registrants().items() if tenant == name],
        "busy": None,
        "error_pp_p99_1s": None,
        "held_ns": sum(held_ns),
        "held_ns_by_gpu": dict(zip(map(str, spec.gpus), held_ns, strict=True)),
        "reported_busy_ns": sum(work.busy_ns for work in works),
        "launches": sum(work.launches for work in works),
        "ungated_lookups": endpoint.counters.total()["ungated_lookups"],
        "grants": sum(tally.grants for tally in tallies),
        "revokes": sum(tally.revokes for tally in tallies),
        "leases_lost": sum(tally.leases_lost for tally in tallies),
        "overruns": sum(tally.overran for tally in tallies),
        "overuse_ms_p99": max(
            (tally.overuse.ms(0.99) or 0.0 for tally in tallies if tally.overuse.count), default=None
        ),
        "wait_ms_p99": max((tally.wait.ms(0.99) or 0.0 for tally in tallies if tally.wait.count), default=None),
        "waiting": any(seat.state in (State.WAITING, State.PAUSED) for seat in seats),
        "holding": any(seat.state in (State.HOLDING, State.CLOSING) for seat in seats),
        "beside": any(seat.state in (State.SHARED, State.LEAVING) for seat in seats),
        "duty": max(seat.duty.ppm for seat in seats) / 1e6 or None,
        "throttled": any(seat.throttled for seat in seats),
        "memory_bytes": sum(node.accounts[name, gpu].used_bytes for gpu in spec.gpus),
        "memory_limit_bytes": spec.memory_bytes,
        "gpus": list(spec.gpus),
        "clients": [client.pid for client in endpoint.by_nonce.values()],
        "processes": [
            {
                "client": client.number,
                "pid": client.pid,
                "program": client.program,
                "page": client.peer is not None,
                "connected": client.route is not None,
            }
            for client in endpoint.by_nonce.values()
        ],
        "socket": str(endpoint.socket_path),
        "enforced": metrics.enforced(server, name),
        "outside": [stray.pid for stray in server.outside.strays if stray.tenant == name],
        "share": server.shares.get(name),
        "flood_pauses": endpoint.pauses,
    }


def _on_gpu(server: Server, name: str, gpu: int, achieved: float, shares: Sequence[dict[str, int]]) -> dict[str, Any]:
    """A tenant on one of its cards."""
    seat, tally = server.node.machines[gpu].seats[name], server.tallies[name, gpu]
    return {
        "gpu": gpu,
        "entitled": shares[gpu].get(name, 0) / 1e6,
        "achieved": achieved,
        "missed": metrics.missed(server, name, gpu),
        "launches": tally.work.launches,
        "wait_ms_p99": tally.wait.ms(0.99) if tally.wait.count else None,
        "holding": seat.state in (State.HOLDING, State.CLOSING),
        "memory_bytes": server.node.accounts[name, gpu].used_bytes,
    }


def _device(server: Server, index: int) -> dict[str, Any]:
    gpu = server.gpus[index]
    return {
        "name": gpu.name,
        "uuid": gpu.uuid,
        "index": gpu.index,
        "memory_bytes": gpu.memory_bytes,
        "simulated": gpu.simulated,
    }


def _token(server: Server, index: int) -> dict[str, Any]:
    machine = server.node.machines[index]
    return {
        "holder": machine.holder.name if machine.holder is not None else None,
        "epoch": machine.epoch,
        "contended": machine.grant.contended,
        "waiting": [seat.name for seat in machine.waiting.values()],
        "unheard": len(machine.restart.unheard),
    }


def _peer(request: web.Request) -> tuple[int, int]:
    """Pid and user of the process at the other end of the control socket. Who has left is nobody, and not answered."""
    transport = request.transport
    peer = transport.get_extra_info("socket") if transport is not None else None
    if peer is None or peer.family != socket.AF_UNIX:
        raise web.HTTPRequestTimeout
    try:
        pid, uid, _gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except OSError:  # closed just now
        raise web.HTTPRequestTimeout from None
    return int(pid), int(uid)


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Unknown as error:
        return web.json_response({"error": str(error)}, status=404)
    except Forbidden as error:
        return web.json_response({"error": str(error)}, status=403)
    except Conflict as error:
        return web.json_response({"error": str(error)}, status=409)
    except Owing as error:
        return web.json_response({"error": str(error)}, status=429)
    except Problem as error:
        return web.json_response({"error": str(error)}, status=422)
    except web.HTTPException as error:
        return web.json_response({"error": f"{request.method} {request.path}: {error.reason}"}, status=error.status)


def _object(octets: bytes) -> dict[str, Any]:
    try:
        body = json.loads(octets)
    except (ValueError, RecursionError):  # the last of nesting without end
        body = None
    if not isinstance(body, dict):
        raise Problem('the body is no JSON object; send one such as {"name": "a", "request": 0.5}')
    return body


def _still_wanted(request: web.Request) -> None:
    if request.transport is None or request.transport.is_closing():
        raise web.HTTPRequestTimeout  # nobody waits for it any more


async def _pause(request: web.Request, seconds: float) -> None:
    """So long, or until nobody waits for the answer any more."""
    while seconds > 0:
        await asyncio.sleep(min(seconds, ABSENCE_SECONDS))
        seconds -= ABSENCE_SECONDS
        _still_wanted(request)


async def _turn(request: web.Request, of: Allowances, count: float = 1) -> None:
    """Wait until the user's allowance has room for it. Who leaves meanwhile takes nothing, and nothing is kept of him:
    those who ask and leave would be ever more.
    """
    whose = person(_peer(request)[1])
    try:
        await _pause(request, of.wait_seconds(whose, time.monotonic_ns(), count))
    except BaseException:
        of.give_back(whose, count)
        raise


@web.middleware
async def _once(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The connection ends with the answer."""
    answer = await handler(request)
    answer.force_close()
    return answer


def port_application(server: Server) -> web.Application:
    """What may be asked over TCP too: nothing of it tells of processes, programs or users."""
    info.build()  # it asks git where this is a checkout: not while somebody waits for a grant
    spaced = metrics.Spaced(server, server.outside.look)

    async def show_metrics(_request: web.Request) -> web.Response:
        return web.Response(body=await spaced.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def show_health(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    application = web.Application(middlewares=[_once, _problems], client_max_size=bounds.CONTROL_BODY_BYTES)
    application.router.add_get("/metrics", show_metrics)
    application.router.add_get("/healthz", show_health)
    application.router.add_get("/readyz", show_health)
    return application


def control_application(server: Server, registry: Registry, shut_down: asyncio.Event) -> web.Application:
    """All of it, for the control socket."""

    def answer(name: str) -> dict[str, Any]:
        spec = server.node.tenants[name]
        return {
            "name": name,
            "socket": str(server.endpoints[name].socket_path),
            "request": spec.request_ppm / 1e6,
            "limit": spec.limit_ppm / 1e6,
            "memory_bytes": spec.memory_bytes,
            "latency": spec.latency,
            "gpus": [server.gpus[gpu].uuid for gpu in spec.gpus],
            "share": server.shares.get(name),
            **({"published": published()} if name in server.shares else {}),
        }

    def published() -> dict[str, Any] | None:
        """Where shares are made known, and what hinders that; None: this daemon makes none known."""
        publisher = registry.publisher
        return None if publisher is None else {"where": publisher.where, "problem": publisher.problem}

    changes = Allowances(bounds.CHANGES_A_SECOND, bounds.CHANGES_AT_ONCE)

    async def in_turn(request: web.Request) -> None:
        """A user that makes and removes tenants without end waits, so that the loop has time for those that work."""
        await _turn(request, changes)

    async def body_in_turn(request: web.Request) -> dict[str, Any]:
        """What is kept while one waits is the bytes: as objects they may be thirty times as much."""
        octets = await request.read()
        await in_turn(request)
        return _object(octets)

    async def create(request: web.Request) -> web.Response:
        body = await body_in_turn(request)
        if shut_down.is_set():  # it was decided that nobody is there; a tenant taken now would have no daemon
            return web.json_response({"error": "the daemon is ending; ask the next one"}, status=503)
        try:
            spec = registry.register(body, *_peer(request))
        except Owing as owing:
            if owing.seconds > OWES_SECONDS:
                raise
            await _pause(request, owing.seconds)
            spec = registry.register(body, *_peer(request))
        return web.json_response(answer(spec.name))

    async def change(request: web.Request) -> web.Response:
        body = await body_in_turn(request)
        spec = registry.change(request.match_info["name"], body, _peer(request)[1])
        return web.json_response(answer(spec.name))

    async def delete(request: web.Request) -> web.Response:
        await in_turn(request)
        removed = registry.remove(request.match_info["name"], *_peer(request))
        return web.json_response({"name": request.match_info["name"], "removed": removed})

    async def shutdown(request: web.Request) -> web.Response:
        if not is_administrator(_peer(request)[1]):
            raise Forbidden("the daemon is its administrator's to end; gemini ps shows your tenants")
        shut_down.set()
        return web.json_response({"ending": True})

    looks = Allowances(bounds.STATES_MS_A_SECOND, bounds.STATES_MS_AT_ONCE)
    last_ms = 0.0  # that the last answer took

    async def show_state(request: web.Request) -> web.Response:
        nonlocal last_ms
        await _turn(request, looks, last_ms)
        await server.outside.look()
        began = time.perf_counter()
        answer = web.json_response(state(server))
        last_ms = 1000 * (time.perf_counter() - began)
        answer.headers["Server-Timing"] = f"state;dur={last_ms:.3f}"
        return answer

    async def show_version(_request: web.Request) -> web.Response:
        return web.json_response({**info.build(), "wire": int(lib.WIRE_VERSION)})

    application = port_application(server)
    application.router.add_get("/state", show_state)
    application.router.add_get("/version", show_version)
    application.router.add_post("/tenants", create)
    application.router.add_patch("/tenants/{name}", change)
    application.router.add_delete("/tenants/{name}", delete)
    application.router.add_post("/shutdown", shutdown)
    return application
