"""What Gemini assumes of a card's driver, and what gemini-probe saw of it: which assumptions hold on this machine.

The probe writes JSON (libhook/probe/probe.c); each assumption is a question to its answers. None: it could not be
told.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from libhook.build import LIB

PROBE = LIB / "gemini-probe"
PROBE_SECONDS = 120

Answers = Mapping[str, Any]


class Assumption(NamedTuple):
    """A name, whether it holds by the answers, and what it means where it does not."""

    name: str
    holds: Callable[[Answers], bool | None]
    otherwise: str


def _is(name: str, *wanted: object) -> Callable[[Answers], bool | None]:
    return lambda answers: answers[name] in wanted if name in answers else None


def _at_most(name: str, most: float) -> Callable[[Answers], bool | None]:
    return lambda answers: answers[name] <= most if name in answers else None


ASSUMPTIONS = (
    Assumption("a relaxed thread's questions leave captures alone", _is("capture_end_relaxed", 0),
               "graph captures of programs may fail beside the library"),
    Assumption("a thread without a context may exchange its capture mode", _is("no_context_exchange_mode", 0),
               "the library's own thread cannot ask during a capture"),
    Assumption("what cannot be allocated is refused as out of memory", _is("refusals_are_out_of_memory", 1),
               "a refusal of the library answers by itself, not in the driver's words"),
    Assumption("NVML lists a process by the pid that it has here", _is("nvml_lists_our_pid", 1),
               "the size of contexts is taken from the card's figure as a whole"),
    Assumption("a context takes at most 512 MiB", _at_most("context_bytes", 512 << 20),
               "where NVML hides pids, programs may pass their memory limit by what a context takes more"),
    Assumption("a context grows by at most 16 MiB with its first kernels", _at_most("context_grown_bytes", 16 << 20),
               "each process may pass its memory limit by what its context grows by"),
    Assumption("a first launch costs at most 1 ms", _at_most("first_launch_ns", 1e6),
               "a tenant's turn may end while a function is loaded"),
    Assumption("a timed event between kernels costs at most 2 us", _at_most("gap_with_event_ns", 2000),
               "kernels of some microseconds run more slowly while they are measured"),
    Assumption("PTX for sm_50 is taken", _is("ptx_sm_50", 0), "gemini load and the demo have no kernel for this card"),
)  # fmt: skip


def probe(path: Path, *options: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run the probe, which writes `path`; what it wrote. OSError, ValueError where there is nothing."""
    done = subprocess.run(
        [str(PROBE), *options, str(path)], env=dict(environment or os.environ), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=PROBE_SECONDS, check=False,
    )  # fmt: skip
    if not path.exists():
        raise OSError((done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1])
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def harmless(environment: Mapping[str, str]) -> dict[str, Any]:
    """What the probes see that keep a card busy for some tenths of a second at most."""
    with tempfile.TemporaryDirectory(prefix="gemini-probe-") as folder:
        return probe(Path(folder) / "probe.json", "--harmless", environment=environment)


def judged(answers: Answers) -> list[tuple[Assumption, bool | None]]:
    """Each assumption, and whether it holds."""
    return [(one, one.holds(answers)) for one in ASSUMPTIONS]
