"""Run a program to which the kernel refuses something, as an old one, gVisor or a container's seccomp filter does.

    python -m tests.libhook.runtime.refuse FEATURE COMMAND...

Ends with 77 where no filter may be set. x86-64.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from typing import NamedTuple

CANNOT = 77
_NR, _ARGUMENTS = 0, 16  # offsets in struct seccomp_data
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2


class Refusal(NamedTuple):
    """A system call and what it answers; only where an argument is this value, and the next has one of these bits."""

    number: int
    error: int = errno.ENOSYS
    argument: int = -1
    value: int = 0
    bits: int = 0


FCNTL, GETSOCKOPT, ADD_SEALS, GET_SEALS, OFD_SETLK, PEERPIDFD = 72, 55, 1033, 1034, 37, 77
FEATURES: dict[str, tuple[Refusal, ...]] = {
    "membarrier": (Refusal(324),),
    "eventfd": (Refusal(290, errno.EPERM),),
    "memfd_create": (Refusal(319),),
    "F_SEAL_FUTURE_WRITE": (Refusal(FCNTL, errno.EINVAL, 1, ADD_SEALS, 0x10),),
    "F_GET_SEALS": (Refusal(FCNTL, errno.EINVAL, 1, GET_SEALS),),
    "F_OFD_SETLK": (Refusal(FCNTL, errno.EINVAL, 1, OFD_SETLK),),
    "SO_PEERPIDFD": (Refusal(GETSOCKOPT, errno.ENOPROTOOPT, 2, PEERPIDFD),),
    "pidfd_open": (Refusal(434), Refusal(GETSOCKOPT, errno.ENOPROTOOPT, 2, PEERPIDFD)),
    "timerfd_create": (Refusal(283, errno.EPERM),),
    "sched_setattr": (Refusal(314, errno.EPERM), Refusal(315, errno.EPERM)),
    "prctl(PR_SET_TIMERSLACK)": (Refusal(157, errno.EINVAL, 0, 29),),
    "io_uring": (Refusal(425, errno.EPERM),),
    "process_vm_readv": (Refusal(310, errno.EPERM),),
    "userfaultfd": (Refusal(323, errno.EPERM),),
    "clone3": (Refusal(435),),
    "close_range": (Refusal(436),),
    "inotify": (Refusal(294),),
}


def _word(code: int, when: int = 0, otherwise: int = 0, value: int = 0) -> bytes:
    return struct.pack("HBBI", code, when, otherwise, value)


def program(refusals: tuple[Refusal, ...]) -> bytes:
    """The filter, in BPF: each refusal in a row, and then all is allowed."""
    words: list[bytes] = []
    for one in refusals:
        answer = _word(_RETURN, value=_ERRNO | one.error)
        tests = [answer]
        if one.bits:
            tests = [_word(_LOAD, value=_ARGUMENTS + 8 * (one.argument + 1)), _word(_ANY_BIT, 0, 1, one.bits), *tests]
        if one.argument >= 0:
            load = _word(_LOAD, value=_ARGUMENTS + 8 * one.argument)
            tests = [load, _word(_EQUAL, 0, len(tests), one.value), *tests]
        words += [_word(_LOAD, value=_NR), _word(_EQUAL, 0, len(tests), one.number), *tests]
    return b"".join([*words, _word(_RETURN, value=_ALLOW)])


def main() -> int:
    code = program(FEATURES[sys.argv[1]])
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_ = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_SET_SECCOMP, _FILTER, filter_, 0, 0):
        return CANNOT
    os.execvp(sys.argv[2], sys.argv[2:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
