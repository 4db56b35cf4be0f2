"""Thousands of node names as they came, one JSON text, and their numbers, without a string for each.

Pure numpy. To make a string of each of 5,000 names and look it up (index.py) costs half a millisecond. So many names
stay as they are written: each eight bytes of a name are one integer, and a table of integers is looked at once for all
names in step. Names are equal where all of their bytes are. The few known names that share a slot with another stand
in a dictionary besides: a few strings are quicker made than another dozen steps over arrays, which cost the same for
ten names as for five hundred.

A slot is the sum of the words that are not the same in all names, each times an odd number (multiply-shift;
Dietzfelbinger et al., "A reliable randomized algorithm for the closest-pair problem", 1997). The numbers are made of
Python's own keyed hash, so who chooses names cannot aim at one slot; of some sets of them the one is taken that leads
most names to a slot of their own, for the names of a cluster are much alike, and a sum does well by some of these and
badly by others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from gemini.placement.shape import Bools, Ints

SPARSE = 8  # slots for each name: most are found at the first look
WORD = 8  # bytes
Words = npt.NDArray[np.uint64]
_KEEP = np.array([(1 << 8 * n) - 1 for n in range(WORD)] + [2**64 - 1], dtype="<u8")  # the first n bytes of a word
_TRIED = 8  # sets of factors
_QUOTE, _COMMA, _SPACE = b'", '


class Written(Sequence[str]):
    """Names as a JSON text without its brackets: `"a","b"`. Strings are made of them when one is asked for."""

    def __init__(self, text: bytes, count: int, step: int, places: tuple[Ints, Ints] | None = None) -> None:
        """To be made by read or of. `step`: bytes from one name to the next where all have one length; 0: they have
        not, and `places` are their starts and lengths in bytes."""
        self.text = text
        self._count, self._step, self._places = count, step, places
        self._listed: list[str] | None = None

    @classmethod
    def read(cls, text: bytes) -> Written | None:
        """None where it is not as plain as that, or is none at all: then JSON has to be read."""
        if len(text) < 2 or b"\\" in text:
            return None
        content = np.frombuffer(text, dtype=np.int8)
        if np.minimum.reduce(content) < _SPACE:  # as are the bytes of what is not ASCII
            return None
        step = text.find(b'","') + 2
        if step > 1 and (len(text) + 1) % step == 0 and _in_step(text, content, step):
            return cls(text, (len(text) + 1) // step, step)
        quotes = np.flatnonzero(content == _QUOTE)
        starts, ends = quotes[::2] + 1, quotes[1::2]
        if len(starts) != len(ends) or starts[0] != 1 or ends[-1] != len(text) - 1:
            return None
        if (starts[1:] - ends[:-1] != 3).any() or (content[ends[:-1] + 1] != _COMMA).any():
            return None
        return cls(text, len(starts), 0, (starts, ends - starts))

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
        count = int(np.count_nonzero(which))
        if count == self._count:
            return self
        if self._step and count:
            rows = np.ndarray((self._count,), f"V{self._step}", self.text + b",")
            return Written(rows[which].tobytes()[:-1], count, self._step)
        starts, lengths = self._where()
        edges = np.flatnonzero(np.diff(which, prepend=False, append=False))
        firsts, lasts = edges[::2], edges[1::2] - 1
        begins, ends = (starts[firsts] - 1).tolist(), (starts[lasts] + lengths[lasts] + 1).tolist()
        text = b",".join([self.text[begin:end] for begin, end in zip(begins, ends, strict=True)])
        lengths = lengths[which]
        return Written(text, count, 0, (np.cumsum(lengths + 3) - lengths - 2, lengths))

    def parted(self, which: Ints, count: int) -> list[Written]:
        """Those marked 0, those marked 1, and so on: `count` parts, at most 127."""
        if not self._step:
            return [self.only(which == part) for part in range(count)]
        order = np.argsort(which.astype(np.int8), kind="stable")
        text = np.ndarray((self._count,), f"V{self._step}", self.text + b",").take(order).tobytes()
        sizes = np.bincount(which, minlength=count).tolist()
        ends = [end * self._step for end in accumulate(sizes)]
        return [
            Written(text[end - size * self._step : end - 1] if size else b"", size, self._step)
            for size, end in zip(sizes, ends, strict=True)
        ]

    def words(self, count: int) -> Words:
        """The first `count` words of each name, by word and name; zero where a name has ended."""
        length = self._step - 3
        if length >= WORD:
            found = np.empty((count, self._count), dtype=np.uint64)
            for i in range(count):
                if i * WORD >= length:
                    found[i] = 0
                    continue
                at = min(i * WORD, length - WORD)  # the last word is the name's last eight bytes, less those before it
                word = np.ndarray((self._count,), "<u8", self.text, 1 + at, (self._step,))
                np.right_shift(word, np.uint64(8 * (i * WORD - at)), out=found[i])
            return found
        starts, lengths = self._where()
        padded = np.frombuffer(self.text + bytes(WORD * count), dtype=np.uint8)
        everywhere = np.ndarray((len(self.text) + 1,), "<u8", padded, 0, (1,))
        found = np.empty((count, self._count), dtype=np.uint64)
        for i in range(count):
            begins = np.minimum(starts + i * WORD, len(self.text)) if i else starts
            found[i] = everywhere[begins] & _KEEP[np.clip(lengths - i * WORD, 0, WORD)]
        return found

    def no_longer_than(self, most: int) -> Bools | None:
        """Which names have at most so many bytes; None: all."""
        if self._step:
            return None if self._step - 3 <= most else np.zeros(self._count, dtype=bool)
        lengths = self._where()[1]
        return None if lengths.max(initial=0) <= most else lengths <= most

    def longest(self) -> int:
        return int(self._where()[1].max(initial=0))

    def raw(self, at: int) -> bytes:
        """One name as it is written."""
        if self._step:
            return self.text[1 + at * self._step : (at + 1) * self._step - 2]
        starts, lengths = self._where()
        return self.text[starts[at] : starts[at] + lengths[at]]

    def _where(self) -> tuple[Ints, Ints]:
        if self._places is None:
            self._places = np.arange(self._count) * self._step + 1, np.full(self._count, self._step - 3)
        return self._places

    def each_with(self, behind: bytes, before: bytes = b"") -> bytes:
        """The names, as JSON strings with commas between, each with the one behind it and the other before it."""
        if not self._count:
            return b""
        behind += b","
        if not self._step:
            return (b'%b"%b"%b' % (before, self.text[1:-1].replace(b'","', b'"%b%b"' % (behind, before)), behind))[:-1]
        quoted = self._step - 1
        width = len(before) + quoted + len(behind)
        made = bytearray((before + bytes(quoted) + behind) * self._count)
        names = np.ndarray((self._count,), f"V{quoted}", self.text, 0, (self._step,))
        np.ndarray((self._count,), f"V{quoted}", made, len(before), (width,))[:] = names
        return bytes(memoryview(made)[:-1])

    def listed(self) -> list[str]:
        if self._listed is None:
            self._listed = self.text[1:-1].decode().split('","') if len(self) else []
        return self._listed

    def __len__(self) -> int:
        return self._count

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
        """`names`: no name twice. The table grows with the greatest of the numbers."""
        by_name: Ints = np.fromiter(numbers, dtype=np.int64, count=len(numbers))
        self._longest = names.longest()
        words = names.words(-(-self._longest // WORD) or 1)
        alike = (words == words[:, :1]).all(axis=1)
        alike[-1] = False  # one at least is looked at for each name
        self._alike = [int(word[0]) if same else None for word, same in zip(words, alike.tolist(), strict=True)]
        words = words[~alike]
        self._free = int(by_name.max(initial=-1)) + 1  # the number of nobody, whose name no name is like
        self._words = np.full((len(words), self._free + 1), 1, dtype=np.uint64)
        self._words[:, by_name] = words
        bits = max(1, (SPARSE * len(names)).bit_length())
        self._shift = np.uint64(64 - bits)
        tried = (_factors(i, len(words)) for i in range(_TRIED))
        self._factors = max(tried, key=lambda factors: len(np.unique(self._slot([*words], factors))))
        self._slots = np.full(1 << bits, self._free, dtype=np.min_scalar_type(self._free))  # numbers
        at = self._slot([*words], self._factors)
        self._slots[at] = by_name  # of several that want a slot the last has it
        self._others = {names.raw(i): int(by_name[i]) for i in np.flatnonzero(self._slots[at] != by_name).tolist()}

    def find(self, names: Written) -> Ints:
        """The number of each name, -1 for those that are not there."""
        words = names.words(len(self._alike))
        differing = [theirs for theirs, same in zip(words, self._alike, strict=True) if same is None]
        number = self._slots.take(self._slot(differing, self._factors))
        hit: Bools = self._words[0].take(number) == differing[0]
        for ours, theirs in zip(self._words[1:], differing[1:], strict=True):
            hit &= ours.take(number) == theirs
        for theirs, same in zip(words, self._alike, strict=True):
            if same is not None:
                hit &= theirs == same
        known = names.no_longer_than(self._longest)  # of a longer one these words are only the beginning
        if known is not None:
            hit &= known
        found = number.astype(np.int64)
        missed = (~hit).nonzero()[0]
        if len(missed):
            found[missed] = -1
            for i in missed[number[missed] != self._free].tolist() if self._others else ():
                found[i] = self._others.get(names.raw(i), -1)
        return found

    def _slot(self, words: Sequence[Words], factors: Sequence[np.uint64]) -> Ints:
        """The slot where each name is looked for, by its words that are not the same in all names."""
        mixed = words[0] * factors[0]
        for more, factor in zip(words[1:], factors[1:], strict=True):
            mixed += more * factor
        mixed >>= self._shift
        slot: Ints = mixed.view(np.int64)
        return slot


def _factors(number: int, count: int) -> list[np.uint64]:
    return [np.uint64(hash(f"gemini.placement.written.{number}.{i}") & (2**64 - 1) | 1) for i in range(count)]


def _in_step(text: bytes, content: npt.NDArray[np.int8], step: int) -> bool:
    """Whether the text is names between quotes at each such distance, and there is no other quote."""
    count = (len(text) + 1) // step
    quotes = b'"' * count
    if text[::step] != quotes or text[step - 2 :: step] != quotes or text[step - 1 :: step] != b"," * (count - 1):
        return False
    return int(np.count_nonzero(content == _QUOTE)) == 2 * count
