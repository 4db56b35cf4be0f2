"""The table (libhook/driver/cuda_hooks.h, cuda_abi.h) against one release of CUDA's headers, as a list of differences.

Each line names one function, type or value and what to do about it: a new release gives a list, not a crash. Where a
release declares a symbol, the table must know it. Where `cudaTypedefs.h` says that (name, version, flavour) has an
entry, the table must have that row (of graphics interop only the names are read). Where both have a prototype, it must
be the same.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.headers import fetch
from tests.headers.declarations import Declarations, declared, preprocess

ROOT = Path(__file__).resolve().parents[2]


class Row(NamedTuple):
    """One row of cuda_hooks.h. `kind`: HOOK, PASS or KNOWN; `why`: its class or its reason."""

    kind: str
    symbol: str
    name: str
    since: int
    flavour: str
    why: str


@cache
def table() -> tuple[Row, ...]:
    """The rows, in their order."""
    words = "".join(f"#define {kind}(s, n, v, f, w) row({kind}, s, n, v, f, w)\n" for kind in ("HOOK", "PASS", "KNOWN"))
    text = preprocess(words + '#include "libhook/driver/cuda_hooks.h"\n', ROOT)
    rows = re.findall(r'row\((\w+), (\w+), "(\w+)", (\d+), (\w+),\s*"?([^")]*)"?\)', text)
    return tuple(Row(kind, symbol, name, int(since), flavour, why) for kind, symbol, name, since, flavour, why in rows)


@cache
def ours() -> Declarations:
    return declared('#include "libhook/driver/cuda_abi.h"\n', ROOT)


def theirs(release: str) -> Declarations:
    """CUDA's own, with the old and the per-thread symbols too (they stand behind a macro)."""
    source = "#define __CUDA_API_VERSION_INTERNAL\n#include <cudaTypedefs.h>\n"
    found = declared(source, fetch.cache() / release)
    for file in fetch.INTEROP:  # they need the headers of graphics APIs: read by their names only
        text = (fetch.cache() / release / file).read_text()
        found.pointers |= dict.fromkeys(re.findall(r"^\s*typedef .*\b(PFN_cu\w+)\)", text, re.MULTILINE), "")
    return found


def differences(official: Declarations, current: bool = True) -> list[str]:
    """What is not equal. `current`: of the newest release known, which must also have all that we have."""
    symbols = {row.symbol: row for row in table()}
    functions = {name: spelt for name, spelt in official.functions.items() if re.fullmatch(r"cu[A-Z]\w+", name)}
    found = [
        f"{symbol}: not in the table; give it a row in cuda_hooks.h: {functions[symbol]}"
        for symbol in sorted(functions.keys() - symbols.keys())
    ]
    for symbol, spelt in sorted(ours().functions.items()):
        if symbol in functions and not _equal(spelt, functions[symbol]):
            found.append(f"{symbol}: cuda_abi.h says {spelt}, CUDA says {functions[symbol]}")
    return found + _entries(official, functions) + _layouts(official, current) + _values(official, current)


def _entries(official: Declarations, functions: dict[str, str]) -> list[str]:
    """(name, version, flavour) of cudaTypedefs.h against the rows."""
    found = []
    rows = {(row.name, row.since, row.flavour == "PER_THREAD"): row for row in table()}
    declared_names = set()
    for pointer, spelt in sorted(official.pointers.items()):
        parts = re.fullmatch(r"PFN_(cu[A-Z]\w+?)_v(\d+)(_pt[ds][sz])?", pointer)
        if parts is None:
            continue
        name, since, per_thread = parts[1], int(parts[2]), parts[3] is not None
        declared_names.add(name)
        row = rows.get((name, since, per_thread))
        if row is None:
            flavour = ", per thread" if per_thread else ""
            found.append(f"{name}: no row for CUDA {since}{flavour}; {pointer} says there is an entry: {spelt}")
        elif spelt and not _equal(ours().functions.get(row.symbol, functions.get(row.symbol, spelt)), spelt):
            found.append(f"{row.symbol}: {pointer} is {spelt}, the row's function is another")
    for row in table():
        if row.symbol in functions and row.name not in declared_names:
            found.append(f"{row.symbol}: the row says that it is asked for as {row.name}, which CUDA does not know")
        elif row.symbol in functions and f"PFN_{row.name}_v{row.since}{_suffix(row)}" not in official.pointers:
            found.append(f"{row.symbol}: the row says since {row.since}, which CUDA does not know")
    return found


def _suffix(row: Row) -> str:
    return "" if row.flavour != "PER_THREAD" else "_ptds" if row.symbol.endswith("_ptds") else "_ptsz"


def _layouts(official: Declarations, current: bool) -> list[str]:
    """Structures grow into what was reserved; an older release may lack the newest fields, and say less of the rest."""
    found = []
    for name, fields in sorted(ours().fields.items()):
        if name not in official.sizes:
            continue
        size = official.sizes[name]
        if ours().sizes[name] != size and (current or ours().sizes[name] < size):
            found.append(f"{name}: {ours().sizes[name]} bytes in cuda_types.h, {size} in CUDA")
        for path, place in fields.items():
            other = official.fields[name].get(path)
            if re.search(r"(^|\.)(reserved|pad|_oversize)\d*$", path):
                continue
            if other is not None and other != place:
                found.append(f"{name}.{path}: at (offset, size) {place} in cuda_types.h, {other} in CUDA")
            elif other is None and current:
                found.append(f"{name}.{path}: no such field in CUDA")
    return found


def _values(official: Declarations, current: bool) -> list[str]:
    found = []
    for name, value in sorted(ours().enumerators.items()):
        other = official.enumerators.get(name)
        if name.endswith("_MASK") and not current:
            continue  # grows with each flag
        if other is None and current:
            found.append(f"{name}: no such value in CUDA")
        elif other is not None and other != value:
            found.append(f"{name}: {value} in our headers, {other} in CUDA")
    return found


def _equal(one: str, other: str) -> bool:
    """Of a structure that only one of them defines the name counts."""
    if one == other:
        return True
    left, right = (re.split(r"([(),*]\s*)", spelt) for spelt in (one, other))
    return len(left) == len(right) and all(
        a == b or (a.partition(":")[0] == b.partition(":")[0] and (":" in a) != (":" in b))
        for a, b in zip(left, right, strict=True)
    )


def main() -> int:
    fetch.main()
    newest = fetch.newer_release()
    status = 0
    for release in [*fetch.RELEASES, *([newest] if newest else [])]:
        found = differences(theirs(release), current=release in (newest, list(fetch.RELEASES)[-1]))
        print(f"CUDA {release}: {len(found) or 'no'} difference{'s' if len(found) != 1 else ''}")
        print("".join(f"  {line}\n" for line in found), end="")
        status |= bool(found)
    return status


if __name__ == "__main__":
    sys.exit(main())
