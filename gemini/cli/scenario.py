"""A placement scenario: nodes, what is placed, and asks one after another; JSON in, the contract's answer out.

Pure: no file is read here. A scenario that makes no sense as a whole (unknown policy, a pod on a card that is not
there) is a BadScenario, one line; an ask that makes no sense is refused in its place, and the others go on.
docs/placement.md has the format and the rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from math import isfinite, lcm
from typing import Any

from gemini.kube import names, quantity
from gemini.kube.pod import PodSpec, admission_fault, parse_ask, parse_pod
from gemini.kube.quantity import shown
from gemini.kube.spelling import InvalidPod
from gemini.placement.allocate import Allocator, UnknownPolicy
from gemini.placement.book import Book, Overbooked
from gemini.placement.group import place_group
from gemini.placement.model import GPU, WHOLE, Device, Grant, Link, Node, NodeRefusal, Partitions, Placement
from gemini.placement.tree import MODE_COST, NVLINK, PAIR_SCORE, Tree, TreeNode
from gemini.units import BadValue

KEYS = {"policies", "nodes", "tree", "placed", "asks"}
DEPTH_LIMIT = 64  # of a tree


class BadScenario(ValueError):
    """The scenario as a whole; the text is one line: where, what is wrong, how to mend it."""


# ---- reading


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadScenario(f"{where}: {shown(value)} is not an object")
    return value


def _list(value: object, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadScenario(f"{where}: {shown(value)} is not a list")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise BadScenario(f"{where}: {shown(value)} is not a name; write a string")
    return value


def _int(value: object, where: str, least: int, most: int = 2**63 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadScenario(f"{where}: {shown(value)} is not a whole number from {least} to {most}")
    return value


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise BadScenario(f"{where}: {shown(value)} is neither true nor false")
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


def read_node(entry: object, where: str) -> Node:
    given = _object(entry, where)
    name = _text(given.get("name"), f"{where}.name")
    devices = [
        _device(d, f"{where}.devices[{i}]") for i, d in enumerate(_list(given.get("devices"), f"{where}.devices"))
    ]
    seen: set[tuple[str, object]] = set()
    for device in devices:
        for what, value in (("minor", device.minor), ("uuid", device.uuid or None)):
            if value is not None and (f"{device.type} {what}", value) in seen:
                raise BadScenario(f"{where}: two devices of type {device.type} have {what} {value}")
            seen.add((f"{device.type} {what}", value))
    cards = {d.minor: d.minor for d in devices if d.type == GPU}
    by_name: dict[str, int] = {str(m): m for m in cards} | {
        d.uuid: d.minor for d in devices if d.type == GPU and d.uuid
    }
    links = _links(_list(given.get("links"), f"{where}.links"), by_name, f"{where}.links")
    return Node(name, tuple(devices), links, _partitions(given.get("partitions"), set(cards), f"{where}.partitions"))


def _device(entry: object, where: str) -> Device:
    given = _object(entry, where)
    kind = _text(given.get("type", GPU), f"{where}.type")
    minor = _int(given.get("minor"), f"{where}.minor", 0, 2**31 - 1)
    uuid, model = given.get("uuid", ""), given.get("model", "")
    for key, value in (("uuid", uuid), ("model", model)):
        if not isinstance(value, str):
            raise BadScenario(f"{where}.{key}: {shown(value)} is not text")
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
                raise BadScenario(f"{at}: {shown(end)} is no gpu of the node")
            ends.append(cards[str(end)])
        a, b = sorted(ends)
        kind = "SYS" if entry[2] == "SOC" else entry[2]
        if kind == NVLINK:
            links.append(Link(a, b, NVLINK, _int(entry[3] if len(entry) > 3 else 1, f"{at}[3]", 0, 1000)))
            continue
        if not isinstance(kind, str) or kind not in PAIR_SCORE:
            raise BadScenario(f"{at}: {shown(kind)} is no kind of link; use NVLINK or one of {' '.join(PAIR_SCORE)}")
        if kinds.setdefault((a, b), kind) != kind:
            raise BadScenario(f"{at}: {kind} contradicts {kinds[a, b]} said of the same two cards before")
        links.append(Link(a, b, kind))
    return tuple(links)


def _partitions(value: object, cards: set[int], where: str) -> Partitions | None:
    if value is None:
        return None
    given = _object(value, where)
    policy = given.get("policy", "honor")
    if policy not in ("honor", "prefer"):
        raise BadScenario(f"{where}.policy: {shown(policy)} is not known; use honor or prefer")
    sets = []
    for i, members in enumerate(_list(given.get("sets"), f"{where}.sets")):
        listed = [_int(m, f"{where}.sets[{i}]", 0) for m in _list(members, f"{where}.sets[{i}]")]
        if not listed or len(set(listed)) != len(listed) or not set(listed) <= cards:
            raise BadScenario(f"{where}.sets[{i}]: {shown(members)} is not a set of minors of the node's gpus")
        sets.append(tuple(sorted(listed)))
    return Partitions(policy == "honor", tuple(sets))


def read_tree(value: object, nodes: Iterable[Node]) -> Tree:
    cards = {f"{node.name}/{d.minor}": (node.name, d.minor) for node in nodes for d in node.devices if d.type == GPU}
    used: set[str] = set()
    costs: list[Fraction] = []

    def visit(entry: object, where: str, depth: int) -> tuple[str, Fraction, list[Any]]:
        given = _object(entry, where)
        if depth > DEPTH_LIMIT:
            raise BadScenario(f"{where}: the tree is deeper than {DEPTH_LIMIT}")
        mode = given.get("mode", "")
        if not isinstance(mode, str):
            raise BadScenario(f"{where}.mode: {shown(mode)} is not text")
        cost = _cost(given.get("cost"), mode, where)
        costs.append(cost)
        children: list[Any] = []
        for i, child in enumerate(_list(given.get("children"), f"{where}.children")):
            at = f"{where}.children[{i}]"
            if isinstance(child, str):
                if child not in cards:
                    raise BadScenario(f"{at}: {shown(child)} is no gpu; write NODE/MINOR such as n1/0")
                if child in used:
                    raise BadScenario(f"{at}: {child} stands in the tree twice")
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
        raise BadScenario(f"{where}.cost: {shown(value)} is not a number from 0 to 1000000000")
    return Fraction(Decimal(str(value)))


def _read_placed(entry: object, where: str) -> Placement:
    given = _object(entry, where)
    pod, node = _text(given.get("pod"), f"{where}.pod"), _text(given.get("node"), f"{where}.node")
    grants = []
    for i, held in enumerate(_list(given.get("devices"), f"{where}.devices")):
        at = f"{where}.devices[{i}]"
        part = _object(held, at)
        kind = _text(part.get("type", GPU), f"{at}.type")
        minor = _int(part.get("minor"), f"{at}.minor", 0)
        core = _int(part.get("core", 0), f"{at}.core", 0, WHOLE)
        grants.append(Grant(kind, minor, core, _bytes(part.get("memory", 0), f"{at}.memory")))
    return Placement(pod, node, tuple(grants))


# ---- running


@dataclass
class _Waiting:
    """Members of a group that is not complete yet: (place in the answer, spec)."""

    size: int
    members: list[tuple[int, PodSpec]] = field(default_factory=list)


class Scenario:
    """A scenario that made sense; `run` places the asks one after another."""

    def __init__(self, text: object) -> None:
        given = _object(text, "scenario")
        self.notes = [f"{shown(key)} is no key of a scenario, ignored" for key in given if key not in KEYS]
        nodes = [read_node(n, f"nodes[{i}]") for i, n in enumerate(_list(given.get("nodes"), "nodes"))]
        seen: set[str] = set()
        for node in nodes:
            if node.name in seen:
                raise BadScenario(f"nodes: {node.name} is there twice; give each node its own name")
            seen.add(node.name)
        tree = None if given.get("tree") is None else read_tree(given["tree"], nodes)
        self.book = Book(nodes, tree)
        self.types = names.DEVICE_TYPES | {d.type for node in nodes for d in node.devices} - {GPU}
        policies = _list(given.get("policies"), "policies")
        try:
            self.allocator = Allocator(self.book, [_text(p, f"policies[{i}]") for i, p in enumerate(policies)])
        except UnknownPolicy as error:
            raise BadScenario(f"policies: {error}") from None
        for i, entry in enumerate(_list(given.get("placed"), "placed")):
            try:
                self.book.place(_read_placed(entry, f"placed[{i}]"))
            except Overbooked as error:
                raise BadScenario(f"placed[{i}]: {error}") from None
        self.asks = _list(given.get("asks"), "asks")
        known = set(self.book.holdings)
        for i, entry in enumerate(self.asks):
            ask = _object(entry, f"asks[{i}]")
            event = next((key for key in ("release", "initialized") if key in ask), None)
            if event is None:
                known.add(_pod_name(ask))
            elif not isinstance(ask[event], str) or ask[event] not in known:
                raise BadScenario(f"asks[{i}].{event}: no pod {shown(ask[event])} was placed or asked for before")
        self._groups: dict[str, _Waiting] = {}
        self._group_of: dict[str, str] = {}
        self._with_containers: set[str] = set()

    def run(self) -> dict[str, Any]:
        """The answer; events have no entry in it."""
        answers: list[dict[str, Any]] = []
        for ask in self.asks:
            if "release" in ask:
                self._release(ask["release"], answers)
            elif "initialized" in ask:
                self.book.initialized(ask["initialized"])
            else:
                answers.append({})
                self._ask(ask, answers)
        for name, group in self._groups.items():
            for at, spec in group.members:
                message = f"group {name} has {len(group.members)} of its {group.size} pods"
                answers[at] = _refused(spec.name, "GroupIncomplete", f"{message}; none is placed before all are there")
        return {"placements": answers}

    def _ask(self, ask: dict[str, Any], answers: list[dict[str, Any]]) -> None:
        at = len(answers) - 1
        pod = _pod_name(ask)
        try:
            spec = self._spec(pod, ask)
            self._check_group(spec)
        except InvalidPod as error:
            answers[at] = _refused(pod, "Invalid", str(error))
            return
        self._group_of.pop(pod, None)
        if spec.ask.group is None:
            placement = self.allocator.choose(spec.ask)
            if placement is None:
                answers[at] = _refused_by(pod, self.allocator.explain(spec.ask))
                return
            self.book.place(placement)
            answers[at] = self._placed(spec, placement)
            return
        group = self._groups.setdefault(spec.ask.group, _Waiting(spec.ask.group_size))
        group.members.append((at, spec))
        self._group_of[pod] = spec.ask.group
        running = self._running(spec.ask.group)
        if len(group.members) + len(running) >= group.size:
            self._place_group(spec.ask.group, group, running, answers)

    def _spec(self, pod: str, ask: dict[str, Any]) -> PodSpec:
        if not pod:
            raise InvalidPod("pod", "the ask names no pod; add a name")
        waits = any(spec.name == pod for group in self._groups.values() for _, spec in group.members)
        if pod in self.book.holdings or waits:
            raise InvalidPod("pod", f"{shown(pod)} is placed or waiting already; release it first, or use another name")
        self._with_containers.discard(pod)
        if "manifest" in ask:
            for key in ("annotations", "resources", "labels"):
                if ask.get(key):
                    raise InvalidPod(key, "is said beside a manifest; write it into the manifest")
            spec = parse_pod(ask["manifest"], self.types, name=pod)
            fault = admission_fault(ask["manifest"], spec)
            if fault is not None:
                raise fault
            self._with_containers.add(pod)
        else:
            spec = parse_ask(pod, ask.get("annotations"), ask.get("resources"), ask.get("labels"), self.types)
        if not spec.wanted:
            raise InvalidPod(
                "pod", f"{shown(pod)} asks for no device; add {names.GPU_REQUEST} or a resource such as gpus"
            )
        try:
            self.allocator.check(spec.ask)
        except UnknownPolicy as error:
            raise InvalidPod(names.GPU_POLICY, str(error)) from None
        return spec

    # ---- groups

    def _check_group(self, spec: PodSpec) -> None:
        group = self._groups.get(spec.ask.group or "")
        if group is not None and group.members and group.size != spec.ask.group_size:
            problem = f"{spec.ask.group_size} differs from {group.size}, said by another pod of {spec.ask.group}"
            raise InvalidPod(names.POD_GROUP_SIZE, f"{problem}; say the same in all of them")

    def _running(self, name: str) -> list[Placement]:
        holdings = self.book.holdings
        return [holdings[p].placement for p, group in self._group_of.items() if group == name and p in holdings]

    def _place_group(self, name: str, group: _Waiting, running: list[Placement], answers: list[dict[str, Any]]) -> None:
        del self._groups[name]
        specs = [spec for _, spec in group.members]
        placements = place_group(self.allocator, [spec.ask for spec in specs], running)
        if placements is not None:
            for (at, spec), placement in zip(group.members, placements, strict=True):
                self.book.place(placement)
                answers[at] = self._placed(spec, placement)
            return
        reasons: dict[str, NodeRefusal] = {}
        for node in self.book.nodes():
            why = f"the node has no room for all {group.size} pods of group {name} together"
            if running and node.name != running[0].node:
                why = f"the node is not {running[0].node}, where other pods of group {name} run"
            reasons[node.name] = NodeRefusal("GroupDoesNotFit", why)
        for spec in specs:  # a pod that the node could not take even alone says it better
            for host, refusal in self.allocator.explain(spec.ask).items():
                if reasons[host].reason == "GroupDoesNotFit":
                    reasons[host] = refusal
        for at, spec in group.members:
            answers[at] = _refused_by(spec.name, reasons)

    def _release(self, pod: str, answers: list[dict[str, Any]]) -> None:
        self.book.release(pod)
        for name, group in list(self._groups.items()):
            for at, spec in list(group.members):
                if spec.name == pod:
                    group.members.remove((at, spec))
                    answers[at] = _refused(pod, "Released", f"released while it waited for group {name}")
            if not group.members:
                del self._groups[name]

    # ---- answering

    def _placed(self, spec: PodSpec, placement: Placement) -> dict[str, Any]:
        node = self.book.node(placement.node)
        assert node is not None
        uuids = {(d.type, d.minor): d.uuid for d in node.devices}
        devices = []
        held = self.book.holdings[spec.name].devices()
        for (kind, minor), amounts in sorted(held.items(), key=lambda h: (h[0][0] != GPU, h[0])):
            core, memory, _ = amounts.total()
            entry = {"type": kind, "minor": minor, "uuid": uuids[kind, minor], "core": core, "memory": memory}
            devices.append(entry)
        answer: dict[str, Any] = {"pod": spec.name, "node": placement.node, "devices": devices}
        if spec.name in self._with_containers:
            answer["containers"] = {
                container.name: [
                    {"type": g.type, "minor": g.minor, "core": g.core, "memory": g.memory}
                    for g in sorted(placement.grants, key=lambda g: (g.type != GPU, g.type, g.minor))
                    if container.name in spec.ask.tenants[g.tenant].containers
                ]
                for container in spec.containers
            }
        return answer


def _pod_name(ask: dict[str, Any]) -> str:
    """The ask's name, or that of its manifest; empty where there is none."""
    name = ask.get("pod")
    if name is None and isinstance(ask.get("manifest"), dict):
        metadata = ask["manifest"].get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def _refused(pod: str, reason: str, message: str) -> dict[str, Any]:
    return {"pod": pod, "refused": {"*": {"reason": reason, "message": message}}}


def _refused_by(pod: str, refusals: dict[str, NodeRefusal]) -> dict[str, Any]:
    if not refusals:
        return _refused(pod, "NoNodes", "there is no node; add one under nodes")
    nodes = {
        name: {"reason": refusal.reason, "message": refusal.message, "devices": refusal.devices}
        for name, refusal in refusals.items()
    }
    return {"pod": pod, "refused": nodes}
