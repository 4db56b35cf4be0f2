"""The API server's JSON, whatever those who make objects have put into it.

Some parts of objects are kept as their makers wrote them, such as the parameters of a ResourceClaim: nested thousands
deep, with halves of surrogate pairs, with numbers beyond any double. The API server lets them in and tells of them as
they are; the quick parser takes none of these. One object must not keep all others of its kind from being read, nor
count for nothing, so what no part of ours looks at is made plain first: pairs are mended, and what lies too deep is
null. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import orjson

DEEPEST = 64  # of what Kubernetes itself defines nothing is half as deep
_HALF = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)  # a pair, or half of one
_PAIR = 12  # bytes
_MASK = b"\0\0"  # in no text of JSON
_STEP = np.zeros(256, dtype=np.int8)
_STEP[list(b"[{")], _STEP[list(b"]}")] = 1, -1
_IS_BRACKET = _STEP != 0


def decode(text: bytes | bytearray) -> Any:
    """Raises ValueError where it is no JSON."""
    try:
        return orjson.loads(text)
    except ValueError:
        try:
            return json.loads(plain(bytes(text)))
        except RecursionError:
            raise ValueError("brackets without an end") from None


def plain(text: bytes) -> bytes:
    """The same JSON without halves of surrogate pairs, and with null for what is nested deeper than DEEPEST."""
    masked = text.replace(rb"\\", _MASK)  # what a backslash stands before now is escaped
    mended = _HALF.sub(lambda found: found[0] if len(found[0]) == _PAIR else rb"\ufffd", masked)
    return _shallow(mended).replace(_MASK, rb"\\")


def _shallow(text: bytes) -> bytes:
    letters = np.frombuffer(text.replace(rb"\"", _MASK), dtype=np.uint8)
    at = np.flatnonzero(_IS_BRACKET[letters])
    at = at[np.searchsorted(np.flatnonzero(letters == ord('"')), at) % 2 == 0]  # those outside of strings
    steps = _STEP[letters[at]]
    depth = np.cumsum(steps, dtype=np.int64)
    begins = at[(depth == DEEPEST + 1) & (steps == 1)]
    ends = at[(depth == DEEPEST) & (steps == -1)]
    if not len(begins) or len(begins) != len(ends):
        return text
    parts, done = [], 0
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        parts += [text[done:begin], b"null"]
        done = end + 1
    return b"".join((*parts, text[done:]))
