"""The parts of a placement scenario, from JSON: nodes with their cards and links, trees of costs, what is placed.

Pure. What makes no sense is a BadScenario of one line. docs/placement.md has the format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from math import isfinite, lcm
from typing import Any

from gemini.kube import quantity
from gemini.kube.quantity import shown
from gemini.placement.model import GPU, WHOLE, Device, Grant, Link, Node, Partitions, Placement
from gemini.placement.tree import MODE_COST, NVLINK, PAIR_SCORE, Tree, TreeNode
from gemini.units import BadValue

DEPTH_LIMIT = 64  # of a tree
KEYS = {
    "scenario": ("policies", "nodes", "tree", "placed", "asks"),
    "node": ("name", "labels", "devices", "links", "partitions"),
    "device": ("type", "minor", "uuid", "model", "memory", "core", "health", "numa", "pcie", "slots", "cordoned"),
    "placed pod": ("pod", "node", "devices", "containers"),  # as in an answer; containers say nothing more
    "placed device": ("type", "minor", "core", "memory", "uuid"),
    "ask": ("pod", "annotations", "resources", "labels", "manifest", "release", "initialized"),
}


class BadScenario(ValueError):
    """The scenario as a whole; the text is one line: where, what is wrong, how to mend it."""


def an_object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadScenario(f"{where}: {shown(value)} is not an object; write {{...}}")
    return value


def a_list(value: object, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadScenario(f"{where}: {shown(value)} is not a list; write [...]")
    return value


def a_text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise BadScenario(f"{where}: {shown(value)} is not a name; write a string")
    return value


def _int(value: object, where: str, least: int, most: int = 2**63 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadScenario(f"{where}: {shown(value)} is not a whole number from {least} to {most}; write one")
    return value


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise BadScenario(f"{where}: {shown(value)} is neither true nor false; write one of them")
    return value


def _bytes(value: object, where: str) -> int:
    try:
        return quantity.parse_bytes(value) if value not in (0, "0") else 0
    except BadValue as error:
        raise BadScenario(f"{where}: {error}") from None


def _place(value: object, where: str) -> str | None:
    """A NUMA node or PCIe switch; -1 or nothing: unknown."""
    if value is None or value in (-1, "-1", ""):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise BadScenario(f"{where}: {shown(value)} is neither a number nor a name; -1 means unknown")
    return str(value)


def unknown_keys(given: dict[str, Any]) -> Iterator[str]:
    """What stands in a scenario, whose parts have been read, and means nothing: a key, and of what it is none."""
    nodes = a_list(given.get("nodes"), "nodes")
    placed = a_list(given.get("placed"), "placed")
    parts: dict[str, Iterable[Any]] = {
        "scenario": [given],
        "node": nodes,
        "device": (device for node in nodes for device in node.get("devices") or ()),
        "placed pod": placed,
        "placed device": (device for pod in placed for device in pod.get("devices") or ()),
        "ask": a_list(given.get("asks"), "asks"),
    }
    for part, entries in parts.items():
        known = KEYS[part]
        for key in dict.fromkeys(key for entry in entries for key in entry if key not in known):
            yield f"{shown(key)} is no key of a {part}, ignored; there are {', '.join(known)}".replace(
                "a ask", "an ask"
            )


def read_node(entry: object, where: str) -> Node:
    given = an_object(entry, where)
    name = a_text(given.get("name"), f"{where}.name")
    devices = [
        _device(d, f"{where}.devices[{i}]") for i, d in enumerate(a_list(given.get("devices"), f"{where}.devices"))
    ]
    seen: set[tuple[str, object]] = set()
    for device in devices:
        for what, value in (("minor", device.minor), ("uuid", device.uuid or None)):
            if value is not None and (f"{device.type} {what}", value) in seen:
                raise BadScenario(f"{where}: two devices of type {device.type} have {what} {value}; give each its own")
            seen.add((f"{device.type} {what}", value))
    cards = {d.minor: d.minor for d in devices if d.type == GPU}
    by_name: dict[str, int] = {str(m): m for m in cards} | {
        d.uuid: d.minor for d in devices if d.type == GPU and d.uuid
    }
    links = _links(a_list(given.get("links"), f"{where}.links"), by_name, f"{where}.links")
    return Node(name, tuple(devices), links, _partitions(given.get("partitions"), set(cards), f"{where}.partitions"))


def read_labels(entry: object, where: str) -> dict[str, str]:
    """A node's labels, which tell the domains of groups apart."""
    given = an_object(an_object(entry, where).get("labels") or {}, f"{where}.labels")
    return {key: a_text(value, f"{where}.labels[{shown(key)}]") for key, value in given.items()}


def _device(entry: object, where: str) -> Device:
    given = an_object(entry, where)
    kind = a_text(given.get("type", GPU), f"{where}.type")
    minor = _int(given.get("minor"), f"{where}.minor", 0, 2**31 - 1)
    uuid, model = given.get("uuid", ""), given.get("model", "")
    for key, value in (("uuid", uuid), ("model", model)):
        if not isinstance(value, str):
            raise BadScenario(f"{where}.{key}: {shown(value)} is not text; write a string")
    if kind == GPU and "memory" not in given:
        raise BadScenario(f"{where}.memory: a gpu needs its memory; write a size such as 16276Mi")
    slots = given.get("slots")
    return Device(
        minor=minor,
        type=kind,
        uuid=uuid,
        model=model,
        memory=_bytes(given.get("memory", 0), f"{where}.memory"),
        core=_int(given.get("core", WHOLE), f"{where}.core", 1, WHOLE),
        health=_flag(given.get("health", True), f"{where}.health"),
        numa=_place(given.get("numa"), f"{where}.numa"),
        pcie=_place(given.get("pcie"), f"{where}.pcie"),
        slots=None if slots is None else _int(slots, f"{where}.slots", 1, 10**6),
        cordoned=_flag(given.get("cordoned", False), f"{where}.cordoned"),
    )


def _links(entries: list[Any], cards: dict[str, int], where: str) -> tuple[Link, ...]:
    links = []
    kinds: dict[tuple[int, int], str] = {}
    for i, entry in enumerate(entries):
        at = f"{where}[{i}]"
        if not isinstance(entry, list) or not 3 <= len(entry) <= 4:
            raise BadScenario(f'{at}: {shown(entry)} is no link; write ["0", "1", "NVLINK", 2] or ["0", "1", "PHB"]')
        ends = []
        for end in entry[:2]:
            if isinstance(end, bool) or str(end) not in cards:
                raise BadScenario(f"{at}: {shown(end)} is no gpu of the node; name one by minor or uuid")
            ends.append(cards[str(end)])
        a, b = sorted(ends)
        kind = "SYS" if entry[2] == "SOC" else entry[2]
        if kind == NVLINK:
            links.append(Link(a, b, NVLINK, _int(entry[3] if len(entry) > 3 else 1, f"{at}[3]", 0, 1000)))
            continue
        if not isinstance(kind, str) or kind not in PAIR_SCORE:
            raise BadScenario(f"{at}: {shown(kind)} is no kind of link; use NVLINK or one of {' '.join(PAIR_SCORE)}")
        if kinds.setdefault((a, b), kind) != kind:
            raise BadScenario(f"{at}: {kind} contradicts {kinds[a, b]} said of the same two cards before; keep one")
        links.append(Link(a, b, kind))
    return tuple(links)


def _partitions(value: object, cards: set[int], where: str) -> Partitions | None:
    if value is None:
        return None
    given = an_object(value, where)
    policy = given.get("policy", "honor")
    if policy not in ("honor", "prefer"):
        raise BadScenario(f"{where}.policy: {shown(policy)} is not known; use honor or prefer")
    sets = []
    for i, members in enumerate(a_list(given.get("sets"), f"{where}.sets")):
        listed = [_int(m, f"{where}.sets[{i}]", 0) for m in a_list(members, f"{where}.sets[{i}]")]
        if not listed or len(set(listed)) != len(listed) or not set(listed) <= cards:
            raise BadScenario(
                f"{where}.sets[{i}]: {shown(members)} is not a set of minors of the node's gpus; name each once"
            )
        sets.append(tuple(sorted(listed)))
    return Partitions(policy == "honor", tuple(sets))


def read_tree(value: object, nodes: Iterable[Node]) -> Tree:
    cards = {f"{node.name}/{d.minor}": (node.name, d.minor) for node in nodes for d in node.devices if d.type == GPU}
    used: set[str] = set()
    costs: list[Fraction] = []

    def visit(entry: object, where: str, depth: int) -> tuple[str, Fraction, list[Any]]:
        given = an_object(entry, where)
        if depth > DEPTH_LIMIT:
            raise BadScenario(f"{where}: the tree is deeper than {DEPTH_LIMIT} levels; make it flatter")
        mode = given.get("mode", "")
        if not isinstance(mode, str):
            raise BadScenario(f"{where}.mode: {shown(mode)} is not text; write a string")
        cost = _cost(given.get("cost"), mode, where)
        costs.append(cost)
        children: list[Any] = []
        for i, child in enumerate(a_list(given.get("children"), f"{where}.children")):
            at = f"{where}.children[{i}]"
            if isinstance(child, str):
                if child not in cards:
                    raise BadScenario(f"{at}: {shown(child)} is no gpu; write NODE/MINOR such as n1/0")
                if child in used:
                    raise BadScenario(f"{at}: {child} stands in the tree twice; keep one")
                used.add(child)
                children.append(child)
            else:
                children.append(visit(child, at, depth + 1))
        return mode, cost, children

    raw = visit(value, "tree", 1)
    scale = lcm(*(cost.denominator for cost in costs))
    if scale > 10**6 or max(costs) * scale > 10**9:
        raise BadScenario("tree: costs differ too widely to be kept exact; use numbers up to 1000 with a few decimals")

    def made(entry: tuple[str, Fraction, list[Any]]) -> TreeNode:
        mode, cost, children = entry
        parts = tuple(cards[child] if isinstance(child, str) else made(child) for child in children)
        return TreeNode(mode, int(cost * scale), parts)

    return Tree(made(raw))


def _cost(value: object, mode: str, where: str) -> Fraction:
    if value is None:
        if mode not in MODE_COST:
            raise BadScenario(f"{where}: mode {shown(mode)} has no usual cost; write one, or use {' '.join(MODE_COST)}")
        return Fraction(MODE_COST[mode])
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    if not number or not 0 <= value <= 10**9:  # type: ignore[operator]
        raise BadScenario(f"{where}.cost: {shown(value)} is not a number from 0 to 1000000000; write one")
    return Fraction(Decimal(str(value)))


def read_placed(entry: object, where: str) -> Placement:
    given = an_object(entry, where)
    pod, node = a_text(given.get("pod"), f"{where}.pod"), a_text(given.get("node"), f"{where}.node")
    grants = []
    for i, held in enumerate(a_list(given.get("devices"), f"{where}.devices")):
        at = f"{where}.devices[{i}]"
        part = an_object(held, at)
        kind = a_text(part.get("type", GPU), f"{at}.type")
        minor = _int(part.get("minor"), f"{at}.minor", 0)
        core = _int(part.get("core", 0), f"{at}.core", 0, WHOLE)
        grants.append(Grant(kind, minor, core, _bytes(part.get("memory", 0), f"{at}.memory")))
    return Placement(pod, node, tuple(grants))
