"""Thousands of node names as they came, one JSON text, and their numbers, without a string for each.

Pure numpy. To make a string of each of 5,000 names and look it up (index.py) costs half a millisecond. So many names
stay as they are written: each eight bytes of a name are one integer, and a table of integers is probed for all names in
step. Names are equal where all of their bytes are. The factor of the hash is made of Python's own keyed one, so who
chooses names cannot aim at one slot of the table. For a few hundred names index.py is quicker, which has fewer steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from gemini.placement.shape import Bools, Ints

SPARSE = 8  # slots for each name: most are found at the first look
WORD = 8  # bytes
Words = npt.NDArray[np.uint64]
_KEEP = np.array([(1 << 8 * n) - 1 for n in range(WORD)] + [2**64 - 1], dtype="<u8")  # the first n bytes of a word
_FACTOR = np.uint64(hash("gemini.placement.written") & (2**64 - 1) | 1)
_QUOTE, _COMMA, _SPACE = b'", '


class Written(Sequence[str]):
    """Names as a JSON text without its brackets: `"a","b"`. Strings are made of them when one is asked for."""

    def __init__(self, text: bytes, starts: Ints, lengths: Ints) -> None:
        """To be made by read or of."""
        self.text = text
        self._starts, self.lengths = starts, lengths  # of the names, in bytes
        self._listed: list[str] | None = None

    @classmethod
    def read(cls, text: bytes) -> Written | None:
        """None where it is not as plain as that, or is none at all: then JSON has to be read."""
        if not text.isascii() or b"\\" in text or len(text) < 2:
            return None
        content = np.frombuffer(text, dtype=np.uint8)
        if (step := text.find(b'","') + 2) > 1 and (len(text) + 1) % step == 0:  # all of one length, it may be
            count = (len(text) + 1) // step
            grid = np.lib.stride_tricks.as_strided(content, (count, step - 1), (step, 1))
            framed = (grid[:, 0] == _QUOTE).all() and (grid[:, -1] == _QUOTE).all()
            if framed and (content[step - 1 :: step] == _COMMA).all() and text.count(b'"') == 2 * count:
                if (content < _SPACE).any():
                    return None
                return cls(text, np.arange(count) * step + 1, np.full(count, step - 3))
        quotes = np.flatnonzero(content == _QUOTE)
        starts, ends = quotes[::2] + 1, quotes[1::2]
        if len(starts) != len(ends) or starts[0] != 1 or ends[-1] != len(text) - 1 or (content < _SPACE).any():
            return None
        if (starts[1:] - ends[:-1] != 3).any() or (content[ends[:-1] + 1] != _COMMA).any():
            return None
        return cls(text, starts, ends - starts)

    @classmethod
    def of(cls, names: Collection[str]) -> Written | None:
        """None where a name is none that Kubernetes knows."""
        try:
            made = cls.read(('"' + '","'.join(names) + '"').encode())
        except UnicodeEncodeError:
            return None
        return made if made is not None and len(made) == len(names) else None

    def only(self, which: Bools) -> Written:
        """Those that are marked."""
        edges = np.flatnonzero(np.diff(which, prepend=False, append=False))
        firsts, lasts = edges[::2], edges[1::2] - 1
        begins = (self._starts[firsts] - 1).tolist()
        ends = (self._starts[lasts] + self.lengths[lasts] + 1).tolist()
        lengths = self.lengths[which]
        text = b",".join([self.text[begin:end] for begin, end in zip(begins, ends, strict=True)])
        return Written(text, np.cumsum(lengths + 3) - lengths - 2, lengths)

    def words(self, count: int) -> Words:
        """The first `count` words of each name, by word and name; zero where a name has ended."""
        length = int(self.lengths[0]) if len(self) else 0
        if (len(self.text) + 1) == (length + 3) * len(self) and (self.lengths == length).all():
            content = np.frombuffer(self.text, dtype=np.uint8)
            kept = min(length, WORD * count)
            rows = np.zeros((len(self), WORD * count), dtype=np.uint8)
            rows[:, :kept] = np.lib.stride_tricks.as_strided(content[1:], (len(self), kept), (length + 3, 1))
            return np.ascontiguousarray(rows.view("<u8").T)
        padded = np.frombuffer(self.text + bytes(WORD * count), dtype=np.uint8)
        everywhere = np.lib.stride_tricks.as_strided(padded[:WORD].view("<u8"), (len(self.text) + 1,), (1,))
        found = np.empty((count, len(self)), dtype=np.uint64)
        for i in range(count):
            at = np.minimum(self._starts + i * WORD, len(self.text)) if i else self._starts
            found[i] = everywhere[at] & _KEEP[np.clip(self.lengths - i * WORD, 0, WORD)]
        return found

    def longest(self) -> int:
        return int(self.lengths.max(initial=0))

    def listed(self) -> list[str]:
        if self._listed is None:
            self._listed = self.text[1:-1].decode().split('","') if len(self) else []
        return self._listed

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[str]:
        return iter(self.listed())

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: Any) -> Any:
        return self.listed()[at]


class WrittenIndex:
    """Each of some names with its number, not below 0."""

    def __init__(self, names: Written, numbers: Collection[int]) -> None:
        """`names`: no name twice."""
        self._numbers: Ints = np.fromiter(numbers, dtype=np.int64, count=len(numbers))
        self._longest = names.longest()
        self._words = names.words(-(-self._longest // WORD) or 1)
        bits = max(1, (SPARSE * len(names)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._mask = (1 << bits) - 1
        self._slots = np.full(self._mask + 1, -1, dtype=np.int32)  # which name; -1: free
        waiting, at = np.arange(len(names)), self._first(self._words)
        while len(waiting):
            free = self._slots[at] < 0
            self._slots[at[free]] = waiting[free]  # of several that want a slot the last has it
            left = self._slots[at] != waiting
            waiting, at = waiting[left], at[left] + 1 & self._mask

    def find(self, names: Written) -> Ints:
        """The number of each name, -1 for those that are not there."""
        words = names.words(len(self._words))
        at = self._first(words)
        hit, left = self._look(at, words)
        if names.longest() > self._longest:  # what goes on after the words is another name
            shorter = names.lengths <= self._longest
            hit, left = hit & shorter, left & shorter
        found: Ints = np.where(hit, self._numbers[self._slots[at]], -1)
        waiting = np.flatnonzero(left)
        while len(waiting):
            at[waiting] = at[waiting] + 1 & self._mask
            hit, left = self._look(at[waiting], words[:, waiting])
            found[waiting[hit]] = self._numbers[self._slots[at[waiting[hit]]]]
            waiting = waiting[left]
        return found

    def _look(self, at: Ints, words: Words) -> tuple[Bools, Bools]:
        """Which names stand in these slots, and for which another does."""
        slot = self._slots[at]
        taken: Bools = slot >= 0
        hit = taken.copy()
        for ours, theirs in zip(self._words, words, strict=True):
            hit &= ours[slot] == theirs
        return hit, taken & ~hit

    def _first(self, words: Words) -> Ints:
        """The slot where each name is looked for first."""
        mixed = words[0] * _FACTOR
        for more in words[1:]:
            mixed = (mixed ^ mixed >> np.uint64(29) ^ more) * _FACTOR
        result: Ints = (mixed >> self._shift).astype(np.int64)
        return result
