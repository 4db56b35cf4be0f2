"""Whoever reaches the webhook's port may send much, and anything; the API server is answered beside that."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

from aiohttp import ClientSession, TCPConnector

from gemini import serving
from gemini.door import COMES_A_SECOND, COMES_AT_ONCE, CROWD, LET_IN_A_TURN, Door
from gemini.webhook.app import LARGEST_BODY, App
from gemini.webhook.settings import Settings
from tests.e2e.pki import Authority
from tests.gemini.webhook.test_app import review, sharepod

STRANGER = "127.0.0.2"
MANY, MIB = 40, 1 << 20


def many_containers(count: int) -> bytes:
    pod = sharepod(gpu_request="0.5")
    pod["spec"]["containers"] = [{"name": f"c{i}"} for i in range(count)]
    return review(pod)


def test_who_sends_many_reviews_that_take_long_waits_behind_himself() -> None:
    order: list[str] = []

    async def main() -> None:
        app = App(Settings())
        async with (
            serving.listening(app.application(), "127.0.0.1", 0) as url,
            ClientSession(connector=TCPConnector(limit=0, local_addr=(STRANGER, 0))) as theirs,
            ClientSession() as ours,
        ):
            first = asyncio.Event()

            async def ask(session: ClientSession, who: str, body: bytes) -> None:
                async with session.post(f"{url}/mutate", data=body) as reply:
                    assert reply.status == 200
                    order.append(who)
                    first.set()

            heavy, small = many_containers(200), review(sharepod(gpu_request="0.5"))
            await ask(ours, "before", small)  # which leaves a connection, as the API server's stay
            first.clear()
            tasks = [asyncio.create_task(ask(theirs, "stranger", heavy)) for _ in range(60)]
            await first.wait()
            await ask(ours, "API server", small)
            await asyncio.gather(*tasks)

    asyncio.run(main())
    assert order.index("API server") < 30, order


def test_bodies_that_never_end_take_little_memory_and_nobodys_place(tmp_path: Path) -> None:
    """Each of 60 such connections took 15 MB, and 256 stand."""
    authority = Authority(tmp_path / "ours")
    pair = authority.issue("server", hosts=("127.0.0.1",))
    trusted = ssl.create_default_context(cafile=authority.certificate)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        at = free.getsockname()
    command = [sys.executable, "-m", "gemini", "webhook", "--port", str(at[1])]
    command += ["--tls-cert", str(pair.certificate), "--tls-key", str(pair.key)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=kept | {"HOME": str(tmp_path)}) as webhook,
        Strangers(at, trusted) as strangers,
    ):
        try:
            assert webhook.stderr is not None
            while "https://" not in webhook.stderr.readline():
                assert webhook.poll() is None
            answered(at, trusted, "127.0.0.1")
            before = resident(webhook.pid)
            for _ in range(MANY):
                strangers.come()
            while strangers.send():
                answered(at, trusted, "127.0.0.1")
            assert resident(webhook.pid) - before < MANY * 2 * MIB
            answered(at, trusted, "127.0.0.1")
        finally:
            webhook.terminate()


def answered(at: tuple[str, int], trusted: ssl.SSLContext, address: str) -> None:
    body = review(sharepod(gpu_request="0.5"))
    with (
        socket.create_connection(at, 60, source_address=(address, 0)) as plain,
        trusted.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        secure.sendall(head(len(body)) + body)
        assert b" 200 " in secure.recv(4096)


def head(length: int) -> bytes:
    return b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % length


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Strangers:
    """Connections of one address, each with the beginning of a body of the largest size that is read."""

    def __init__(self, at: tuple[str, int], trusted: ssl.SSLContext) -> None:
        self._at, self._trusted, self._open = at, trusted, list[tuple[ssl.SSLSocket, bytearray]]()

    def __enter__(self) -> Strangers:
        return self

    def __exit__(self, *_: object) -> None:
        for one, _left in self._open:
            one.close()

    def come(self) -> None:
        plain = socket.create_connection(self._at, 60, source_address=(STRANGER, 0))
        secure = self._trusted.wrap_socket(plain, server_hostname="127.0.0.1")
        secure.setblocking(False)
        self._open.append((secure, bytearray(head(LARGEST_BODY) + b" " * (LARGEST_BODY - 1000))))

    def send(self) -> bool:
        """As much as is taken; whether anything was."""
        taken = False
        for one, left in self._open:
            try:
                while left:
                    del left[: one.send(memoryview(left)[: 64 << 10])]
                    taken = True
            except (ssl.SSLWantWriteError, OSError):
                continue
        return taken


def test_who_opens_many_connections_pushes_out_his_own() -> None:
    """Each new one of a stranger's ended the oldest there was, the API server's in the middle of a review too."""

    class Silent(asyncio.Protocol):
        pass

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            door = Door(Silent, None, most=8)
            keeping = asyncio.create_task(door.keep(listener))
            at = listener.getsockname()
            ours, our_writer = await asyncio.open_connection(*at)
            theirs = []
            for _ in range(32):
                reader, writer = await asyncio.open_connection(*at, local_addr=(STRANGER, 0))
                theirs.append((reader, writer))
            for reader, _ in theirs[:24]:
                assert await reader.read() == b""  # ended
            assert not ours.at_eof()
            began = time.monotonic()
            try:
                async with asyncio.timeout(0):
                    await ours.read()
            except TimeoutError:
                pass
            else:
                raise AssertionError(f"ended after {time.monotonic() - began:.3f} s")
            keeping.cancel()
            door.close()
            for writer in (our_writer, *(writer for _, writer in theirs)):
                writer.close()

    asyncio.run(main())


def test_who_comes_without_end_keeps_nobody_out() -> None:
    """They were taken one a turn, each with a handshake: 30,000 a second of one pod kept the queue full, and a new one
    of the kubelet's or the API server's was not taken within 15 s."""
    crowd = COMES_AT_ONCE + 1_000
    let_in: list[str] = []

    class Counted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            let_in.append(transport.get_extra_info("peername")[0])

    async def main() -> float:
        with socket.create_server(("127.0.0.1", 0), backlog=crowd + 1) as listener:
            listener.setblocking(False)
            at = listener.getsockname()
            theirs = [socket.create_connection(at, source_address=(STRANGER, 0)) for _ in range(crowd)]
            door, began = Door(Counted, None), time.monotonic()
            keeping = asyncio.create_task(door.keep(listener))
            _, ours = await asyncio.open_connection(*at)
            while "127.0.0.1" not in let_in:
                await asyncio.sleep(0)
            took = time.monotonic() - began
            keeping.cancel()
            door.close()
            ours.close()
            for one in theirs:
                one.close()
            return took

    took = asyncio.run(asyncio.wait_for(main(), 60))
    assert let_in.count(STRANGER) <= COMES_AT_ONCE + COMES_A_SECOND * took + CROWD


def test_a_burst_of_connections_leaves_descriptors_to_the_rest_of_the_process() -> None:
    """All that waited were taken in one turn, and those that were ended for them had theirs until the next."""
    most, burst = 64, 400

    async def main() -> int:
        with socket.create_server(("127.0.0.1", 0), backlog=burst) as listener:
            listener.setblocking(False)
            at = listener.getsockname()
            theirs = [socket.create_connection(at) for _ in range(burst)]
            before = highest = descriptors()
            door = Door(asyncio.Protocol, None, most=most)
            keeping = asyncio.create_task(door.keep(listener))
            ended = asyncio.create_task(asyncio.to_thread(theirs[burst - most - 1].recv, 1))  # the last that has to go
            while not ended.done():
                highest = max(highest, descriptors())
                await asyncio.sleep(0)
            keeping.cancel()
            door.close()
            for one in theirs:
                one.close()
            return highest - before

    assert asyncio.run(asyncio.wait_for(main(), 60)) <= most + 3 * most // LET_IN_A_TURN


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_body_above_what_is_read_is_a_413() -> None:
    async def main() -> int:
        async with (
            serving.listening(App(Settings()).application(), "127.0.0.1", 0) as url,
            ClientSession() as session,
            session.post(f"{url}/mutate", data=json.dumps(" " * LARGEST_BODY)) as reply,
        ):
            return reply.status

    assert asyncio.run(main()) == 413
