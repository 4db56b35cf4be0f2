"""Thousands of node names as they came, one JSON text, and their numbers, without a string for each.

Pure. To make a string of each of 5,000 names and look it up costs half a millisecond. So many names stay as they are
written: libhook/placement/names.c reads them where they stand, looks all up in one pass, and writes those that are
wanted. Its hash is keyed by Python's own, so who chooses names cannot aim at one slot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from gemini.placement.shape import Ints
from libhook.core import ffi, lib

SPARSE = 2  # slots for each name at least: most are found at the first look
TRIED = 3  # keys; that two of 5,000 names hash alike by one has a chance of one in 10^12
Ends = npt.NDArray[np.int32]
Marks = npt.NDArray[np.int8]


class Written(Sequence[str]):
    """Names as a JSON text without its brackets: `"a","b"`. Strings are made of them when one is asked for."""

    def __init__(self, text: bytes, ends: Ends) -> None:
        """To be made by read or of. `ends`: of each name the place of the quote behind it."""
        self.text, self.ends = text, ends
        self._listed: list[str] | None = None

    @classmethod
    def read(cls, text: bytes) -> Written | None:
        """None where it is not as plain as that, or is none at all: then JSON has to be read."""
        many: int = lib.names_count(text, len(text))
        ends = np.empty(many, dtype=np.int32)
        plain = many and lib.names_split(text, len(text), ffi.from_buffer("int32_t[]", ends), many)
        return cls(text, ends) if plain else None

    @classmethod
    def of(cls, names: Collection[str]) -> Written | None:
        """None where a name is none that Kubernetes knows."""
        try:
            made = cls.read(('"' + '","'.join(names) + '"').encode())
        except UnicodeEncodeError:
            return None
        return made if made is not None and len(made) == len(names) else None

    def parted(self, marks: Marks, parts: int) -> list[Written]:
        """Those marked 0, those marked 1, and so on: `parts` of them, at most 127."""
        room, many = len(self.text) + 1, len(self)
        made, ends = np.empty(parts * room, dtype=np.uint8), np.empty((parts, many), dtype=np.int32)
        counts = ffi.new("size_t[]", parts)
        lib.names_part(
            self.text, ffi.from_buffer("int32_t[]", self.ends), many, ffi.from_buffer("int8_t[]", marks), parts,
            ffi.from_buffer("char[]", made), room, ffi.from_buffer("int32_t[]", ends), counts,
        )  # fmt: skip
        found = []
        for part, count in enumerate(counts):
            length = ends[part, count - 1] + 1 if count else 0
            found.append(Written(made[part * room : part * room + length].tobytes(), ends[part, :count]))
        return found

    def each_with(self, behind: bytes, before: bytes = b"") -> bytes:
        """The names, as JSON strings with commas between, each with the one behind it and the other before it."""
        made = np.empty(len(self.text) + len(self) * (len(before) + len(behind) + 1), dtype=np.uint8)
        length = lib.names_join(
            self.text, ffi.from_buffer("int32_t[]", self.ends), len(self), before, len(before), behind, len(behind),
            ffi.from_buffer("char[]", made),
        )  # fmt: skip
        return made[:length].tobytes()

    def listed(self) -> list[str]:
        if self._listed is None:
            self._listed = self.text[1:-1].decode().split('","') if len(self) else []
        return self._listed

    def __len__(self) -> int:
        return len(self.ends)

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
        by_name: Ints = np.fromiter(numbers, dtype=np.int64, count=len(numbers))
        size = 1 << (SPARSE * len(names)).bit_length()
        self._mask = size - 1
        ends, values = ffi.from_buffer("int32_t[]", names.ends), ffi.from_buffer("int64_t[]", by_name)
        for tried in range(TRIED):
            self._key = ffi.new("uint64_t[2]", [_number(f"{tried}.{i}") for i in range(2)])
            self._slots = ffi.from_buffer("struct names_slot[]", np.full((size, 2), -1, dtype=np.int64))
            if lib.names_enter(self._slots, self._mask, self._key, names.text, ends, len(names), values):
                return
        raise ValueError("there is a name twice")

    def find(self, names: Written) -> Ints:
        """The number of each name, -1 for those that are not there."""
        found: Ints = np.empty(len(names), dtype=np.int64)
        ends, values = ffi.from_buffer("int32_t[]", names.ends), ffi.from_buffer("int64_t[]", found)
        lib.names_find(self._slots, self._mask, self._key, names.text, ends, len(names), values)
        return found


def _number(of: str) -> int:
    return hash(f"gemini.placement.written.{of}") & (1 << 64) - 1
