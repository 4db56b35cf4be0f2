"""The daemon put together: settings, state directory, server, HTTP, signals; and taken apart again in order."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import uvloop
from aiohttp import web

from scheduler_backend import bounds, config, descriptors, devices, logs, rights, status, trace
from scheduler_backend.cardlock import CardLock
from scheduler_backend.config import Settings
from scheduler_backend.devices import Gpu
from scheduler_backend.http_door import Door, DoorBounds
from scheduler_backend.persist import EPOCH_BLOCK, StateDir, epochs_after
from scheduler_backend.problem import Problem
from scheduler_backend.publisher import Publisher
from scheduler_backend.registry import Registry
from scheduler_backend.server import LONGEST_PATH, Server
from scheduler_backend.users import Users, group_id
from scheduler_backend.witness import is_able

log = logging.getLogger("gemini.app")
_http_log = logging.getLogger("gemini.http")  # aiohttp's, of requests that are none
_http_log.addFilter(logs.Sparse(bounds.HTTP_RECORDS_A_SECOND, 10))

HOUSEKEEPING_SECONDS = 0.25
GARBAGE_SECONDS = 10.0  # cycles, as an answer that is an error leaves them: 5 KiB each
MOST_GPUS = 16  # slots of the token page


class Daemon:
    """One node's daemon. `run` returns when it was told to end."""

    def __init__(self, settings: Settings, gpus: list[Gpu], publisher: Publisher | None = None) -> None:
        self.settings = settings
        self.gpus = gpus
        self.publisher = publisher
        self._end = asyncio.Event()
        self._file_stamp = _stamp(settings.config)
        self._in_effect = config.fixed_options(settings.config) if settings.config is not None else {}
        self._idle_since = time.monotonic()
        self._control = settings.state_dir / "control.sock"
        self._control_file: tuple[int, int, int] | None = None  # the one that we made
        self._superseded: Problem | None = None

    async def run(self, on_ready: Any = None) -> None:
        """Serve until SIGTERM, SIGINT, POST /shutdown or idle exit. Raises Problem where it cannot start."""
        settings = self.settings
        descriptors.raise_limit()
        if len(self.gpus) > MOST_GPUS:
            raise Problem(f"this node has {len(self.gpus)} GPUs; one daemon serves {MOST_GPUS}")
        _check_path(self._control)
        with contextlib.ExitStack() as stack:
            state_dir = StateDir(settings.state_dir, self._tell_ready if settings.wait else None)
            stack.callback(state_dir.close)
            saved = state_dir.load()
            cards = CardLock(self.gpus, settings.state_dir, settings.sim, had=saved.cards)
            stack.callback(cards.close)  # before the state directory's own: who waits for that finds them free
            state_dir.cards = [gpu.uuid for gpu in self.gpus]
            started_ns = time.monotonic_ns()
            incarnation = max(saved.incarnation + 1, time.time_ns())
            last_epoch = epochs_after(saved)
            saved.reserved_epoch = last_epoch + EPOCH_BLOCK
            saved.incarnation = incarnation
            written = state_dir.save(saved)  # before the first epoch is used
            shown = [{"uuid": gpu.uuid, "name": gpu.name, "simulated": gpu.simulated} for gpu in self.gpus]
            policy = settings.policy
            loop = asyncio.get_running_loop()
            loop.set_default_executor(ThreadPoolExecutor(1, "gemini-look"))  # looks at the driver, one after the other
            if not await asyncio.to_thread(is_able, self.gpus):
                policy = policy._replace(shared_limits=False)
            head = trace.header(policy, shown, last_epoch, started_ns, incarnation)
            recorder = trace.Recorder(
                settings.state_dir / "trace.jsonl" if settings.trace else None, head, settings.trace_bytes
            )
            stack.callback(recorder.close)
            cards.listen(loop)
            server = Server(
                loop,
                settings.state_dir,
                self.gpus,
                policy,
                recorder,
                last_epoch=last_epoch,
                started_ns=started_ns,
                incarnation=incarnation,
            )
            stack.callback(server.close)
            server.idle_exit_seconds = settings.idle_exit_seconds
            reserved_epoch = saved.reserved_epoch if written else last_epoch
            registry = Registry(server, state_dir, reserved_epoch, self.publisher)
            server.on_change(registry.save)
            registry.users = settings.users
            registry.restore(saved, settings.tenants)
            registry.apply(settings.tenants)
            sites = [await self._serve_control(server, registry)]
            try:
                if settings.metrics_port is not None:
                    sites.append(await _serve_port(server, settings.metrics_host, settings.metrics_port))
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, self._end.set)
                loop.add_signal_handler(signal.SIGHUP, self._reload, registry)

                async def stay() -> None:
                    if self._keep_place(state_dir, registry, recorder):
                        with contextlib.suppress(Problem):  # tried again
                            sites.append(await self._serve_control(server, registry))

                housekeeping = asyncio.create_task(self._housekeeping(server, registry, recorder, stay))
                gc.collect()
                gc.freeze()  # what is here stays; collections look at what came since
                gc.set_threshold(50_000, 50, 100)  # housekeeping collects
                if on_ready is not None:
                    on_ready(server)
                self._tell_ready()
                log.info("ready state_dir=%s gpus=%d pid=%d", settings.state_dir, len(self.gpus), os.getpid())
                await self._end.wait()
                housekeeping.cancel()
            finally:
                for site in reversed(sites):
                    await site.cleanup()
                if _stamp(self._control) == self._control_file:  # not another daemon's
                    with contextlib.suppress(OSError):
                        self._control.unlink()
        if self._superseded is not None:
            raise self._superseded

    async def _serve_control(self, server: Server, registry: Registry) -> _Site:
        group = self.settings.group
        number = None if group is None else group_id(group)
        site = await _serve_control(server, registry, self._end, self._control, number)
        self._control_file = _stamp(self._control)
        return site

    def _keep_place(self, state_dir: StateDir, registry: Registry, recorder: trace.Recorder) -> bool:
        """Where somebody removed the state directory, or the control socket in it: have them again. Whether the socket
        is to be made anew."""
        try:
            if state_dir.keep():
                registry.save()
                recorder.begin_anew()
        except Problem as error:
            self._superseded = error
            self._end.set()
            return False
        return not self._control.exists()

    def _tell_ready(self) -> None:
        path = self.settings.ready_file
        try:
            if path is not None:
                path.touch()
        except OSError as error:
            raise Problem(
                f"--ready-file {path}: {error.strerror}; name a file in a folder that can be written"
            ) from None

    def _reload(self, registry: Registry) -> None:
        """Shares of the config file, again. A mistake in it is logged and changes nothing."""
        if self.settings.config is None:
            return
        self._file_stamp = _stamp(self.settings.config)
        try:
            values, _, tenants = config.read_file(self.settings.config)
            registry.apply(tenants)
            registry.users = values.get("users", Users())
            log.info("reloaded config=%s tenants=%d", self.settings.config, len(tenants))
            if changed := config.changed_options(self._in_effect, config.fixed_options(self.settings.config)):
                log.warning("needs-restart config=%s keys=%s", self.settings.config, ",".join(changed))
        except Problem as error:
            log.error("reload-refused reason=%s", error)

    async def _housekeeping(
        self, server: Server, registry: Registry, recorder: trace.Recorder, stay: Callable[[], Awaitable[None]]
    ) -> None:
        collected = time.monotonic()
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            await stay()
            server.weigh()
            if (now := time.monotonic()) - collected > GARBAGE_SECONDS:
                gc.collect()
                collected = now
            while recorder.flush():
                await asyncio.sleep(0)  # tenants have their turn between
            registry.keep_ahead()
            if self.publisher is not None:
                self.publisher.look()
            if self.settings.config is not None and _stamp(self.settings.config) != self._file_stamp:
                self._reload(registry)
            if server.node.tenants:
                self._idle_since = time.monotonic()
            elif (
                self.settings.idle_exit_seconds is not None
                and time.monotonic() - self._idle_since > self.settings.idle_exit_seconds
            ):
                log.info("idle-exit")
                registry.let_go()
                self._end.set()


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _check_path(path: Path) -> None:
    over = len(os.fsencode(path)) - LONGEST_PATH
    if over > 0:
        raise Problem(
            f"the socket path {path} is {over} bytes too long for a Unix socket ({LONGEST_PATH}); "
            f"choose a shorter --state-dir"
        )


class _Site:
    """An application behind its doors."""

    def __init__(self, runner: web.AppRunner, doors: list[Door]) -> None:
        self._runner, self._doors = runner, doors

    async def cleanup(self) -> None:
        for door in self._doors:
            door.close()
        await self._runner.cleanup()


async def _open_site(application: web.Application, listening: list[socket.socket], limits: DoorBounds) -> _Site:
    runner = web.AppRunner(  # what the door lets in would be a thousand times as much, inflated
        application, access_log=None, handle_signals=False, shutdown_timeout=0.5, logger=_http_log,
        auto_decompress=False,
    )  # fmt: skip
    await runner.setup()
    assert runner.server is not None
    loop = asyncio.get_running_loop()
    return _Site(runner, [Door(loop, one, runner.server, limits) for one in listening])


async def _serve_control(
    server: Server, registry: Registry, end: asyncio.Event, path: Path, group: int | None
) -> _Site:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    rights.refuse(listening)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        listening.bind(str(path))
        if group is not None:
            os.chown(path, -1, group)
        path.chmod(0o660)  # of a folder that nobody else can write
        listening.listen(bounds.CONTROL_BACKLOG)
    except OSError as error:
        listening.close()
        raise Problem(f"{path}: {error.strerror}; choose another --state-dir") from None
    return await _open_site(status.control_application(server, registry, end), [listening], bounds.CONTROL_DOOR)


def _listen(host: str, port: int) -> list[socket.socket]:
    """One socket for each address of the host, all on the same port."""
    made: list[socket.socket] = []
    try:
        flags = socket.AI_PASSIVE
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=flags
        ):
            one = socket.socket(family, kind, protocol)
            made.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            number = made[0].getsockname()[1] or port
            one.bind((address[0], number, *address[2:]))
            one.listen(bounds.METRICS_BACKLOG)
    except OSError:
        for one in made:
            one.close()
        raise
    return made


async def _serve_port(server: Server, host: str, port: int) -> _Site:
    try:
        listening = _listen(host, port)
    except OSError as error:
        number = error.errno or 0  # the resolver's own are below 0
        why = os.strerror(number) if number > 0 else "no such address"
        raise Problem(f"--metrics-host {host} --metrics-port {port}: {why}; choose another") from None
    log.warning("metrics address=%s:%d", *listening[0].getsockname()[:2])
    return await _open_site(status.port_application(server), listening, bounds.METRICS_DOOR)


def serve(settings: Settings, publisher: Publisher | None = None) -> None:
    """Run the daemon in the foreground. Raises Problem where it cannot."""
    logs.start(settings.log.upper(), force=True)
    try:
        os.close(os.eventfd(0))
    except OSError as error:  # which the loop would say in many lines
        raise Problem(
            f"an eventfd cannot be had here: {error.strerror}; allow eventfd2 in the seccomp profile"
        ) from None
    gpus = devices.inventory(settings.sim)

    async def main() -> None:
        await Daemon(settings, gpus, publisher).run()

    uvloop.run(main())


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Problem(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m scheduler_backend`: the exit status, 2 for wrong options or config, 1 for another Problem."""
    parser = _Parser(prog="python -m scheduler_backend", description=__doc__, allow_abbrev=False)
    config.configure(parser)
    status = 2
    try:
        settings = config.read_settings(parser.parse_args(arguments))
        status = 1
        serve(settings)
    except Problem as error:
        print(f"gemini: {error}", file=sys.stderr)
        return status
    except KeyboardInterrupt:
        return 130
    return 0
