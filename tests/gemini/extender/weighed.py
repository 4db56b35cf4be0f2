"""How much of large objects a cluster keeps."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import orjson

from gemini.extender.state import Cluster

Object = dict[str, Any]
TEN = 10


def weighed(
    kind: str, given: Object, slim: Callable[[Object], Object] | None, tell: Callable[[Object, int], None] | None = None
) -> tuple[Cluster, int]:
    """A cluster that has seen ten of this object, and how many bytes are held for them. Each has a uid of its own, and
    what `tell` writes into it. `slim`: they come in a list, of each of which that is kept; None: by a watch."""
    cluster, text = Cluster([]), orjson.dumps(given)
    listed: list[Object] = []
    tracemalloc.start()
    try:
        for number in range(TEN):
            one = orjson.loads(text)
            one["metadata"] |= {"uid": f"u{number}", "resourceVersion": str(number + 1)}
            if tell is not None:
                tell(one, number)
            if slim is not None:
                listed.append(slim(one))
            else:
                cluster.apply(kind, "ADDED", one)
        del one
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if slim is not None:
        cluster.replace(kind, listed)
    return cluster, held
