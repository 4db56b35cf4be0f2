"""The one allocator: which node and which cards a pod gets, or why it gets none.

Pure. Reads the book, never writes it: the caller enters the placement, and may find that somebody was faster.

A pod's tenants are placed one by one on each node in parallel (scan.py), each by its policies. Then the nodes are
compared by the policies of the pod, in order: the numbers of its tenants are added up (minors are compared one tenant
after another). What is still equal goes to the first node, then to the lowest minors. All comparisons are exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemini.placement import policies as table
from gemini.placement.book import Block, Book
from gemini.placement.explain import node_refusal
from gemini.placement.model import Ask, Grant, NodeRefusal, Placement, Role, Tenant, Want
from gemini.placement.scan import Fit, Overlay, Scored, fit, need_of, score, sets_that_fit
from gemini.placement.shape import CORE, MEMORY, Array, Bools, Ints
from gemini.placement.single import single_of

Joint = dict[int, dict[str, dict[str, tuple[Block, int, int]]]]  # ordinal -> type -> switch -> device


class UnknownPolicy(ValueError):
    """A policy that is not in the table."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is no policy; use some of {', '.join(table.POLICIES)}")
        self.name = name


@dataclass(frozen=True)
class Choice:
    """A placement and what each policy of its pod says of it; less is better."""

    placement: Placement
    numbers: list[Any]


@dataclass
class Step:
    """One want of one tenant, tried on all nodes that are still possible."""

    tenant: int
    want: Want
    role: Role
    scored: list[Scored]
    joint: Joint
    at: Ints  # [ordinal] index into scored, or -1
    position: Ints  # [ordinal] row within it

    def of(self, ordinal: int) -> tuple[Scored, int]:
        return self.scored[int(self.at[ordinal])], int(self.position[ordinal])


@dataclass
class Trial:
    """A pod tried on all nodes."""

    steps: list[Step]
    possible: Bools  # [ordinal]
    refusals: dict[int, NodeRefusal]


class Allocator:
    """Chooses among the nodes of a book."""

    def __init__(self, book: Book, policies: Sequence[str] = ()) -> None:
        self.book = book
        self.policies = tuple(policies)
        self.check_policies(self.policies)

    @staticmethod
    def check_policies(names: Iterable[str]) -> None:
        for name in names:
            if name not in table.POLICIES:
                raise UnknownPolicy(name)

    def check(self, ask: Ask) -> None:
        """Raises UnknownPolicy for an ask that names one."""
        self.check_policies(ask.policies or ())
        for tenant in ask.tenants:
            self.check_policies(tenant.policies or ())

    def possible(self, ask: Ask, nodes: Iterable[str] | None = None) -> list[str]:
        """The nodes that can take the pod, in the book's order."""
        names = self.book.names
        return [name for i in np.flatnonzero(self.scan(ask, nodes)).tolist() if (name := names[i]) is not None]

    def scan(self, ask: Ask, nodes: Iterable[str] | None = None) -> Bools:
        """The same as an array over the book's ordinals."""
        return self.attempt(ask, self._candidates(nodes), choose=False).possible

    def choose(self, ask: Ask, nodes: Iterable[str] | None = None) -> Placement | None:
        """The best node and cards, or None."""
        nodes = None if nodes is None else list(nodes)
        if nodes is not None and len(nodes) == 1 and (single := single_of(ask, self.policies_of(ask))) is not None:
            at = self.book.row(nodes[0], single.want.type)
            if at is None:
                return None
            if single.serves(at[0]):
                column, _ = single.look(*at)
                return single.placement(ask.pod, nodes[0], at[0], column) if column >= 0 else None
        trial = self.attempt(ask, self._candidates(nodes))
        if not trial.possible.any():
            return None
        return self.placement(ask, trial, self._best(ask, trial))

    def explain(self, ask: Ask, nodes: Iterable[str] | None = None) -> dict[str, NodeRefusal]:
        """Why each node that cannot take the pod cannot."""
        candidates = self._candidates(nodes)
        trial = self.attempt(ask, candidates, why=True)
        names = self.book.names
        return {str(names[i]): trial.refusals[i] for i in sorted(trial.refusals) if names[i] is not None}

    def choices(self, ask: Ask, node: str) -> list[Choice]:
        """All choices of a node for a pod of one tenant with one want; for any other pod its best one."""
        candidates = self._candidates([node])
        names = self.policies_of(ask)
        wants = [(tenant, want) for tenant in ask.tenants for want in tenant.wants]
        trial = self.attempt(ask, candidates)
        if not trial.possible.any():
            return []
        ordinal = self.book.ordinal(node)
        if len(wants) > 1:
            return [Choice(self.placement(ask, trial, ordinal), self._numbers(ask, trial, ordinal))]
        (step,), want = trial.steps, wants[0][1]
        scored, position = step.of(ordinal)
        assert scored.view is not None
        switches = self._switches(scored.fit, want, step.joint) if want.joint else None
        alive = sets_that_fit(scored.fit, scored.sets, want, switches)
        keys: list[tuple[table.Policy, Array]] = []
        for name in names:
            policy = table.POLICIES[name]
            says = policy.applies(want) and not policy.condition
            key = policy.key(scored.view) if says else np.zeros((1, 1), dtype=np.int64)
            keys.append((policy, np.broadcast_to(key, alive.shape)[position]))
        result = []
        for best in np.flatnonzero(alive[position]).tolist():
            grants = self._grants(step, scored, ordinal, scored.sets.members[best].tolist())
            numbers = [policy.exact(int(key[best]), scored.view, best) for policy, key in keys]
            result.append(Choice(Placement(ask.pod, node, tuple(grants)), numbers))
        return result

    def sum_up(self, ask: Ask, choices: Sequence[Choice]) -> tuple[Any, ...]:
        """The numbers of several pods' choices by policy, to be compared; all of them have the policies of `ask`."""
        result: list[Any] = []
        for i, name in enumerate(self.policies_of(ask)):
            policy = table.POLICIES[name]
            numbers = [choice.numbers[i] for choice in (choices[:1] if policy.of_node else choices)]
            result.append(tuple(numbers) if policy.minors else sum(numbers))
        return tuple(result)

    # ---- trying

    def _candidates(self, nodes: Iterable[str] | None) -> Bools:
        if nodes is None:
            return self.book.present.copy()
        return self.among(self.book.ordinals(list(nodes)))

    def among(self, ordinals: Ints) -> Bools:
        wanted = np.zeros(len(self.book.names) + 1, dtype=bool)
        wanted[ordinals] = True  # names that are not known (-1) go to the end, and off again
        return wanted[:-1]

    def policies_of(self, ask: Ask, tenant: Tenant | None = None) -> tuple[str, ...]:
        of_pod = self.policies if ask.policies is None else ask.policies
        return of_pod if tenant is None or tenant.policies is None else tenant.policies

    def attempt(self, ask: Ask, possible: Bools, choose: bool = True, why: bool = False) -> Trial:
        """Places the tenants on all nodes at once. Without `choose` the last tenant's set is not looked for by
        policies, since only whether there is one matters; with `why` refusals are worked out too."""
        overlay = Overlay()
        refusals: dict[int, NodeRefusal] = {}
        steps: list[Step] = []
        everything = [(i, t, w) for i, t in enumerate(ask.tenants) for w in t.wants]
        for number, (index, tenant, want) in enumerate(everything):
            last = number == len(everything) - 1
            own = self.policies_of(ask, tenant) if choose or not last else None
            pod = self.policies_of(ask) if choose else ()
            unused = any(table.POLICIES[name].condition for name in self.policies_of(ask, tenant))
            step, left = self._step(
                index,
                tenant,
                want,
                own,
                pod,
                unused,
                possible,
                overlay,
                refusals if why else None,
                len(ask.tenants) > 1,
            )
            steps.append(step)
            possible = left
            if not possible.any():
                break
            if not last:
                self._hold(step, possible, overlay)
        return Trial(steps, possible, refusals)

    def _step(
        self,
        index: int,
        tenant: Tenant,
        want: Want,
        own: Sequence[str] | None,
        pod: Sequence[str],
        unused: bool,
        possible: Bools,
        overlay: Overlay,
        refusals: dict[int, NodeRefusal] | None,
        named: bool,
    ) -> tuple[Step, Bools]:
        left = np.zeros_like(possible)
        step = Step(index, want, tenant.role, [], {}, np.full(len(possible), -1), np.zeros(len(possible), dtype=int))
        if want.joint:
            step.joint = self._joint(want, tenant.role, overlay, possible)
        for block in list(self.book.blocks[want.type].values()):
            chosen = possible[block.ordinal]
            if not chosen.any():
                continue
            rows = None if chosen.all() else np.flatnonzero(chosen)
            seen = fit(self.book, block, rows, want, tenant.role, overlay, unused)
            switches = self._switches(seen, want, step.joint) if want.joint else None
            self._score(step, seen, switches, own, pod, left)
            if refusals is not None:
                self._refuse(seen, left, tenant.containers if named else (), want, unused, switches, refusals)
        if refusals is not None:
            for ordinal in np.flatnonzero(possible & ~left):
                if int(ordinal) not in refusals:
                    refusals[int(ordinal)] = node_refusal(None, 0, want, unused, None, lambda minor: [])
        return step, left

    def _score(
        self,
        step: Step,
        seen: Fit,
        switches: Bools | None,
        own: Sequence[str] | None,
        pod: Sequence[str],
        left: Bools,
    ) -> None:
        """Notes the nodes of one block that can take the want, and with which cards (`own` None: any)."""
        for scored in score(self.book, seen, step.want, own, pod, switches):
            found = np.flatnonzero(scored.feasible)
            ordinals = scored.ordinals[found]
            left[ordinals] = True
            step.at[ordinals] = len(step.scored)
            step.position[ordinals] = found
            step.scored.append(scored)

    def _refuse(
        self,
        seen: Fit,
        left: Bools,
        named: tuple[str, ...],
        want: Want,
        unused: bool,
        switches: Bools | None,
        refusals: dict[int, NodeRefusal],
    ) -> None:
        for position, ordinal in enumerate(seen.block.ordinal[seen.rows].tolist()):
            if left[ordinal]:
                continue
            name = self.book.names[ordinal] or ""
            refusal = node_refusal(
                seen, position, want, unused, switches,
                lambda minor, name=name: self.book.holders(name, want.type, minor),  # type: ignore[misc]
            )  # fmt: skip
            if named:
                refusal = NodeRefusal(refusal.reason, f"{', '.join(named)}: {refusal.message}", refusal.devices)
            refusals[ordinal] = refusal

    def _joint(self, want: Want, role: Role, overlay: Overlay, possible: Bools) -> Joint:
        """For each node and type that is taken jointly: the lowest device with room on each switch."""
        found: Joint = defaultdict(lambda: defaultdict(dict))
        for kind, core in want.joint:
            part = Want(type=kind, core=core)
            for block in self.book.blocks[kind].values():
                rows = np.flatnonzero(possible[block.ordinal])
                seen = fit(self.book, block, rows, part, role, overlay, False)
                for position, row in enumerate(rows.tolist()):
                    by_switch = found[int(block.ordinal[row])][kind]
                    for column in np.flatnonzero(seen.fits[position]).tolist():
                        switch = block.shape.pcies[column]
                        if switch is not None:
                            by_switch.setdefault(switch, (block, row, column))
        return found

    @staticmethod
    def _switches(seen: Fit, want: Want, joint: Joint) -> Bools:
        pcies = seen.block.shape.pcies
        result = np.zeros(seen.fits.shape, dtype=bool)
        for position, ordinal in enumerate(seen.block.ordinal[seen.rows].tolist()):
            here = joint.get(ordinal)
            if here is not None:
                able = [set(here[kind]) if kind in here else set() for kind, _ in want.joint]
                result[position] = [p is not None and all(p in switches for switches in able) for p in pcies]
        return result

    @staticmethod
    def _hold(step: Step, possible: Bools, overlay: Overlay) -> None:
        """Lets the overlay hold what the step gave on each node."""
        for scored in step.scored:
            keep = scored.feasible & possible[scored.ordinals]
            rows = scored.fit.rows[keep]
            members = scored.sets.members[scored.best[keep]]
            overlay.add(scored.fit.block, rows, members, scored.fit.need, step.role)
            if not step.want.joint:
                continue
            pcies = scored.fit.block.shape.pcies
            for row, columns in zip(rows.tolist(), members.tolist(), strict=True):
                here = step.joint[int(scored.fit.block.ordinal[row])]
                for kind, core in step.want.joint:
                    for switch in sorted({pcies[c] or "" for c in columns}):
                        block, at, column = here[kind][switch]
                        need = need_of(Want(type=kind, core=core), block.shape)
                        overlay.add(block, np.array([at]), np.array([[column]]), need, step.role)

    # ---- comparing nodes

    def _best(self, ask: Ask, trial: Trial) -> int:
        """The ordinal of the best node. Nodes that stand in the same tables are compared as arrays of integers, the
        best of each table by exact fractions."""
        ordinals = np.flatnonzero(trial.possible)
        groups: dict[tuple[int, ...], Ints] = {}
        code = np.zeros(len(ordinals), dtype=np.int64)
        for step in trial.steps:
            code = np.unique(code * len(step.scored) + step.at[ordinals], return_inverse=True)[1]
        for i in range(int(code.max()) + 1):
            members = ordinals[code == i]
            groups[tuple(int(step.at[members[0]]) for step in trial.steps)] = members
        finalists = []
        for tables, members in groups.items():
            alike = len({id(step.scored[at].sets) for step, at in zip(trial.steps, tables, strict=True)}) == 1
            if alike:
                members = self._refine(ask, trial, tables, members)[:1]
            finalists += [(self._key(ask, trial, int(i)), int(i)) for i in members]
        return min(finalists)[1]

    def _refine(self, ask: Ask, trial: Trial, tables: tuple[int, ...], ordinals: Ints) -> Ints:
        """Those of the nodes, all of one table, that the policies leave equal."""
        for name in self.policies_of(ask):
            columns: list[tuple[Array, Ints]] = []  # numbers by row, and each node's row
            for step, at in zip(trial.steps, tables, strict=True):
                values = step.scored[at].values
                if name in values:
                    columns.append((values[name], step.position))
            together = [[column] for column in columns] if table.POLICIES[name].minors or not columns else [columns]
            for part in together:
                number = sum(values[row[ordinals]] for values, row in part)
                ordinals = ordinals[number == np.min(number)]
        return np.sort(ordinals)

    def _key(self, ask: Ask, trial: Trial, ordinal: int) -> tuple[Any, ...]:
        """The node's numbers by policy, comparable between all nodes."""
        return tuple(self._numbers(ask, trial, ordinal))

    def _numbers(self, ask: Ask, trial: Trial, ordinal: int) -> list[Any]:
        result: list[Any] = []
        for name in self.policies_of(ask):
            policy = table.POLICIES[name]
            numbers = []
            for step in trial.steps:
                scored, position = step.of(ordinal)
                if name in scored.values and scored.view is not None:
                    value, best = scored.values[name][position], int(scored.best[position])
                    numbers.append(policy.exact(int(value), scored.view, best))
            result.append(tuple(numbers) if policy.minors else sum(numbers))
        return result

    def placement(self, ask: Ask, trial: Trial, ordinal: int) -> Placement:
        grants: list[Grant] = []
        for step in trial.steps:
            scored, position = step.of(ordinal)
            members = scored.sets.members[int(scored.best[position])].tolist()
            grants += self._grants(step, scored, ordinal, members)
        return Placement(ask.pod, str(self.book.names[ordinal]), tuple(grants))

    @staticmethod
    def _grants(step: Step, scored: Scored, ordinal: int, members: list[int]) -> list[Grant]:
        """The cards of a set, and what is taken jointly with them."""
        shape, need = scored.fit.block.shape, scored.fit.need
        grants = []
        for column in members:
            core, memory = int(need[CORE, column]), int(need[MEMORY, column])
            grants.append(Grant(step.want.type, shape.minors[column], core, memory, step.tenant, step.role))
        for kind, core in step.want.joint:
            here = step.joint[ordinal][kind]
            for switch in sorted({shape.pcies[c] or "" for c in members}):
                block, _, column = here[switch]
                grants.append(Grant(kind, block.shape.minors[column], core, 0, step.tenant, step.role))
        return grants
