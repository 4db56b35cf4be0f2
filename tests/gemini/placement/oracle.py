"""The allocator's oracle: contracts of `gemini place`, read literally and tried exhaustively, with fractions.

Written from docs/placement.md alone, sharing no code with gemini/placement: nodes and trees are the scenario's JSON,
an ask is a Wish of plain numbers. Slow and plain on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, permutations
from typing import Any

KIND_SCORE = {"PIX": 50, "PXB": 40, "PHB": 30, "NODE": 20, "SYS": 10}


@dataclass
class Wish:
    """One share of `count` cards: percent of core, and bytes or percent of memory (None: none)."""

    core: int
    memory: int | None = None
    ratio: int | None = None
    count: int = 1
    models: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    scope: str | None = None
    rdma: int | None = None
    policies: tuple[str, ...] | None = None


@dataclass
class World:
    scenario: dict[str, Any]
    held: dict[str, list[tuple[str, str, int, int, int]]] = field(
        default_factory=dict
    )  # pod -> (node, type, minor, ..)

    def nodes(self) -> list[dict[str, Any]]:
        return self.scenario["nodes"]

    def used(self, node: str, kind: str, minor: int) -> tuple[int, int, int]:
        """Core, memory, tenants."""
        parts = [h for holds in self.held.values() for h in holds if h[:3] == (node, kind, minor)]
        return sum(h[3] for h in parts), sum(h[4] for h in parts), len(parts)

    def idle(self, node: str, card: dict[str, Any]) -> bool:
        return card["health"] and not card["cordoned"] and self.used(node, "gpu", card["minor"])[2] == 0

    # ---- which cards, which sets

    def fits(self, node: str, card: dict[str, Any], wish: Wish, policies: tuple[str, ...]) -> bool:
        core, memory, tenants = self.used(node, card["type"], card["minor"])
        if not card["health"] or card["cordoned"]:
            return False
        if wish.models and card["model"] not in wish.models:
            return False
        if wish.uuids and card["uuid"] not in wish.uuids:
            return False
        if card["uuid"] in wish.excluded:
            return False
        if "unused" in policies and tenants:
            return False
        if core >= 100 or core + wish.core > 100:
            return False
        if memory + take(card, wish) > card["memory"]:
            return False
        return not (card.get("slots") is not None and tenants + 1 > card["slots"])

    def choices(self, wish: Wish, policies: tuple[str, ...]) -> list[tuple[int, tuple[int, ...]]]:
        """(index of the node, ascending minors) of everything that is allowed."""
        result = []
        for n, node in enumerate(self.nodes()):
            cards = [d for d in node["devices"] if d["type"] == "gpu"]
            able = [c for c in cards if self.fits(node["name"], c, wish, policies)]
            sets = [s for s in combinations(able, wish.count) if self.allowed(node, s, wish)]
            parts = node.get("partitions")
            if parts and wish.core == 100:
                in_parts = [s for s in sets if sorted(c["minor"] for c in s) in [sorted(p) for p in parts["sets"]]]
                sets = in_parts if parts["policy"] == "honor" or in_parts else sets
            result += [(n, tuple(sorted(c["minor"] for c in s))) for s in sets]
        return result

    def allowed(self, node: dict[str, Any], cards: tuple[dict[str, Any], ...], wish: Wish) -> bool:
        if len({c["model"] for c in cards}) > 1:
            return False
        switches = {known(c, "pcie") for c in cards}
        if wish.scope == "pcie" and (len(switches) > 1 or None in switches):
            return False
        numas = {known(c, "numa") for c in cards}
        if wish.scope == "numa" and (len(numas) > 1 or None in numas):
            return False
        if wish.scope == "nvlink":
            reached, grew = {cards[0]["minor"]}, True
            while grew:
                grew = False
                for c in cards:
                    if c["minor"] not in reached and any(nvlinks(node, c["minor"], r) for r in reached):
                        reached.add(c["minor"])
                        grew = True
            if len(reached) < len(cards):
                return False
        if wish.rdma is not None:
            if None in switches:
                return False
            return all(self.rdma_on(node, switch, wish.rdma) is not None for switch in switches)
        return True

    def rdma_on(self, node: dict[str, Any], switch: str | None, core: int) -> int | None:
        able = [
            d["minor"]
            for d in node["devices"]
            if d["type"] == "rdma" and known(d, "pcie") == switch and self.fits(node["name"], d, Wish(core), ())
        ]
        return min(able, default=None)

    # ---- policies: less is better

    def value(self, policy: str, choice: tuple[int, tuple[int, ...]], wish: Wish, free: Any) -> Any:
        node = self.nodes()[choice[0]]
        gpus = {d["minor"]: d for d in node["devices"] if d["type"] == "gpu"}
        cards = [gpus[m] for m in choice[1]]
        name = node["name"]
        if policy in ("binpack", "spread"):
            total = sum(self.score(name, c, wish) for c in cards)
            return -total if policy == "binpack" else total
        if policy in ("node-binpack", "node-spread"):
            mean = sum(self.score(name, c, None) for c in gpus.values()) / len(gpus)
            return -mean if policy == "node-binpack" else mean
        if policy == "minor":
            return list(choice[1])
        if policy in ("pcie", "numa"):
            places = {known(c, policy) or f"own of {c['minor']}" for c in cards}
            left = [
                c for m, c in gpus.items() if m not in choice[1] and known(c, policy) in places and self.idle(name, c)
            ]
            return len(places), len(left)
        if policy == "best-link":
            if len(cards) > 1:
                return -sum(pair(node, a, b) for a, b in combinations(choice[1], 2))
            return sum(pair(node, choice[1][0], m) for m, c in gpus.items() if m != choice[1][0] and self.idle(name, c))
        if policy == "best-partition":
            if wish.count == 1:
                return 0
            best = free(choice[0])
            return -best[choice[1]] if choice[1] in best else 1
        if policy == "fragment":
            if wish.count > 1 or wish.core == 100:
                return 0
            core, _, tenants = self.used(name, "gpu", choice[1][0])
            return (0, 100 - core) if tenants else (1, self.cost(name, choice[1]))
        if policy == "singular":
            if wish.count > 1 or wish.core < 100:
                return 0
            siblings = [c for c in self.below(self.parent(name, choice[1][0])) if c != f"{name}/{choice[1][0]}"]
            full = all(self.used(c.split("/")[0], "gpu", int(c.split("/")[1]))[0] == 100 for c in siblings)
            return (not full, self.cost(name, choice[1]))
        if policy == "link":
            return self.cost(name, choice[1]) if wish.count > 1 and wish.core == 100 else 0
        assert policy == "unused", policy
        return 0

    def score(self, node: str, card: dict[str, Any], wish: Wish | None) -> Fraction:
        core, memory, tenants = self.used(node, "gpu", card["minor"])
        if wish is not None:
            core, memory, tenants = core + wish.core, memory + take(card, wish), tenants + 1
        total = Fraction(core, 100) + Fraction(memory, card["memory"])
        return total + Fraction(tenants, card["slots"]) if card.get("slots") is not None else total

    # ---- the tree

    def below(self, top: Any) -> list[str]:
        return [top] if isinstance(top, str) else [c for child in top["children"] for c in self.below(child)]

    def parent(self, node: str, minor: int) -> Any:
        return self.lowest([f"{node}/{minor}"])

    def lowest(self, cards: list[str]) -> Any:
        top = self.scenario["tree"]
        while True:
            inner = [c for c in top["children"] if not isinstance(c, str) and set(cards) <= set(self.below(c))]
            if not inner:
                return top
            top = inner[0]

    def cost(self, node: str, minors: tuple[int, ...]) -> int:
        cost: int = len(minors) * self.lowest([f"{node}/{m}" for m in minors])["cost"]
        return cost

    # ---- choosing

    def best_of_splits(self, n: int, able: set[int], wish: Wish) -> dict[tuple[int, ...], int]:
        """The best sets of the best splits of the free cards of a node, with their scores."""
        node = self.nodes()[n]
        models = {d["minor"]: d["model"] for d in node["devices"] if d["type"] == "gpu"}
        found: dict[frozenset[tuple[int, ...]], tuple[int, int, int]] = {}
        for order in permutations(sorted(able)):
            sets = [tuple(sorted(order[i : i + wish.count])) for i in range(0, len(order), wish.count)]
            sets = [s for s in sets if len(s) == wish.count and len({models[m] for m in s}) == 1]
            scores = [sum(pair(node, a, b) for a, b in combinations(s, 2)) for s in sets]
            if sets:
                found[frozenset(sets)] = (len(sets), sum(scores), min(scores))
        most = max((f[0] for f in found.values()), default=0)
        top = max((f[1:] for f in found.values() if f[0] == most), default=None)
        splits = [s for s, f in found.items() if f[0] == most and f[1:] == top]
        scored = {s: sum(pair(node, a, b) for a, b in combinations(s, 2)) for split in splits for s in split}
        best = max(scored.values(), default=0)
        return {s: score for s, score in scored.items() if score == best}

    def choose(self, wish: Wish) -> tuple[int, tuple[int, ...]] | None:
        policies = wish.policies if wish.policies is not None else tuple(self.scenario.get("policies", ()))
        alive = self.choices(wish, policies)
        if not alive:
            return None
        splits: dict[int, dict[tuple[int, ...], int]] = {}

        def free(n: int) -> dict[tuple[int, ...], int]:
            if n not in splits:
                node = self.nodes()[n]
                cards = [d for d in node["devices"] if d["type"] == "gpu"]
                able = {c["minor"] for c in cards if self.fits(node["name"], c, wish, policies)}
                splits[n] = self.best_of_splits(n, able, wish)
            return splits[n]

        for policy in policies:
            values = [self.value(policy, choice, wish, free) for choice in alive]
            alive = [choice for choice, value in zip(alive, values, strict=True) if value == min(values)]
        return min(alive)

    def place(self, pod: str, wish: Wish, choice: tuple[int, tuple[int, ...]]) -> None:
        node = self.nodes()[choice[0]]
        gpus = {d["minor"]: d for d in node["devices"] if d["type"] == "gpu"}
        holds = [(node["name"], "gpu", m, wish.core, take(gpus[m], wish)) for m in choice[1]]
        if wish.rdma is not None:
            for switch in {known(gpus[m], "pcie") for m in choice[1]}:
                minor = self.rdma_on(node, switch, wish.rdma)
                assert minor is not None
                holds.append((node["name"], "rdma", minor, wish.rdma, 0))
        self.held[pod] = holds


def take(card: dict[str, Any], wish: Wish) -> int:
    if wish.memory is not None:
        return wish.memory
    return card.get("memory", 0) * wish.ratio // 100 if wish.ratio is not None else 0


def known(device: dict[str, Any], key: str) -> str | None:
    value = device.get(key)
    return None if value in (None, -1, "-1") else str(value)


def nvlinks(node: dict[str, Any], a: int, b: int) -> int:
    pairs = [x[3] for x in node.get("links", []) if x[2] == "NVLINK" and {x[0], x[1]} == {str(a), str(b)}]
    return max(pairs, default=0)


def pair(node: dict[str, Any], a: int, b: int) -> int:
    said = [x[2] for x in node.get("links", []) if x[2] != "NVLINK" and {x[0], x[1]} == {str(a), str(b)}]
    gpus = {d["minor"]: d for d in node["devices"] if d["type"] == "gpu"}
    if said:
        kind = said[0]
    elif known(gpus[a], "pcie") is not None and known(gpus[a], "pcie") == known(gpus[b], "pcie"):
        kind = "PIX"
    elif known(gpus[a], "numa") is not None and known(gpus[a], "numa") == known(gpus[b], "numa"):
        kind = "NODE"
    else:
        kind = "SYS"
    return 100 * nvlinks(node, a, b) + KIND_SCORE[kind]
