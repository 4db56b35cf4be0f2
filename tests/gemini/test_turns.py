"""Who asks very often waits behind himself."""

from __future__ import annotations

import asyncio

from gemini.turns import Turns


def served(at_once: int, *asked: str, left: tuple[int, ...] = ()) -> list[str]:
    """The order in which they have their turns. `left`: the numbers of those who lose patience while they wait."""

    async def main() -> list[str]:
        turns, order, begun = Turns(at_once), [], asyncio.Event()

        async def ask(who: str) -> None:
            async with turns.of(who):
                order.append(who)
                await begun.wait()

        tasks = [asyncio.create_task(ask(who)) for who in asked]
        await asyncio.sleep(0)  # all of them ask
        for number in left:
            tasks[number].cancel()
        await asyncio.sleep(0)
        begun.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with turns.of("last"):  # none was lost
            pass
        assert not turns._waiting
        return order

    return asyncio.run(main())


def test_one_of_few_words_comes_between_those_of_many() -> None:
    assert served(1, *"mmmmmaab") == list("mmabmamm")


def test_so_many_have_their_turn_at_once() -> None:
    assert served(3, *"mmmmmmab") == list("mmmmabmm")


def test_who_loses_patience_takes_no_turn_with_him() -> None:
    assert served(1, *"mmmab", left=(1, 3)) == list("mmb")
    assert served(1, *"mmm", left=(0,)) == list("mmm")
    assert served(2, *"mmmm", left=(0, 1, 2)) == list("mmm")


def test_what_takes_long_waits_behind_what_does_not_and_is_not_forgotten() -> None:
    """A hundred addresses with reviews of 0.05 s each had the API server wait 6.5 s for a turn."""
    order: list[str] = []

    async def main() -> None:
        turns = Turns()

        async def ask(who: str, long: bool) -> None:
            async with turns.of(who, long):
                order.append("long" if long else "short")

        async with turns.of("first"):
            tasks = [asyncio.create_task(ask(f"s{i}", True)) for i in range(100)]
            await asyncio.sleep(0)
            tasks += [asyncio.create_task(ask("API server", False)) for _ in range(16)]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert len(order) == 116
    assert 1 <= order[:18].count("long") <= 3
    assert order[:18].count("short") >= 15
