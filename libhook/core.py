"""The C core (libhook/core) as Python sees it: `ffi`, `lib`, and the wire's messages as cffi structs.

What is loaded is the extension `_core_api` where the build had Python.h, else the declarations of `_core_abi` over
lib/libgemini_core.so; both offer the same names. This module may not know a field of any message: the structs of
wire.h, parsed by cffi, are the one definition.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any


def _load() -> tuple[Any, Any]:
    try:
        module = importlib.import_module("libhook._core_api")
    except ModuleNotFoundError:
        try:
            module = importlib.import_module("libhook._core_abi")
        except ModuleNotFoundError as error:
            raise ImportError("the C core is not built: run `make build`") from error
        return module.ffi, module.ffi.dlopen(str(Path(__file__).with_name("lib") / "libgemini_core.so"))
    return module.ffi, module.lib


ffi, lib = _load()

STRUCTS: dict[int, str] = {
    lib.WIRE_HELLO: "struct wire_hello",
    lib.WIRE_WELCOME: "struct wire_welcome",
    lib.WIRE_TOKEN_REQUEST: "struct wire_token_request",
    lib.WIRE_GRANT: "struct wire_grant",
    lib.WIRE_EXTEND: "struct wire_grant",
    lib.WIRE_REVOKE: "struct wire_revoke",
    lib.WIRE_RETURN: "struct wire_return",
    lib.WIRE_MEM_RESERVE: "struct wire_mem_reserve",
    lib.WIRE_MEM_REPLY: "struct wire_mem_reply",
    lib.WIRE_MEM_RELEASE: "struct wire_mem_release",
    lib.WIRE_MEM_RECALL: "struct wire_mem_recall",
    lib.WIRE_STATS: "struct wire_stats",
    lib.WIRE_ERROR: "struct wire_error",
    lib.WIRE_USED: "struct wire_used",
}

_POINTERS = {kind: ffi.typeof(name + " *") for kind, name in STRUCTS.items()}


class WireError(ValueError):
    """A frame that is no message; `errno` says in which way (see wire_check in wire.h)."""

    def __init__(self, errno: int, size: int) -> None:
        super().__init__(f"a frame of {size} bytes is no message: {os.strerror(errno)}")
        self.errno = errno


def decode(frame: bytes) -> tuple[int, Any]:
    """The type and the struct (a copy, owned by the result) of one frame; raises WireError for what is no message."""
    kind: int = lib.wire_check(frame, len(frame))
    if kind < 0:
        raise WireError(-kind, len(frame))
    message = ffi.new(_POINTERS[kind])
    ffi.memmove(message, frame, len(frame))
    return kind, message


def new(kind: int, serial: int, **fields: Any) -> Any:
    """A message of this type with its header written and the named fields set (strings as bytes, arrays as lists)."""
    message = ffi.new(_POINTERS[kind])
    lib.wire_init(message, kind, serial)
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def encode(message: Any) -> bytes:
    """The frame of a message made by `new` or taken from `decode`; raises WireError where a field is out of range."""
    frame = bytes(ffi.buffer(message))
    error: int = lib.wire_check(frame, len(frame))
    if error < 0:
        raise WireError(-error, len(frame))
    return frame
