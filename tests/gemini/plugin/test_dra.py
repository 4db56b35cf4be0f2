"""Claims prepared and unprepared, again and again, by plugins that die, beside a daemon that forgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gemini.kube.answer import Refused, Unanswered
from gemini.plugin import prepared, reply
from gemini.plugin.daemon import DaemonFault
from gemini.plugin.dra import LOOK_AGAIN, Claims, Named
from gemini.plugin.host import Host
from gemini.plugin.prepared import CannotPrepare
from tests.gemini.plugin.test_prepared import CARDS, PATHS, claim_object, result

NAMED = Named("ns", "c", "u-1")
TENANT = prepared.tenant_of("ns", "c", "u-1")


class Api:
    def __init__(self) -> None:
        self.claims: dict[str, dict[str, Any]] = {}
        self.silent = False

    async def claim(self, namespace: str, name: str) -> dict[str, Any]:
        if self.silent:
            raise Unanswered("no answer")
        if name not in self.claims:
            raise Refused(404, f"there is no claim {name}")
        return self.claims[name]


class Daemon:
    """`full`: what stands in the way of a registration, until it is removed."""

    def __init__(self) -> None:
        self.specs: dict[str, dict[str, Any]] = {}
        self.full = ""
        self.down = False

    async def tenants(self) -> dict[str, dict[str, Any]]:
        if self.down:
            raise DaemonFault("no answer from the daemon")
        return dict(self.specs)

    async def register(self, spec: Mapping[str, Any]) -> None:
        if self.down:
            raise DaemonFault("no answer from the daemon")
        if self.full in self.specs:
            raise DaemonFault("promised already", clash=True)
        if spec["name"] in self.specs:
            assert self.specs[spec["name"]]["gpus"] == spec["gpus"], "a tenant's cards do not change"
        self.specs[spec["name"]] = dict(spec)

    async def remove(self, name: str) -> None:
        self.specs.pop(name, None)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.folder, self.api, self.daemon = folder, Api(), Daemon()
        self.api.claims["c"] = claim_object()
        self.claims = self.restarted()

    def restarted(self) -> Claims:
        """A plugin that starts anew on the same node."""

        async def make_room() -> None:
            self.daemon.specs.pop(self.daemon.full, None)

        return Claims(
            "n1", reply.Options(PATHS), self.api, self.daemon, Host(self.folder / "cdi"), self.folder / "claims",
            lambda: CARDS, make_room,
        )  # fmt: skip

    def files(self) -> list[str]:
        return sorted(path.name for part in ("cdi", "claims") for path in (self.folder / part).glob("*.json"))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_claim_is_prepared_once_and_again_and_unprepared_once_and_again(rig: Rig) -> None:
    async def run() -> None:
        ready = await rig.claims.prepare(NAMED)
        files = rig.files()
        assert files == sorted([reply.cdi_file(TENANT), f"{TENANT}.json"])
        rig.claims = rig.restarted()
        assert await rig.claims.prepare(NAMED) == ready
        assert rig.files() == files
        assert rig.daemon.specs == {TENANT: ready.spec()}
        del rig.api.claims["c"]  # the claim may have gone before
        await rig.claims.unprepare(NAMED)
        rig.claims = rig.restarted()
        await rig.claims.unprepare(NAMED)
        assert (rig.files(), rig.daemon.specs) == ([], {})

    asyncio.run(run())


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (lambda rig: rig.api.claims.clear(), "there is no claim c"),
        (lambda rig: rig.api.claims.update(c=claim_object(uid="u-2")), "another claim of that name"),
        (lambda rig: rig.api.claims.update(c={"metadata": {"uid": "u-1"}}), "nothing of gemini.io is allocated"),
        (lambda rig: setattr(rig.api, "silent", True), "no answer"),
        (lambda rig: setattr(rig.daemon, "down", True), "no answer from the daemon"),
        (lambda rig: (rig.folder / "claims").write_text("a file in the way"), "see --install-dir"),
    ],
)
def test_what_stands_in_the_way_is_named_and_the_next_try_may_do_better(
    rig: Rig, fault: Callable[[Rig], object], why: str
) -> None:
    async def run() -> None:
        fault(rig)
        with pytest.raises(CannotPrepare, match=why):
            await rig.claims.prepare(NAMED)
        assert rig.files() == []
        if (rig.folder / "claims").is_file():
            (rig.folder / "claims").unlink()
        rig.api.claims["c"], rig.api.silent, rig.daemon.down = claim_object(), False, False
        await rig.claims.prepare(NAMED)

    asyncio.run(run())
    assert list(rig.daemon.specs) == [TENANT]
    assert rig.claims.counts["prepare", "refused"] == 1


def test_tenant_of_a_pod_that_is_gone_makes_room_for_a_claim_that_was_promised_it(rig: Rig) -> None:
    async def run() -> None:
        rig.daemon.specs["pod.ns.old-01234567"] = {}
        rig.daemon.full = "pod.ns.old-01234567"
        await rig.claims.prepare(NAMED)

    asyncio.run(run())
    assert list(rig.daemon.specs) == [TENANT]


def test_another_allocation_of_the_claim_on_another_card_is_another_tenant_of_that_name(rig: Rig) -> None:
    async def run() -> None:
        await rig.claims.prepare(NAMED)
        rig.api.claims["c"] = claim_object(result(1, 60))
        assert (await rig.claims.prepare(NAMED)).cards == ("GPU-1",)

    asyncio.run(run())
    assert (rig.daemon.specs[TENANT]["gpus"], rig.daemon.specs[TENANT]["request"]) == (["GPU-1"], 0.6)


def test_daemon_that_lost_its_state_is_told_again_and_what_nobody_prepared_is_removed(rig: Rig) -> None:
    async def run() -> None:
        ready = await rig.claims.prepare(NAMED)
        rig.daemon.specs = {"claim.ns.left-01234567": {}, "pod.ns.p-01234567": {}, "named": {}}
        await rig.restarted().tidy()
        assert rig.daemon.specs == {TENANT: ready.spec(), "pod.ns.p-01234567": {}, "named": {}}

    asyncio.run(run())


@pytest.mark.parametrize("left", [None, b"", b'{"cdiVersion": "0.5.0", "kind": "gem', b"\xff\xfe"])
def test_a_cdi_file_that_somebody_took_away_is_written_again(rig: Rig, left: bytes | None) -> None:
    """The kubelet prepares a claim once, and asks nobody when a container of it starts again."""

    async def run() -> None:
        await rig.claims.prepare(NAMED)
        file = rig.folder / "cdi" / reply.cdi_file(TENANT)
        before = file.read_text()
        file.unlink()
        if left is not None:
            file.write_bytes(left)
        rig.api.silent = rig.daemon.down = True  # neither is needed for it
        rig.claims = rig.restarted()
        with pytest.raises(DaemonFault):
            await rig.claims.tidy()
        assert file.read_text() == before

    asyncio.run(run())


def test_a_cdi_file_that_cannot_be_written_keeps_no_tenant_from_coming_back(rig: Rig) -> None:
    async def run() -> None:
        ready = await rig.claims.prepare(NAMED)
        file = rig.folder / "cdi" / reply.cdi_file(TENANT)
        file.unlink()
        file.mkdir()
        rig.daemon.specs = {}
        await rig.claims.tidy()
        assert rig.daemon.specs == {TENANT: ready.spec()}

    asyncio.run(run())


def test_claim_that_is_gone_is_cleared_away_though_nobody_unprepares_it_but_not_on_a_mere_silence(rig: Rig) -> None:
    async def run() -> None:
        await rig.claims.prepare(NAMED)
        rig.api.silent = True
        await rig.claims.tidy()
        assert TENANT in rig.daemon.specs
        rig.api.silent = False
        del rig.api.claims["c"]
        for _ in range(LOOK_AGAIN):
            await rig.claims.tidy()
        assert (rig.files(), rig.daemon.specs) == ([], {})

    asyncio.run(run())


def test_calls_for_one_claim_wait_for_one_another(rig: Rig) -> None:
    async def run() -> None:
        await asyncio.gather(*(rig.claims.prepare(NAMED) for _ in range(5)), *(rig.claims.tidy() for _ in range(3)))
        await asyncio.gather(rig.claims.unprepare(NAMED), rig.claims.unprepare(NAMED))

    asyncio.run(run())
    assert (rig.files(), rig.daemon.specs) == ([], {})


def test_whoever_comes_as_one_is_done_waits_behind_those_who_wait_already(rig: Rig) -> None:
    at_work: list[int] = []

    async def register(spec: Mapping[str, Any]) -> None:
        at_work.append(1)
        assert len(at_work) == 1, "two at once with one claim"
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        at_work.pop()

    async def run() -> None:
        rig.daemon.register = register  # type: ignore[method-assign]
        first, second = (asyncio.create_task(rig.claims.prepare(NAMED)) for _ in range(2))
        first.add_done_callback(lambda _: late.append(asyncio.create_task(rig.claims.prepare(NAMED))))
        late: list[asyncio.Task[prepared.Prepared]] = []
        await first
        while not late:
            await asyncio.sleep(0)
        await asyncio.gather(second, *late)

    asyncio.run(run())
