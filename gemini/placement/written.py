"""Thousands of node names as they came, one JSON text, and their numbers, without a string for each.

Pure numpy. To make a string of each of 5,000 names and look it up (index.py) costs half a millisecond. So many names
stay as they are written: each eight bytes of a name are one integer, and a table of integers is probed for all names in
step. Names are equal where all of their bytes are. The factors of the hash are made of Python's own keyed one, so who
chooses names cannot aim at one slot of the table; of a few the one is taken that leads most names to a slot of their
own, for the names of a cluster are much alike, and a multiplication does well by some of these and badly by others. For
a few hundred names index.py is quicker, which has fewer steps.
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
_FACTORS = [np.uint64(hash(f"gemini.placement.written.{i}") & (2**64 - 1) | 1) for i in range(4)]
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
        if not text.isascii() or b"\\" in text or len(text) < 2:
            return None
        content = np.frombuffer(text, dtype=np.uint8)
        if content.min() < _SPACE:
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

    def words(self, count: int) -> Words:
        """The first `count` words of each name, by word and name; zero where a name has ended."""
        length = self._step - 3
        if length >= WORD:
            found = np.zeros((count, self._count), dtype=np.uint64)
            for i in range(min(count, -(-length // WORD))):
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

    def _where(self) -> tuple[Ints, Ints]:
        if self._places is None:
            self._places = np.arange(self._count) * self._step + 1, np.full(self._count, self._step - 3)
        return self._places

    def each_with(self, value: bytes) -> bytes:
        """The names as keys of a JSON object without its braces, each with that value, which is JSON."""
        if not self._count:
            return b""
        return b'"%b":%b' % (self.text[1:-1].replace(b'","', b'":%b,"' % value), value)

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
        self._free = int(by_name.max(initial=-1)) + 1  # the number of nobody, whose name no name is like
        self._words = np.full((len(words), self._free + 1), 1, dtype=np.uint64)
        self._words[:, by_name] = words
        bits = max(1, (SPARSE * len(names)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._mask = (1 << bits) - 1
        self._factor = max(_FACTORS, key=lambda factor: len(np.unique(self._first(words, factor))))
        self._slots = np.full(self._mask + 1, self._free, dtype=np.int32)  # numbers
        waiting, at = by_name, self._first(words, self._factor)
        while len(waiting):
            free = self._slots[at] == self._free
            self._slots[at[free]] = waiting[free]  # of several that want a slot the last has it
            left = self._slots[at] != waiting
            waiting, at = waiting[left], at[left] + 1 & self._mask

    def find(self, names: Written) -> Ints:
        """The number of each name, -1 for those that are not there."""
        words = names.words(len(self._words))
        at = self._first(words, self._factor)
        found, hit = self._look(at, words)
        if hit.all() and names.no_longer_than(self._longest) is None:
            return found.astype(np.int64)
        known = names.no_longer_than(self._longest)  # of a longer one these words are only the beginning
        if known is not None:
            hit &= known
            found[~known] = self._free
        waiting = np.flatnonzero(~hit)
        while True:
            waiting = waiting[found[waiting] != self._free]
            if not len(waiting):
                break
            at[waiting] = at[waiting] + 1 & self._mask
            found[waiting], hit = self._look(at[waiting], words[:, waiting])
            waiting = waiting[~hit]
        return np.where(found == self._free, -1, found).astype(np.int64)

    def _look(self, at: Ints, words: Words) -> tuple[npt.NDArray[np.int32], Bools]:
        """The numbers that stand in these slots, and for which names they are."""
        number = self._slots.take(at)
        hit: Bools = self._words[0].take(number) == words[0]
        for ours, theirs in zip(self._words[1:], words[1:], strict=True):
            hit &= ours.take(number) == theirs
        return number, hit

    def _first(self, words: Words, factor: np.uint64) -> Ints:
        """The slot where each name is looked for first."""
        mixed = words[0] * factor
        for more in words[1:]:
            mixed ^= mixed >> np.uint64(29)
            mixed ^= more
            mixed *= factor
        mixed >>= self._shift
        first: Ints = mixed.view(np.int64)
        return first


def _in_step(text: bytes, content: npt.NDArray[np.uint8], step: int) -> bool:
    """Whether the text is names between quotes at each such distance, and there is no other quote."""
    count = (len(text) + 1) // step
    opening, closing, between = content[::step], content[step - 2 :: step], content[step - 1 :: step]
    framed = (opening == _QUOTE).all() and (closing == _QUOTE).all() and (between == _COMMA).all()
    return bool(framed) and int(np.count_nonzero(content == _QUOTE)) == 2 * count
