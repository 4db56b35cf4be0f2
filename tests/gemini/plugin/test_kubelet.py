"""The watch on the kubelet's folder ends when it is told to, whatever happens in the folder just then."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gemini.plugin.kubelet import Kubelet


@pytest.mark.parametrize("turns", range(6))
def test_the_watch_ends_when_cancelled_while_a_file_comes(tmp_path: Path, turns: int) -> None:
    async def play() -> None:
        looked = asyncio.Event()

        async def watch() -> None:
            async for _ in Kubelet(tmp_path, tmp_path / "nobody").changes():
                looked.set()

        task = asyncio.create_task(watch())
        await looked.wait()
        await asyncio.sleep(0)
        (tmp_path / "new.sock").touch()
        for _ in range(turns):  # the loop sees the file in one of these
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=60)
        if not done:
            task.cancel()
        assert done, "cancelled, and still watching"

    asyncio.run(play())
