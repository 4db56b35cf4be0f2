"""The simulated device's own record, for tests, benchmarks and the demonstration: who kept it busy, when, for how long.

`Timeline("NAME")` looks at the machine of that id, which must exist; `Timeline("gpus=2,id=NAME")` makes it if need be.
Shares are judged by this, never by what the daemon says of itself. Times are CLOCK_MONOTONIC nanoseconds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from cffi import FFI

LIBRARY = Path(__file__).resolve().parent / "lib" / "libgemini_observer.so"

_DECLARATIONS = """
struct observer;
struct observer_busy {
    int32_t pid, alive;
    uint64_t busy_ns, to_device_ns, to_host_ns, memory_bytes;
};
struct observer_segment {
    int32_t pid;
    uint32_t kernels, stream, reserved;
    uint64_t start_ns, end_ns;
};
int observer_open(const char *spec, int make, struct observer **out, char *why, int why_size);
void observer_close(struct observer *observer);
uint32_t observer_devices(struct observer *observer);
int observer_device(struct observer *observer, uint32_t device, char *name, uint8_t *uuid, uint64_t *memory);
int observer_read(struct observer *observer, uint32_t device, uint64_t *now_ns, struct observer_busy *out, int room);
int observer_segments(struct observer *observer, uint32_t device, uint64_t *sequence, uint64_t *lost,
                      struct observer_segment *out, int room);
uint64_t observer_switches(struct observer *observer, uint32_t device);
"""

_ROOM = 4096


@dataclass(frozen=True)
class Device:
    index: int
    name: str
    uuid: str
    memory_bytes: int


class Segment(NamedTuple):
    """Back-to-back work of one stream of one process on the compute engine."""

    pid: int
    start_ns: int
    end_ns: int
    kernels: int
    stream: int


class Timeline:
    """A seat at the simulated machine that only looks. Close it, or use it as a context manager."""

    def __init__(self, spec: str) -> None:
        self._ffi: Any = FFI()
        self._ffi.cdef(_DECLARATIONS)
        self._lib: Any = self._ffi.dlopen(str(LIBRARY))
        self.lost = 0  # segments that were overwritten before segments() came for them
        self._observer: Any = None
        make = "=" in spec
        out, why = self._ffi.new("struct observer **"), self._ffi.new("char[256]")
        error = self._lib.observer_open((spec if make else f"id={spec}").encode(), make, out, why, 256)
        if error:
            raise OSError(-error, self._ffi.string(why).decode() or os.strerror(-error))
        self._observer = out[0]
        self._rows = self._ffi.new(f"struct observer_busy[{_ROOM}]")
        self._segments = self._ffi.new(f"struct observer_segment[{_ROOM}]")

    def close(self) -> None:
        if self._observer is not None:
            self._lib.observer_close(self._observer)
            self._observer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def devices(self) -> list[Device]:
        """The cards of the machine."""
        found = []
        for index in range(self._lib.observer_devices(self._observer)):
            name, uuid = self._ffi.new("char[64]"), self._ffi.new("uint8_t[16]")
            memory = self._ffi.new("uint64_t *")
            self._lib.observer_device(self._observer, index, name, uuid, memory)
            hexed = bytes(uuid).hex()
            parts = (hexed[:8], hexed[8:12], hexed[12:16], hexed[16:20], hexed[20:])
            found.append(Device(index, self._ffi.string(name).decode(), "GPU-" + "-".join(parts), memory[0]))
        return found

    def _read(self, device: int) -> tuple[int, list[Any]]:
        now = self._ffi.new("uint64_t *")
        count = self._lib.observer_read(self._observer, device, now, self._rows, _ROOM)
        if count < 0:
            raise OSError(-count, f"device {device}: {os.strerror(-count)}")
        return now[0], [self._rows[i] for i in range(min(count, _ROOM))]

    def busy(self, device: int = 0) -> tuple[int, dict[int, int]]:
        """(now_ns, {pid: ns of compute engine time so far}), exact at now_ns; the dead of late are in it."""
        now, rows = self._read(device)
        total: dict[int, int] = {}
        for row in rows:
            total[row.pid] = total.get(row.pid, 0) + row.busy_ns
        return now, total

    def copies(self, device: int = 0) -> tuple[int, dict[int, tuple[int, int]]]:
        """(now_ns, {pid: (ns of copies to the device, ns of copies to the host)})."""
        now, rows = self._read(device)
        total: dict[int, tuple[int, int]] = {}
        for row in rows:
            to_device, to_host = total.get(row.pid, (0, 0))
            total[row.pid] = to_device + row.to_device_ns, to_host + row.to_host_ns
        return now, total

    def memory(self, device: int = 0) -> dict[int, int]:
        """{pid: bytes of the card it holds, contexts included}, the living only."""
        total: dict[int, int] = {}
        for row in self._read(device)[1]:
            if row.alive:
                total[row.pid] = total.get(row.pid, 0) + row.memory_bytes
        return total

    def segments(self, device: int = 0, since: int = 0) -> tuple[int, list[Segment]]:
        """(next sequence number, work recorded from `since` on up to now), oldest first."""
        sequence, lost = self._ffi.new("uint64_t *", since), self._ffi.new("uint64_t *")
        found: list[Segment] = []
        while True:
            count = self._lib.observer_segments(self._observer, device, sequence, lost, self._segments, _ROOM)
            if count < 0:
                raise OSError(-count, f"device {device}: {os.strerror(-count)}")
            self.lost += lost[0]
            found += [
                Segment(s.pid, s.start_ns, s.end_ns, s.kernels, s.stream)
                for s in (self._segments[i] for i in range(count))
            ]
            if count < _ROOM:
                return sequence[0], found

    def switches(self, device: int = 0) -> int:
        """Context switches of the card so far."""
        return int(self._lib.observer_switches(self._observer, device))
