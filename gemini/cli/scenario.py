"""A placement scenario: nodes, what is placed, and asks one after another; JSON in, the contract's answer out.

Pure: no file is read here; the parts are read by scenario_parts.py. A scenario that makes no sense as a whole (unknown
policy, a pod on a card that is not there) is a BadScenario, one line. An ask that makes no sense is refused in its
place, and the others go on. docs/placement.md has the format and the rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gemini.cli.scenario_parts import (
    BadScenario,
    a_list,
    a_text,
    an_object,
    read_labels,
    read_node,
    read_placed,
    read_tree,
    unknown_keys,
)
from gemini.kube import names
from gemini.kube.escapes import admission_fault
from gemini.kube.group import differing, domain
from gemini.kube.pod import PodSpec, parse_ask, parse_pod
from gemini.kube.quantity import shown
from gemini.kube.spelling import InvalidPod
from gemini.placement.allocate import Allocator, UnknownPolicy
from gemini.placement.book import Book, Overbooked
from gemini.placement.domain import everybody, place_within
from gemini.placement.model import GPU, NODE_LEVEL, NodeRefusal, Placement
from gemini.placement.reasons import Reason


@dataclass
class _Waiting:
    """Members of a group that is not complete yet: (place in the answer, spec)."""

    size: int
    members: list[tuple[int, PodSpec]] = field(default_factory=list)


class Scenario:
    """A scenario that made sense; `run` places the asks one after another."""

    def __init__(self, text: object) -> None:
        given = an_object(text, "scenario")
        listed = a_list(given.get("nodes"), "nodes")
        nodes = [read_node(n, f"nodes[{i}]") for i, n in enumerate(listed)]
        self._labels = {node.name: read_labels(listed[i], f"nodes[{i}]") for i, node in enumerate(nodes)}
        seen: set[str] = set()
        for node in nodes:
            if node.name in seen:
                raise BadScenario(f"nodes: {node.name} is there twice; give each node its own name")
            seen.add(node.name)
        tree = None if given.get("tree") is None else read_tree(given["tree"], nodes)
        self.book = Book(nodes, tree)
        self.types = names.DEVICE_TYPES | {d.type for node in nodes for d in node.devices} - {GPU}
        policies = a_list(given.get("policies"), "policies")
        try:
            self.allocator = Allocator(self.book, [a_text(p, f"policies[{i}]") for i, p in enumerate(policies)])
        except UnknownPolicy as error:
            raise BadScenario(f"policies: {error}") from None
        for i, entry in enumerate(a_list(given.get("placed"), "placed")):
            try:
                self.book.place(read_placed(entry, f"placed[{i}]"))
            except Overbooked as error:
                raise BadScenario(f"placed[{i}]: {error}") from None
        self.asks = a_list(given.get("asks"), "asks")
        known = set(self.book.holdings)
        for i, entry in enumerate(self.asks):
            ask = an_object(entry, f"asks[{i}]")
            event = next((key for key in ("release", "initialized") if key in ask), None)
            if event is None:
                known.add(_pod_name(ask))
            elif not isinstance(ask[event], str) or ask[event] not in known:
                raise BadScenario(
                    f"asks[{i}].{event}: no pod {shown(ask[event])} was placed or asked for before; name one that was"
                )
        self.notes = list(unknown_keys(given))
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
                message += "; none is placed before all are there"
                answers[at] = _refused(spec.name, Reason.GROUP_INCOMPLETE.text, message)
        return {"placements": answers}

    def _ask(self, ask: dict[str, Any], answers: list[dict[str, Any]]) -> None:
        at = len(answers) - 1
        pod = _pod_name(ask)
        try:
            spec = self._spec(pod, ask)
            self._check_group(spec)
        except InvalidPod as error:
            answers[at] = _refused(pod, Reason.INVALID.text, str(error))
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
                "pod",
                f"{shown(pod)} asks for no device; add {names.GPU_REQUEST} or a resource such as {names.RESOURCE_CORE}",
            )
        try:
            self.allocator.check(spec.ask)
        except UnknownPolicy as error:
            raise InvalidPod(names.GPU_POLICY, str(error)) from None
        return spec

    # ---- groups

    def _check_group(self, spec: PodSpec) -> None:
        group = self._groups.get(spec.ask.group or "")
        if group is None or not group.members:
            return
        if (words := differing(spec.ask, group.members[0][1].ask)) is not None:
            key, mine, theirs = words
            problem = f"{mine} differs from {theirs}, said by another pod of {spec.ask.group}"
            raise InvalidPod(key, f"{problem}; say the same in all of them")

    def _domain_of(self, node: str, level: str) -> str:
        return domain(node, self._labels[node], level)

    def _running(self, name: str) -> list[Placement]:
        holdings = self.book.holdings
        return [holdings[p].placement for p, group in self._group_of.items() if group == name and p in holdings]

    def _place_group(self, name: str, group: _Waiting, running: list[Placement], answers: list[dict[str, Any]]) -> None:
        del self._groups[name]
        specs = [spec for _, spec in group.members]
        everywhere = [node.name for node in self.book.nodes()]
        members = everybody([spec.ask for spec in specs], everywhere, running)
        placements = place_within(self.allocator, members, self._domain_of)
        if placements is not None:
            for (at, spec), placement in zip(group.members, placements, strict=True):
                self.book.place(placement)
                answers[at] = self._placed(spec, placement)
            return
        reasons: dict[str, NodeRefusal] = {}
        for node in self.book.nodes():
            why = f"the node has no room for all {group.size} pods of group {name} together"
            if specs[0].ask.required != NODE_LEVEL:
                why = f"the nodes have no room for all {group.size} pods of group {name} together"
            elif running and node.name != running[0].node:
                why = f"the node is not {running[0].node}, where other pods of group {name} run"
            reasons[node.name] = NodeRefusal(Reason.GROUP_DOES_NOT_FIT.text, why)
        for spec in specs:  # a pod that the node could not take even alone says it better
            for host, refusal in self.allocator.explain(spec.ask).items():
                if reasons[host].reason == Reason.GROUP_DOES_NOT_FIT.text:
                    reasons[host] = refusal
        for at, spec in group.members:
            answers[at] = _refused_by(spec.name, reasons)

    def _release(self, pod: str, answers: list[dict[str, Any]]) -> None:
        self.book.release(pod)
        for name, group in list(self._groups.items()):
            for at, spec in list(group.members):
                if spec.name == pod:
                    group.members.remove((at, spec))
                    answers[at] = _refused(pod, Reason.RELEASED.text, f"released while it waited for group {name}")
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
        return _refused(pod, Reason.NO_NODES.text, "there is no node; add one under nodes")
    nodes = {
        name: {"reason": refusal.reason, "message": refusal.message, "devices": refusal.devices}
        for name, refusal in refusals.items()
    }
    return {"pod": pod, "refused": nodes}
