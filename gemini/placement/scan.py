"""One want on many nodes at once: which cards fit, which sets of them, and which set each node would give.

Pure numpy over the Blocks of a book; the allocator puts the answers for a pod's tenants together. An Overlay carries
what the pod's earlier tenants would hold on each node, so that a pod of several containers is tried everywhere without
touching the book.

Where a node has more sets of cards than SETS_LIMIT (say 16 of 32), sets are grown instead: from each card that fits,
by adding the best joined one, beside the stated partitions and the lowest minors. That is no longer exhaustive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gemini.placement.book import Block, Book
from gemini.placement.model import Role, Want
from gemini.placement.policies import POLICIES, View
from gemini.placement.shape import CORE, MEMORY, SLOTS, Array, Bools, Ints, SetTable, Shape

NEEDS_KEPT = 256  # most pods of a cluster ask for one of a few things


class Overlay:
    """What the tenants of the pod at hand hold so far, were it on each node: always, apps and init apart."""

    def __init__(self) -> None:
        self._parts: dict[int, Ints] = {}  # id(block) -> [role, core/memory/slots, row, column]

    def part(self, block: Block) -> Ints | None:
        return self._parts.get(id(block))

    def add(self, block: Block, rows: Ints, columns: Array, need: Ints, role: Role) -> None:
        """Gives each of `rows` (distinct) its `columns` ([row, card]) with `need` [3, column]."""
        part = self._parts.get(id(block))
        if part is None:
            part = self._parts[id(block)] = np.zeros((3, *block.used.shape), dtype=np.int64)
        at = (slice(None), rows[:, None], columns)
        if role is Role.INIT:
            part[2][at] = np.maximum(part[2][at], need[:, columns])
        else:
            part[0 if role is Role.ALWAYS else 1][at] += need[:, columns]


def need_of(want: Want, shape: Shape) -> Ints:
    """[core/memory/slots, column]: what the want takes of each column's device. Not to be changed."""
    known = shape.needs.get(want)
    if known is None:
        if len(shape.needs) >= NEEDS_KEPT:
            shape.needs.clear()
        known = shape.needs[want] = _need_of(want, shape)
    return known


def _need_of(want: Want, shape: Shape) -> Ints:
    memory = [want.memory_on(total) for total in shape.total[MEMORY].tolist()]
    core = [want.core_on(total) for total in shape.total[MEMORY].tolist()]
    return np.array([core, memory, [1] * shape.count], dtype=np.int64)


@dataclass
class Fit:
    """Which cards of some rows of a block can take a want by themselves."""

    block: Block
    rows: Ints
    need: Ints  # [3, column]
    before: Ints  # [3, row, column] used before the ask's pod
    beside: Ints | None  # what the pod's earlier tenants hold at the same time as this one; None: nothing
    held: Ints | None  # what the pod would hold of the card if it were taken; None: the need alone
    allowed: Bools | None  # [row or 1, column] by model and uuid; None: all
    fits: Bools

    @cached_property
    def now(self) -> Ints:
        return self.before if self.beside is None else self.before + self.beside

    @cached_property
    def after(self) -> Ints:
        return self.before + self.more

    @property
    def more(self) -> Ints:
        """[3, row or 1, column] what the pod would hold of each card, if it were taken."""
        return bounded(self.need, self.block.shape)[:, None, :] if self.held is None else self.held

    @cached_property
    def nobody(self) -> Bools:
        """[row, column]: nobody holds anything of the card."""
        return _nobody(self.block, self.rows, self.beside)

    def only(self, row: int) -> Fit:
        part = slice(row, row + 1)
        beside, held = (None if x is None else x[:, part] for x in (self.beside, self.held))
        return Fit(
            self.block, self.rows[part], self.need, self.before[:, part], beside, held, self.allowed, self.fits[part]
        )


def _nobody(block: Block, rows: Ints | slice, beside: Ints | None) -> Bools:
    unheld: Bools = block.holders[rows] == 0
    return unheld if beside is None else unheld & (beside[SLOTS] == 0)


def fit(book: Book, block: Block, rows: Ints | None, want: Want, role: Role, overlay: Overlay, unused: bool) -> Fit:
    """Looks at each card alone. `rows` None: all rows, without a copy. This is the hot scan: without an overlay each
    amount is compared once with what may be used at most, and nothing else is computed before somebody asks for it."""
    shape = block.shape
    pick = slice(None) if rows is None else rows
    used = block.used[:, pick]
    need = need_of(want, shape)
    part = overlay.part(block)
    beside = held = None
    counted = (CORE, MEMORY, SLOTS) if shape.weights[SLOTS].any() else (CORE, MEMORY)
    fits: Bools = block.usable[pick].copy()
    if part is None:
        most = most_used(shape, need)
        for k in counted:
            fits &= used[k] <= most[k]
    else:
        beside, held = _with_earlier(part[:, :, pick], bounded(need, shape)[:, None, :], role)
        for k in counted:
            fits &= used[k] + held[k] <= shape.total[k]
        fits &= used[CORE] + beside[CORE] < shape.total[CORE]
    allowed = _allowed(book, block, rows, want)
    if allowed is not None:
        fits &= allowed
    if unused:
        fits &= _nobody(block, pick, beside)
    rows = np.arange(len(block.devices)) if rows is None else rows
    return Fit(block, rows, need, used, beside, held, allowed, fits)


def bounded(need: Ints, shape: Shape) -> Ints:
    """The need, or a little more than there is where it is more: the largest numbers that can be asked for would wrap
    around to less than nothing when others are added to them."""
    return np.minimum(need, shape.total + 1)


def most_used(shape: Shape, need: Ints) -> Ints:
    """[core/memory/slots, column]: how much of a device may be used already, to have room for the need."""
    most = shape.total - need
    if not need[CORE].all():  # wholly promised: not even for best effort
        most[CORE] = np.minimum(most[CORE], shape.total[CORE] - 1)
    return most


def _with_earlier(part: Ints, more: Ints, role: Role) -> tuple[Ints, Ints]:
    """(what the pod holds beside this tenant, what it would hold in all): always + max(apps, init)."""
    always, apps, init = part
    if role is Role.APP:
        return always + apps, always + np.maximum(apps + more, init)
    if role is Role.INIT:
        return always, always + np.maximum(apps, np.maximum(init, more))
    beside = always + np.maximum(apps, init)
    return beside, beside + more


def same_model(name: str) -> str:
    """Models as they are compared: node labels cannot hold the spaces of NVML's names, nor do people keep to case."""
    return name.replace(" ", "-").casefold()


def _allowed(book: Book, block: Block, rows: Ints | None, want: Want) -> Bools | None:
    if not want.models and not want.uuids and not want.excluded:
        return None
    shape = block.shape
    models = {same_model(m) for m in want.models}
    by_model: Bools = np.array([not models or same_model(m) in models for m in shape.models], dtype=bool)[None, :]
    if not want.uuids and not want.excluded:
        return by_model
    allowed = np.full((len(block.devices), shape.count), not want.uuids, dtype=bool)
    for uuids, value in ((want.uuids, True), (want.excluded, False)):
        for uuid in uuids:
            for node, kind, minor in book.uuids.get(uuid, ()):
                at = book.row(node, kind)
                if at is not None and at[0] is block:
                    allowed[at[1], shape.minors.index(minor)] = value
    if rows is not None:
        allowed = allowed[rows]
    return allowed & by_model


@dataclass
class Scored:
    """The choice of each of some nodes: `feasible` rows give `sets.members[best]`; `values` has, for each policy of
    the pod that says something of the want, the number of that choice."""

    fit: Fit
    sets: SetTable
    feasible: Bools
    best: Ints
    view: View | None = None
    values: dict[str, Array] = field(default_factory=dict)

    @property
    def ordinals(self) -> Ints:
        return self.fit.block.ordinal[self.fit.rows]


def score(
    book: Book, seen: Fit, want: Want, own: Sequence[str] | None, pod: Sequence[str], switches: Bools | None
) -> list[Scored]:
    """The best set on each row by the tenant's policies (`own`), with its numbers by those of the pod. `own` None:
    only whether there is a set matters.

    `switches` [row, column]: the card's switch has what the want takes jointly; None where it takes nothing.
    """
    shape = seen.block.shape
    if want.count > shape.count:
        return []
    table = shape.sets(want.count)
    if table is not None:
        return [_score(book, seen, table, want, own, pod, switches)]
    result = []
    for i in range(len(seen.rows)):
        if seen.fits[i].sum() < want.count:
            continue
        one = seen.only(i)
        grown = _grown(shape, seen.fits[i], want.count)
        result.append(_score(book, one, grown, want, own, pod, None if switches is None else switches[i : i + 1]))
    return result


def _score(
    book: Book,
    seen: Fit,
    table: SetTable,
    want: Want,
    own: Sequence[str] | None,
    pod: Sequence[str],
    switches: Bools | None,
) -> Scored:
    shape, rows = seen.block.shape, seen.rows
    alive = sets_that_fit(seen, table, want, switches)
    each = np.arange(len(rows))
    feasible: Bools = alive[each, alive.argmax(axis=1)]  # any() and min() along few cards take several times as long
    result = Scored(seen, table, feasible, np.zeros(len(rows), dtype=np.int64))
    if own is None or not feasible.any():
        return result
    view = View(
        shape, table, want, seen.before, seen.fits,
        now=lambda: seen.now,
        more=lambda: seen.more,
        idle=lambda: seen.nobody & seen.block.usable[rows],
        open_siblings=lambda: book.open_siblings(seen.block, seen.now),
    )  # fmt: skip
    numbers: dict[str, Array] = {}
    for name in own:
        policy = POLICIES[name]
        if policy.condition or not policy.applies(want) or name in numbers:
            continue
        key = policy.key(view)
        behind = np.iinfo(np.int64).max if key.dtype == np.int64 else key.max() + 1
        masked = np.where(alive, key, behind)
        numbers[name] = masked[each, masked.argmin(axis=1)]
        alive = alive & (masked == numbers[name][:, None])
    result.view = view
    result.best = alive.argmax(axis=1)
    for name in pod:
        policy = POLICIES[name]
        if policy.condition or not policy.applies(want):
            continue
        if name not in numbers:
            key = np.broadcast_to(policy.key(view), alive.shape)
            numbers[name] = key[each, result.best]
        result.values[name] = numbers[name]
    return result


def sets_that_fit(seen: Fit, table: SetTable, want: Want, switches: Bools | None) -> Bools:
    """[row, set]: all cards fit, and the set is of one model, in scope, a partition where it must be, and joint."""
    traits = seen.block.shape.traits
    usable = seen.fits if switches is None else seen.fits & switches
    if want.count == 1:
        alive = usable if len(table) == seen.block.shape.count else usable[:, table.members[:, 0]]
    else:
        alive = usable[:, table.members].all(axis=2) & table.one_model
    scoped = in_scope(table, want.scope)
    if scoped is not None:
        alive = alive & scoped
    if want.whole and (traits.strict or traits.partitions):
        parts = alive & table.in_partition
        alive = parts if traits.strict else np.where(parts.any(axis=1, keepdims=True), parts, alive)
    return alive


def in_scope(table: SetTable, scope: str | None) -> Bools | None:
    """[set]: within the required topology scope; None where that asks for nothing."""
    if scope == "pcie":
        return table.one_switch
    if scope == "numa":
        return table.one_numa
    return table.nvlink_joined if scope == "nvlink" else None


def _grown(shape: Shape, fits: Bools, size: int) -> SetTable:
    columns = np.flatnonzero(fits).tolist()
    found = {tuple(columns[:size])}
    found |= {p for p in shape.traits.partitions if len(p) == size and all(fits[c] for c in p)}
    for seed in columns:
        chosen = [seed]
        near = [c for c in columns if c != seed and shape.models[c] == shape.models[seed]]
        while len(chosen) < size and near:
            best = max(near, key=lambda c: (int(shape.pair[c, chosen].sum()), -c))
            near.remove(best)
            chosen.append(best)
        if len(chosen) == size:
            found.add(tuple(sorted(chosen)))
    return SetTable(shape, np.array(sorted(found), dtype=np.intp))
