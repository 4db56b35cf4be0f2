"""The book of shares: who holds how much of which device. Exact integers, one row of arrays for each node.

Pure and synchronous. Nodes of equal shape stand together in a Block, whose arrays the allocator scans in one go. What a
device holds for a pod says holding.py. The book does not depend on the order of events: holdings of a node or device
that is not (or no longer) known are kept, and count when it comes (back).

`place` refuses what would promise a device twice. Records of what already runs (`strict=False`) are taken as they are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from gemini.placement.holding import Holding
from gemini.placement.model import GPU, Device, Node, Placement
from gemini.placement.shape import CORE, MEMORY, SLOTS, Bools, Ints, Shape, Traits, traits_of
from gemini.placement.tree import Tree
from gemini.placement.written import Written, WrittenIndex

# So many names are looked up one by one: an index for all at once pays from here on, and from where the names that are
# known do not stay in the processor's cache.
FEW, SOME, CACHED = 32, 512, 2_000


class Overbooked(ValueError):
    """A placement that the devices have no room for, or that names devices which are not there."""


class Block:
    """The nodes of one shape, a row each. Rows are in no order of their own; `ordinal` says which node each is."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.ordinal: Ints = np.zeros(0, dtype=np.int64)
        self.used: Ints = np.zeros((3, 0, shape.count), dtype=np.int64)
        self.holders: Ints = np.zeros((0, shape.count), dtype=np.int64)
        self.usable: Bools = np.zeros((0, shape.count), dtype=bool)
        self.devices: list[tuple[Device, ...]] = []

    def append(self, ordinal: int, devices: tuple[Device, ...]) -> int:
        self.ordinal = np.append(self.ordinal, ordinal)
        self.used = np.concatenate([self.used, np.zeros((3, 1, self.shape.count), dtype=np.int64)], axis=1)
        self.holders = np.concatenate([self.holders, np.zeros((1, self.shape.count), dtype=np.int64)])
        usable = np.array([[d.health and not d.cordoned for d in devices]], dtype=bool)
        self.usable = np.concatenate([self.usable, usable])
        self.devices.append(devices)
        return len(self.devices) - 1

    def extend(self, ordinals: list[int], devices: list[tuple[Device, ...]]) -> None:
        """The same for many nodes at once; appending a node copies the arrays."""
        count = len(ordinals)
        self.ordinal = np.concatenate([self.ordinal, np.array(ordinals, dtype=np.int64)])
        self.used = np.concatenate([self.used, np.zeros((3, count, self.shape.count), dtype=np.int64)], axis=1)
        self.holders = np.concatenate([self.holders, np.zeros((count, self.shape.count), dtype=np.int64)])
        usable = np.array([[d.health and not d.cordoned for d in row] for row in devices], dtype=bool)
        self.usable = np.concatenate([self.usable, usable.reshape(count, self.shape.count)])
        self.devices += devices

    def copy(self) -> Block:
        twin = Block(self.shape)
        twin.ordinal, twin.used, twin.holders = self.ordinal.copy(), self.used.copy(), self.holders.copy()
        twin.usable, twin.devices = self.usable.copy(), list(self.devices)
        return twin

    def remove(self, row: int) -> int:
        """Takes a row out; the last row takes its place. Returns the ordinal of the row that moved, or -1."""
        last = len(self.devices) - 1
        moved = -1
        if row != last:
            self.ordinal[row] = self.ordinal[last]
            self.used[:, row] = self.used[:, last]
            self.holders[row] = self.holders[last]
            self.usable[row] = self.usable[last]
            self.devices[row] = self.devices[last]
            moved = int(self.ordinal[row])
        self.ordinal, self.used = self.ordinal[:last].copy(), self.used[:, :last].copy()
        self.holders, self.usable = self.holders[:last].copy(), self.usable[:last].copy()
        self.devices.pop()
        return moved


class _Ordinals(dict[str, int]):
    """By name; that of a name that is not known is -1."""

    def __missing__(self, name: str) -> int:
        return -1


@dataclass
class _Site:
    """A node as the book knows it: where its rows are, by type of device."""

    node: Node
    ordinal: int
    rows: dict[str, tuple[Block, int]] = field(default_factory=dict)


class Book:
    """All nodes, and all that pods hold of their devices."""

    def __init__(self, nodes: Iterable[Node] = (), tree: Tree | None = None) -> None:
        self.tree = tree
        self.blocks: dict[str, dict[Traits, Block]] = defaultdict(dict)
        self.holdings: dict[str, Holding] = {}
        self.names: list[str | None] = []  # by ordinal; None where the node is gone
        self.uuids: dict[str, list[tuple[str, str, int]]] = defaultdict(list)  # uuid -> (node, type, minor)
        self.present: Bools = np.zeros(0, dtype=bool)  # by ordinal
        self.version = 0  # grows with every change
        self.layout = 0  # the version as of which rows and ordinals are what they are
        self._changed: dict[str, int] = {}  # node -> the version of its last change, the latest at the end
        self._sites: dict[str, _Site] = {}
        self._ordinals = _Ordinals()
        self._index: WrittenIndex | None = None  # name -> ordinal; None: to be made when somebody asks
        self._on_node: dict[str, set[str]] = defaultdict(set)
        self._put_all(list(nodes))

    def copy(self) -> Book:
        """Another book that says the same now. Both go on by themselves."""
        twin, blocks = Book(tree=self.tree), {}
        for kind, here in self.blocks.items():
            for traits, block in here.items():
                twin.blocks[kind][traits] = blocks[id(block)] = block.copy()
        for name, site in self._sites.items():
            rows = {kind: (blocks[id(block)], row) for kind, (block, row) in site.rows.items()}
            twin._sites[name] = _Site(site.node, site.ordinal, rows)
        twin.holdings, twin.names, twin.present = dict(self.holdings), list(self.names), self.present.copy()
        twin.uuids.update((uuid, list(where)) for uuid, where in self.uuids.items())
        twin.version, twin.layout, twin._changed = self.version, self.layout, dict(self._changed)
        twin._ordinals.update(self._ordinals)
        twin._on_node.update((node, set(pods)) for node, pods in self._on_node.items())
        return twin

    # ---- nodes

    def node(self, name: str) -> Node | None:
        site = self._sites.get(name)
        return site.node if site else None

    def nodes(self) -> Iterator[Node]:
        for name in self.names:
            if name is not None:
                yield self._sites[name].node

    def ordinal(self, name: str) -> int:
        """-1 where there is no such node."""
        return self._ordinals[name]

    def ordinals(self, names: Collection[str]) -> Ints:
        """The same of each name; for many names at once."""
        if not isinstance(names, Written) and len(names) < (SOME if len(self._ordinals) <= CACHED else FEW):
            return self._one_by_one(names)
        if self._index is None and (known := Written.of(self._sites.keys())) is not None:
            self._index = WrittenIndex(known, [site.ordinal for site in self._sites.values()])
        asked = names if isinstance(names, Written) else Written.of(names)
        return self._one_by_one(names) if self._index is None or asked is None else self._index.find(asked)

    def _one_by_one(self, names: Collection[str]) -> Ints:
        return np.fromiter(map(self._ordinals.__getitem__, names), np.int64, len(names))

    def row(self, name: str, kind: str) -> tuple[Block, int] | None:
        site = self._sites.get(name)
        return site.rows.get(kind) if site else None

    def changed_since(self, version: int) -> Iterator[str]:
        """The nodes where pods hold something else than then; of use only while the layout is older."""
        for node in reversed(self._changed):
            if self._changed[node] <= version:
                return
            yield node

    def turn(self, name: str) -> int:
        """Another number whenever pods hold something else on the node."""
        return self._changed.get(name, 0)

    def put_node(self, node: Node) -> None:
        """Adds a node, or takes its new state; what pods hold there stays."""
        old = self._sites.get(node.name)
        if old is not None and old.node == node:
            return
        self.version += 1
        self.layout = self.version
        if old is None:
            ordinal = len(self.names)
            self.names.append(node.name)
            self.present = np.append(self.present, True)
        else:
            ordinal = old.ordinal
            self._clear(old)
        site = _Site(node, ordinal)
        if old is None:
            self._index = None
        self._sites[node.name] = site
        self._ordinals[node.name] = ordinal
        for kind in sorted({d.type for d in node.devices}):
            traits, devices = traits_of(node, kind, self.tree)
            block = self._block(kind, traits)
            site.rows[kind] = (block, block.append(ordinal, devices))
        self._settle(site)

    def drop_node(self, name: str) -> None:
        """Forgets a node. Its pods' holdings stay until they are released."""
        site = self._sites.pop(name, None)
        if site is not None:
            self.version += 1
            self.layout = self.version
            self._clear(site)
            self._index = None
            self._changed.pop(name, None)
            del self._ordinals[name]
            self.names[site.ordinal] = None
            self.present[site.ordinal] = False

    def _put_all(self, nodes: list[Node]) -> None:
        rows: dict[int, tuple[Block, list[int], list[tuple[Device, ...]], list[tuple[_Site, str]]]] = {}
        for node in nodes:
            if node.name in self._sites:
                raise ValueError(f"node {node.name} is there twice")
            site = _Site(node, len(self.names))
            self.names.append(node.name)
            self._sites[node.name] = site
            self._ordinals[node.name] = site.ordinal
            for kind in sorted({d.type for d in node.devices}):
                traits, devices = traits_of(node, kind, self.tree)
                block = self._block(kind, traits)
                _, ordinals, all_devices, sites = rows.setdefault(id(block), (block, [], [], []))
                ordinals.append(site.ordinal)
                all_devices.append(devices)
                sites.append((site, kind))
        self.present = np.ones(len(self.names), dtype=bool)
        for block, ordinals, all_devices, sites in rows.values():
            block.extend(ordinals, all_devices)
            for i, (site, kind) in enumerate(sites):
                site.rows[kind] = (block, i)
        for site in self._sites.values():
            self._settle(site)

    def _block(self, kind: str, traits: Traits) -> Block:
        blocks = self.blocks[kind]
        if traits not in blocks:
            blocks[traits] = Block(Shape(traits))
        return blocks[traits]

    def _settle(self, site: _Site) -> None:
        """Indexes the uuids of a fresh node, and enters what pods hold on it."""
        for device in site.node.devices:
            if device.uuid:
                self.uuids[device.uuid].append((site.node.name, device.type, device.minor))
        for pod in self._on_node.get(site.node.name, ()):
            self._enter(self.holdings[pod], 1)

    def _clear(self, site: _Site) -> None:
        for device in site.node.devices:
            if device.uuid:
                self.uuids[device.uuid].remove((site.node.name, device.type, device.minor))
                if not self.uuids[device.uuid]:
                    del self.uuids[device.uuid]
        for kind, (block, row) in site.rows.items():
            moved = block.remove(row)
            if moved >= 0:
                name = self.names[moved]
                assert name is not None
                self._sites[name].rows[kind] = (block, row)
            if not block.devices:
                del self.blocks[kind][block.shape.traits]

    # ---- pods

    def place(self, placement: Placement, strict: bool = True, initialized: bool = False) -> None:
        """Enters a pod. Strict: raises Overbooked, and enters nothing, where a device would be promised twice."""
        if placement.pod in self.holdings:
            raise Overbooked(f"pod {placement.pod} is placed already, on {self.holdings[placement.pod].placement.node}")
        holding = Holding(placement, initialized)
        if strict:
            self._check(holding)
        self.holdings[placement.pod] = holding
        self._on_node[placement.node].add(placement.pod)
        self._enter(holding, 1)

    def release(self, pod: str) -> bool:
        """Gives back all that a pod holds; whether it held anything."""
        holding = self.holdings.pop(pod, None)
        if holding is None:
            return False
        self._enter(holding, -1)
        on_node = self._on_node[holding.placement.node]
        on_node.discard(pod)
        if not on_node:
            del self._on_node[holding.placement.node]
        return True

    def initialized(self, pod: str) -> bool:
        """Gives back what only the pod's init containers needed; whether anything changed."""
        holding = self.holdings.get(pod)
        if holding is None or holding.initialized:
            return False
        self._enter(holding, -1)
        self.holdings[pod] = Holding(holding.placement, True)
        self._enter(self.holdings[pod], 1)
        return True

    def bears(self, placement: Placement) -> bool:
        """Whether the devices that a placed pod holds are in service, and no more of them is promised than there is."""
        site = self._sites.get(placement.node)
        cells = [self._cell(site, grant.type, grant.minor) if site is not None else None for grant in placement.grants]
        return all(at is not None and _borne(*at) for at in cells)

    def holders(self, node: str, kind: str, minor: int) -> list[str]:
        """The pods that hold something of a device."""
        here = self._on_node.get(node, ())
        return sorted(pod for pod in here if (kind, minor) in self.holdings[pod].devices())

    def pods_on(self, node: str) -> list[str]:
        """The pods that hold anything on a node."""
        return sorted(self._on_node.get(node, ()))

    def snapshot(self) -> dict[tuple[str, str, int], tuple[int, int, int, int]]:
        """(node, type, minor) -> (core, memory, slots, pods): for comparing two books."""
        return {(name, *key): used for name in self._sites for key, used in self.used_on(name).items()}

    def used_on(self, name: str) -> dict[tuple[str, int], tuple[int, int, int, int]]:
        """The same of one node, by (type, minor)."""
        result = {}
        for kind, (block, row) in self._sites[name].rows.items():
            for column, minor in enumerate(block.shape.minors):
                core, memory, slots = (int(block.used[k, row, column]) for k in (CORE, MEMORY, SLOTS))
                result[kind, minor] = (core, memory, slots, int(block.holders[row, column]))
        return result

    def check(self) -> None:
        """Asserts that the arrays say what the holdings add up to."""
        fresh: Counter[tuple[str, str, int, int]] = Counter()
        for holding in self.holdings.values():
            for (kind, minor), held in holding.devices().items():
                for k, amount in enumerate((*held.total(), 1)):
                    fresh[holding.placement.node, kind, minor, k] += amount
        for (node, kind, minor), amounts in self.snapshot().items():
            assert amounts == tuple(fresh[node, kind, minor, k] for k in range(4)), (node, kind, minor, amounts)

    def _check(self, holding: Holding) -> None:
        node = holding.placement.node
        site = self._sites.get(node)
        if site is None:
            raise Overbooked(f"there is no node {node}")
        for (kind, minor), held in holding.amounts().items():
            at = self._cell(site, kind, minor)
            if at is None:
                raise Overbooked(f"node {node} has no {kind} {minor}")
            block, row, column = at
            left = (block.shape.total[:, column] - block.used[:, row, column]).tolist()
            for k, (amount, free) in enumerate(zip(held, left, strict=True)):
                if amount > free:
                    what = ("core", "bytes of memory", "slots")[k]
                    raise Overbooked(f"{kind} {minor} of {node}: {amount} {what} wanted, {max(free, 0)} free")

    def _cell(self, site: _Site, kind: str, minor: int) -> tuple[Block, int, int] | None:
        if kind not in site.rows:
            return None
        block, row = site.rows[kind]
        return (block, row, block.shape.minors.index(minor)) if minor in block.shape.minors else None

    def _enter(self, holding: Holding, sign: int) -> None:
        site = self._sites.get(holding.placement.node)
        if site is None:
            return
        self.version += 1
        self._changed.pop(holding.placement.node, None)
        self._changed[holding.placement.node] = self.version
        for (kind, minor), held in holding.amounts().items():
            at = self._cell(site, kind, minor)
            if at is None:
                continue
            block, row, column = at
            for k, amount in enumerate(held):
                block.used[k, row, column] += sign * amount
            block.holders[row, column] += sign

    def open_siblings(self, block: Block, now: Ints) -> Ints:
        """[row, column]: how many other cards below the card's parent in the tree are not wholly promised, where
        `now` [3, row, column] is what is used."""
        shape = block.shape
        is_open = now[CORE] < shape.total[CORE]
        result: Ints = (is_open.astype(np.float64) @ shape.siblings.T.astype(np.float64)).astype(np.int64)
        if shape.has_foreign:
            for column, cards in enumerate(shape.traits.local.foreign):
                for node, minor in cards:
                    site = self._sites.get(node)
                    at = self._cell(site, GPU, minor) if site else None
                    if at and at[0].used[CORE, at[1], at[2]] < at[0].shape.total[CORE, at[2]]:
                        result[:, column] += 1
        return result


def _borne(block: Block, row: int, column: int) -> bool:
    """Whether a device is in service, and no more of it is promised than it has."""
    return bool(block.usable[row, column] and (block.used[:, row, column] <= block.shape.total[:, column]).all())
