"""Held time inside a sliding window: what a tenant's `achieved` share is made of. It reports; it decides nothing."""

from __future__ import annotations

from collections import deque


class Window:
    """Segments [start, end) of held time, of which those of the last `window_ns` are kept."""

    __slots__ = ("_segments", "_sum_ns", "total_ns", "window_ns")

    def __init__(self, window_ns: int) -> None:
        self.window_ns = window_ns
        self.total_ns = 0  # of all time
        self._segments: deque[tuple[int, int]] = deque()
        self._sum_ns = 0

    def add(self, start_ns: int, end_ns: int) -> None:
        """Count a segment; starts never go back. One that continues the last is joined to it."""
        if end_ns <= start_ns:
            return
        length = end_ns - start_ns
        self.total_ns += length
        self._sum_ns += length
        segments = self._segments
        if segments and segments[-1][1] == start_ns and end_ns - segments[-1][0] <= self.window_ns:
            segments[-1] = (segments[-1][0], end_ns)
        else:
            segments.append((start_ns, end_ns))
        self._forget(end_ns)

    def _forget(self, now_ns: int) -> None:
        edge = now_ns - self.window_ns
        segments = self._segments
        while segments and segments[0][1] <= edge:
            start, end = segments.popleft()
            self._sum_ns -= end - start

    def used_ns(self, now_ns: int) -> int:
        """Held time within (now - window, now]."""
        self._forget(now_ns)
        edge = now_ns - self.window_ns
        outside = self._segments[0] if self._segments else (edge, edge)
        return self._sum_ns - max(0, edge - outside[0])
