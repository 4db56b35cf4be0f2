"""Processes by pidfd: their death is seen, and a pid that was used again is not taken for them."""

import asyncio
import os
import socket
import subprocess
import sys

import uvloop

from scheduler_backend.peers import Peer, start_time


def test_the_peer_of_a_connection_is_the_process_that_made_it():
    one, two = socket.socketpair()
    peer = Peer.of_connection(two)
    assert peer.pid == os.getpid()
    assert peer.start_time == start_time(os.getpid()) > 0
    peer.close()
    peer.close()
    one.close()
    two.close()


def test_a_death_is_seen_once():
    async def run() -> int:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        peer = Peer.of_pid(child.pid, start_time(child.pid))
        assert peer is not None
        deaths: list[int] = []
        died = asyncio.Event()

        def on_death() -> None:
            deaths.append(1)
            died.set()

        peer.watch(asyncio.get_running_loop(), on_death)
        child.kill()
        await asyncio.wait_for(died.wait(), 60)
        await asyncio.sleep(0.01)
        child.communicate()
        peer.close()
        return len(deaths)

    assert uvloop.run(run()) == 1


def test_a_pid_of_another_start_time_is_somebody_else():
    assert Peer.of_pid(os.getpid(), start_time(os.getpid()) + 1) is None
    assert Peer.of_pid(1 << 22, 5) is None
    assert start_time(1 << 22) == 0
