"""Which cards a new tenant of `gemini run` is promised a part of: those that were named, else the one with most room.

Pure, but for what `devices_and_tenants` asks the daemon. A card's room is what no request and no memory limit takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gemini.cli.control import NoDaemon, ask
from gemini.cli.node import Node
from gemini.cli.problem import Problem
from gemini.cli.starting import ensure_daemon
from gemini.units import PPM, format_share, format_size

TRIES = 3


class Room(NamedTuple):
    """What is left of one card."""

    number: int
    uuid: str
    free_ppm: int
    free_bytes: int  # 0 where its memory is not known
    tenants: int

    def fits(self, request: float, memory_bytes: int) -> bool:
        return round(request * PPM) <= self.free_ppm and (memory_bytes <= self.free_bytes or not self.free_bytes)


def devices_and_tenants(node: Node) -> dict[str, Any]:
    """The daemon's /state, of one that is started where none answers."""
    for _ in range(TRIES):
        ensure_daemon(node)
        try:
            state: dict[str, Any] = ask(node, "GET", "/state")
            return state
        except NoDaemon:
            continue
    raise Problem(f"the daemon at {node.control} ended {TRIES} times; see {node.state_dir / 'daemon.log'}")


def rooms(state: dict[str, Any]) -> list[Room]:
    """What is left of each card."""
    found = []
    for device in state["devices"]:
        on_it = [tenant for tenant in state["tenants"] if device["index"] in tenant["gpus"]]
        memory = int(device.get("memory_bytes") or 0)
        taken = sum(int(tenant.get("memory_limit_bytes") or 0) for tenant in on_it)
        free_ppm = PPM - sum(round(tenant["request"] * PPM) for tenant in on_it)
        found.append(Room(device["index"], device["uuid"], free_ppm, max(memory - taken, min(memory, 1)), len(on_it)))
    return found


def named(words: Sequence[str], cards: Sequence[Room], option: str) -> list[str]:
    """The UUIDs of the cards that these words name: indices, UUIDs or beginnings of them, comma separated."""
    found: list[str] = []
    for word in (part.strip() for text in words for part in text.split(",")):
        meant = [
            card.uuid
            for card in cards
            if word
            and (word == str(card.number) or card.uuid.lower().startswith((word.lower(), f"gpu-{word.lower()}")))
        ]
        if word.isdecimal():
            meant = [card.uuid for card in cards if card.number == int(word)] or meant
        if len(meant) != 1:
            there = ", ".join(f"{card.number} ({card.uuid})" for card in cards)
            what = "names more than one GPU" if meant else "is no GPU of this machine"
            raise Problem(f"{option} {word!r} {what}; there is {there}", status=2)
        if meant[0] not in found:
            found += meant
    return found


def choose(
    state: dict[str, Any],
    name: str,
    words: Sequence[str],
    count: int | None,
    request: float,
    memory_bytes: int,
    visible: str | None,
) -> list[str]:
    """UUIDs of the tenant's cards. `words` are those of --gpu, `visible` the user's CUDA_VISIBLE_DEVICES."""
    cards = rooms(state)
    if [word for word in words if word not in ("any", "all")]:
        if count is not None:
            raise Problem("--gpus is a number of cards to choose, --gpu names them; leave one of them out", status=2)
        if {"any", "all"} & set(words):
            raise Problem(f"--gpu {' '.join(words)}: any and all stand alone; leave the others out", status=2)
        return named(words, cards, "--gpu")
    if visible and not words and count is None:
        return named([visible], cards, "CUDA_VISIBLE_DEVICES")
    if "all" in words:
        return [card.uuid for card in cards]
    for tenant in state["tenants"]:
        if tenant["name"] == name:  # one more process of it
            return [card.uuid for card in cards if card.number in tenant["gpus"]]
    wanted = 1 if count is None else count
    if not 1 <= wanted <= len(cards):
        raise Problem(f"--gpus {wanted}: give a number of cards from 1 to {len(cards)}", status=2)
    fitting = [card for card in cards if card.fits(request, memory_bytes)]
    if len(fitting) < wanted:
        left = ", ".join(told(card) for card in cards)
        by_share = [card for card in cards if card.fits(request, 0)]
        if len(by_share) >= wanted:  # limits of memory may sum to more than there is (`overbooked` says so)
            return [card.uuid for card in roomiest(by_share)[:wanted]]
        where = "the GPU" if len(cards) == 1 else f"{wanted} of the {len(cards)} GPUs" if wanted > 1 else "any GPU"
        raise Problem(f"request {format_share(request)} does not fit on {where}: {left}; ask for less, see gemini ps")
    return [card.uuid for card in roomiest(fitting)[:wanted]]


def roomiest(cards: Sequence[Room]) -> list[Room]:
    """Those with most room first."""
    return sorted(cards, key=lambda card: (-card.free_ppm, -card.free_bytes, card.tenants, card.number))


def told(card: Room) -> str:
    """What is left of it, as a person reads it."""
    return f"GPU {card.number} has {format_share(card.free_ppm / PPM)} left"


def elsewhere(state: dict[str, Any], uuids: Sequence[str], request: float, memory_bytes: int) -> str:
    """What to add to a refusal where another card has room; may be empty."""
    others = [card for card in rooms(state) if card.uuid not in uuids and card.fits(request, memory_bytes)]
    return f"; {told(others[0])}: --gpu {others[0].number}" if len(uuids) == 1 and others else ""


def overbooked(state: dict[str, Any], uuids: Sequence[str]) -> str | None:
    """One line where the memory limits of the tenants on one of these cards sum to more than it has."""
    for device in state["devices"]:
        memory = int(device.get("memory_bytes") or 0)
        limits = [int(t.get("memory_limit_bytes") or 0) for t in state["tenants"] if device["index"] in t["gpus"]]
        if device["uuid"] in uuids and 0 < memory < sum(limits) and max(limits) <= memory:
            return (
                f"the memory limits on GPU {device['index']} sum to {format_size(sum(limits))}, above its "
                f"{format_size(memory)}: allocations may fail before a limit is reached; give less --memory"
            )
    return None
