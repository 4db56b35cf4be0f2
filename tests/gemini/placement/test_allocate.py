"""The allocator against an exhaustive oracle, over random scenarios run through the very JSON of `gemini place`."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemini.cli.scenario import Scenario
from gemini.placement.policies import POLICIES
from tests.gemini.placement.oracle import Wish, World

MEMORIES = [1000, 1600, 997, 16276 * 2**20]
ORDERLY = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@st.composite
def nodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    result = []
    for n in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 5))
        memory = draw(st.sampled_from(MEMORIES))
        mixed = draw(st.booleans())
        gpus = [
            {
                "type": "gpu",
                "minor": m,
                "uuid": f"G{n}{m}",
                "model": draw(st.sampled_from("AB")) if mixed else "A",
                "memory": draw(st.sampled_from(MEMORIES)) if mixed else memory,
                "core": 100,
                "health": draw(st.integers(0, 9)) > 0,
                "cordoned": draw(st.integers(0, 9)) == 0,
                "numa": draw(st.sampled_from([0, 0, 1, -1])),
                "pcie": draw(st.sampled_from(["0", "0", "1", -1])),
                "slots": draw(st.sampled_from([None, None, 1, 2])),
            }
            for m in range(count)
        ]
        node: dict[str, Any] = {"name": f"n{n}", "devices": gpus}
        if draw(st.booleans()):
            node["devices"] = gpus + [
                {"type": "rdma", "minor": m, "uuid": f"R{n}{m}", "model": "", "memory": 0, "core": 100, "health": True,
                 "cordoned": False, "pcie": draw(st.sampled_from(["0", "1"]))}
                for m in range(draw(st.integers(1, 2)))
            ]  # fmt: skip
        pairs = [(a, b) for a in range(count) for b in range(a)]
        if pairs and draw(st.booleans()):
            chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=4))
            kind = st.sampled_from(["NVLINK", "PIX", "PXB", "PHB", "NODE", "SYS"])
            links = [[str(a), str(b), draw(kind), draw(st.integers(1, 3))] for a, b in chosen]
            node["links"] = [link if link[2] == "NVLINK" else link[:3] for link in links]
        if draw(st.integers(0, 3)) == 0:
            member = st.lists(st.integers(0, count - 1), unique=True, min_size=1, max_size=3)
            policy = draw(st.sampled_from(["honor", "prefer"]))
            node["partitions"] = {"policy": policy, "sets": draw(st.lists(member, max_size=4))}
        result.append(node)
    return result


@st.composite
def trees(draw: st.DrawFn, cards: list[str]) -> dict[str, Any]:
    children: list[Any] = list(cards)
    for _ in range(draw(st.integers(0, 4))):
        if len(children) < 2:
            break
        take = draw(st.integers(1, min(3, len(children))))
        start = draw(st.integers(0, len(children) - take))
        inner = {"mode": "PIX", "cost": draw(st.integers(1, 4)), "children": children[start : start + take]}
        children[start : start + take] = [inner]
    return {"mode": "SOC", "cost": draw(st.integers(1, 6)), "children": children}


@st.composite
def wishes(draw: st.DrawFn) -> Wish:
    core = draw(st.sampled_from([0, 10, 25, 30, 40, 50, 60, 100, 100]))
    kind = draw(st.sampled_from(["follows", "follows", "bytes", "ratio"]))
    wish = Wish(core, count=draw(st.sampled_from([1, 1, 1, 2, 2, 3])))
    if kind == "bytes":
        wish.memory = draw(st.sampled_from([1, 100, 400, 800, 8138 * 2**20]))
    else:
        wish.ratio = core if kind == "follows" else draw(st.sampled_from([10, 33, 50, 100]))
    if draw(st.integers(0, 5)) == 0:
        wish.models = draw(st.sampled_from([("A",), ("B",), ("A", "B")]))
    if draw(st.integers(0, 7)) == 0:
        wish.uuids = ("G00", "G01", "G10")
    if draw(st.integers(0, 7)) == 0:
        wish.excluded = ("G02", "G11")
    if draw(st.integers(0, 4)) == 0:
        wish.scope = draw(st.sampled_from(["pcie", "numa", "nvlink", "node"]))
    if draw(st.integers(0, 5)) == 0:
        wish.rdma = draw(st.sampled_from([10, 50, 100]))
    if draw(st.integers(0, 5)) == 0:
        wish.policies = tuple(draw(st.lists(st.sampled_from(sorted(POLICIES)), min_size=1, max_size=2, unique=True)))
    return wish


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[dict[str, Any], list[tuple[str, Wish | None]]]:
    """A scenario without asks, and the asks as (pod, wish); None: the pod is released."""
    made = draw(nodes())
    cards = [f"{n['name']}/{d['minor']}" for n in made for d in n["devices"] if d["type"] == "gpu"]
    policies = draw(st.lists(st.sampled_from(sorted(POLICIES)), max_size=3))
    scenario = {"nodes": made, "tree": draw(trees(draw(st.permutations(cards)))), "policies": policies}
    asks: list[tuple[str, Wish | None]] = []
    for i in range(draw(st.integers(1, 8))):
        if i and draw(st.integers(0, 3)) == 0:
            asks.append((f"p{draw(st.integers(0, i - 1))}", None))
        else:
            asks.append((f"p{i}", draw(wishes())))
    given_names = {pod for pod, wish in asks if wish is not None}
    return scenario, [(pod, wish) for pod, wish in asks if wish is not None or pod in given_names]


def spoken(wish: Wish) -> dict[str, Any]:
    """The wish as annotations and resources."""
    says = {"gpu-request": f"{wish.core}%", "gpu-count": str(wish.count)}
    if wish.memory is not None:
        says["gpu-memory"] = str(wish.memory)
    elif wish.ratio is not None and wish.ratio != wish.core:
        says["gpu-memory-ratio"] = str(wish.ratio)
    for key, values in (("gpu-model", wish.models), ("gpu-uuid", wish.uuids), ("gpu-uuid-exclude", wish.excluded)):
        if values:
            says[key] = ",".join(values)
    if wish.scope:
        says["gpu-topology"] = wish.scope
    if wish.rdma is not None:
        says["joint"] = "rdma"
    if wish.policies is not None:
        says["gpu-policy"] = ",".join(wish.policies)
    resources = {"gemini.io/rdma": wish.rdma} if wish.rdma is not None else {}
    return {"annotations": {f"gemini.io/{k}": v for k, v in says.items()}, "resources": resources}


@ORDERLY
@given(scenarios())
def test_every_choice_is_what_an_exhaustive_search_finds(
    drawn: tuple[dict[str, Any], list[tuple[str, Wish | None]]],
) -> None:
    scenario, asks = drawn
    events = [{"release": pod} if wish is None else {"pod": pod, **spoken(wish)} for pod, wish in asks]
    run = Scenario({**scenario, "asks": events})
    answers = iter(run.run()["placements"])
    world = World(scenario)
    for pod, wish in asks:
        if wish is None:
            world.held.pop(pod, None)
            continue
        answer = next(answers)
        assert answer["pod"] == pod
        expected = world.choose(wish)
        if expected is None:
            check_refusal(world, wish, answer["refused"])
            continue
        assert "node" in answer, (answer, expected)
        world.place(pod, wish, expected)
        want = sorted((kind, minor, core, memory) for _, kind, minor, core, memory in world.held[pod])
        got = [(d["type"], d["minor"], d["core"], d["memory"]) for d in answer["devices"]]
        assert (answer["node"], sorted(got)) == (scenario["nodes"][expected[0]]["name"], want)
    run.book.check()
    for amounts in run.book.snapshot().items():
        (node, kind, minor), (core, memory, tenants, _) = amounts
        assert (core, memory, tenants) == world.used(node, kind, minor)
        assert core <= 100


def check_refusal(world: World, wish: Wish, refused: dict[str, Any]) -> None:
    """Each node has a reason, and exactly the cards that cannot take the ask have a text."""
    policies = wish.policies if wish.policies is not None else tuple(world.scenario["policies"])
    assert list(refused) == [node["name"] for node in world.nodes()]
    for node in world.nodes():
        said = refused[node["name"]]
        assert said["reason"]
        cards = [d for d in node["devices"] if d["type"] == "gpu"]
        unable = {str(c["minor"]) for c in cards if not world.fits(node["name"], c, wish, policies)}
        if said["reason"] == "InsufficientDevices":
            assert len(cards) < wish.count
        elif said["reason"] == "JointUnavailable":
            assert unable <= set(said["devices"])
        else:
            assert unable == set(said["devices"]), said
