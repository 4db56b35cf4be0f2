"""The access-cost tree of Gaia (S4): how dear it is for cards to talk to each other.

Pure. Inner nodes carry a link mode and a cost, the leaves are cards. A card's access cost is its parent's cost; that
of m cards is m times the cost of the lowest subtree that holds them all (Algorithm 4, which as printed neither climbs
nor collects: corrected here). Costs are integers: an operator's decimals are scaled by `scale_costs` beforehand.

A tree is either given, and may span nodes, or built for one node from what is known of its cards. Built: cards joined
by NVLink form the lowest level where each such group is fully joined (a mesh of partial links is no level; best-link
looks at those), then PIX, PXB, PHB, NODE, and SYS as the root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gemini.placement.model import Device, Link

# NVIDIA's order, which the paper's own margin note shares; SOC is the older name of SYS.
MODE_COST = {"NVLINK": 0, "PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5, "SOC": 5}
PAIR_SCORE = {"PIX": 50, "PXB": 40, "PHB": 30, "NODE": 20, "SYS": 10}
NVLINK = "NVLINK"
NVLINK_SCORE = 100

Card = tuple[str, int]  # node name, minor


@dataclass(frozen=True)
class TreeNode:
    """An inner node."""

    mode: str
    cost: int
    children: tuple[TreeNode | Card, ...]


@dataclass(frozen=True)
class LocalTree:
    """What the cards of one node need of a tree, by column."""

    cost: tuple[int, ...]
    pair_depth: tuple[tuple[int, ...], ...]  # depth of the lowest common subtree of two cards
    pair_cost: tuple[tuple[int, ...], ...]  # and its cost
    siblings: tuple[tuple[bool, ...], ...]  # [a][b]: b is another card below a's parent
    foreign: tuple[tuple[Card, ...], ...]  # siblings on other nodes


class Tree:
    """A tree with the way from its root to each card."""

    def __init__(self, root: TreeNode) -> None:
        self.root = root
        self._paths: dict[Card, tuple[TreeNode, ...]] = {}
        self._cards: dict[int, list[Card]] = {}
        self._walk(root, ())

    def _walk(self, top: TreeNode, above: tuple[TreeNode, ...]) -> list[Card]:
        path = (*above, top)
        found: list[Card] = []
        for child in top.children:
            if isinstance(child, TreeNode):
                found += self._walk(child, path)
            else:
                self._paths[child] = path
                found.append(child)
        self._cards[id(top)] = found
        return found

    def __contains__(self, card: Card) -> bool:
        return card in self._paths

    def cards(self) -> Iterable[Card]:
        return self._paths

    def local(self, node: str, minors: Sequence[int]) -> LocalTree:
        """The part that concerns a node's cards. A card that the tree does not name hangs below the root."""
        cards = [(node, minor) for minor in minors]
        paths = [self._paths.get(card, (self.root,)) for card in cards]
        depth, cost = [], []
        for a in paths:
            shared = [_common(a, b) for b in paths]
            depth.append(tuple(shared))
            cost.append(tuple(a[d - 1].cost for d in shared))
        below = [[c for c in self._cards[id(path[-1])] if c != card] for path, card in zip(paths, cards, strict=True)]
        return LocalTree(
            cost=tuple(path[-1].cost for path in paths),
            pair_depth=tuple(depth),
            pair_cost=tuple(cost),
            siblings=tuple(tuple(other in near for other in cards) for near in below),
            foreign=tuple(tuple(c for c in near if c[0] != node) for near in below),
        )


def _common(a: tuple[TreeNode, ...], b: tuple[TreeNode, ...]) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x is not y:
            break
        count += 1
    return count


@dataclass(frozen=True)
class Connections:
    """How each pair of a node's gpus is joined, by column."""

    kinds: tuple[tuple[str, ...], ...]
    nvlinks: tuple[tuple[int, ...], ...]

    def score(self, a: int, b: int) -> int:
        """Pair score: 100 for each NVLink and what the way over PCIe is worth."""
        return 0 if a == b else NVLINK_SCORE * self.nvlinks[a][b] + PAIR_SCORE[self.kinds[a][b]]


def connections(devices: Sequence[Device], links: Iterable[Link]) -> Connections:
    """Stated links first; a pair without a kind: same switch PIX, else same known NUMA node NODE, else SYS."""
    column = {device.minor: i for i, device in enumerate(devices)}
    kinds = [[_implied(a, b) for b in devices] for a in devices]
    nvlinks = [[0] * len(devices) for _ in devices]
    for link in links:
        if link.a not in column or link.b not in column or link.a == link.b:
            continue
        a, b = column[link.a], column[link.b]
        for i, j in ((a, b), (b, a)):
            if link.kind == NVLINK:
                nvlinks[i][j] = max(nvlinks[i][j], link.count)
            else:
                kinds[i][j] = link.kind
    return Connections(tuple(map(tuple, kinds)), tuple(map(tuple, nvlinks)))


def _implied(a: Device, b: Device) -> str:
    if a.pcie is not None and a.pcie == b.pcie:
        return "PIX"
    return "NODE" if a.numa is not None and a.numa == b.numa else "SYS"


def build(node: str, devices: Sequence[Device], joined: Connections) -> TreeNode:
    """The tree of one node."""
    levels: list[tuple[str, Callable[[int, int], bool]]] = []
    if _nvlink_groups_are_full(joined):
        levels.append((NVLINK, lambda a, b: joined.nvlinks[a][b] > 0))
    for mode in ("PIX", "PXB", "PHB", "NODE"):
        cost = MODE_COST[mode]
        levels.append((mode, lambda a, b, cost=cost: MODE_COST[joined.kinds[a][b]] <= cost))  # type: ignore[misc]
    groups: list[tuple[list[int], TreeNode | Card]] = [([i], (node, d.minor)) for i, d in enumerate(devices)]
    for mode, near in levels:
        groups = _merge(groups, mode, near, devices)
    if len(groups) == 1 and isinstance(groups[0][1], TreeNode):
        return groups[0][1]
    return TreeNode("SYS", MODE_COST["SYS"], tuple(part for _, part in groups))


def _nvlink_groups_are_full(joined: Connections) -> bool:
    count = len(joined.nvlinks)
    for a in range(count):
        peers = {b for b in range(count) if joined.nvlinks[a][b]} | {a}
        if any({c for c in range(count) if joined.nvlinks[b][c]} | {b} != peers for b in peers):
            return False
    return any(any(row) for row in joined.nvlinks)


def _merge(
    groups: list[tuple[list[int], TreeNode | Card]],
    mode: str,
    near: Callable[[int, int], bool],
    devices: Sequence[Device],
) -> list[tuple[list[int], TreeNode | Card]]:
    """One level: groups with a near pair become one subtree. A lone card with a switch (or NUMA node) of its own
    hangs below it all the same, for that is where it sits."""
    merged: list[tuple[list[int], TreeNode | Card]] = []
    left = list(groups)
    while left:
        members, part = left.pop(0)
        parts = [part]
        grew = True
        while grew:
            grew = False
            for other in list(left):
                if any(near(a, b) for a in members for b in other[0]):
                    left.remove(other)
                    members = members + other[0]
                    parts.append(other[1])
                    grew = True
        known = {"PIX": devices[members[0]].pcie, "NODE": devices[members[0]].numa}.get(mode)
        alone = len(parts) == 1 and (isinstance(part, TreeNode) or known is None)
        merged.append((members, part if alone else TreeNode(mode, MODE_COST[mode], tuple(parts))))
    return merged
