"""The tests that a sanitizer cannot run, by name and with the reason: a plugin of pytest, which skips them under it.

    pytest -p tests.sanitize.left_out

What a test needs and a sanitizer forbids is the sanitizer's own limit; a fault of ours has no place here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ASAN, TSAN = "libasan", "libtsan"
BOTH = f"{ASAN} {TSAN}"

MADE = "asks how the library itself is made, which the sanitizer changes: it needs its runtime and calls it"
FIRST = "the library is loaded without LD_PRELOAD here, and the sanitizer's runtime must be the first one in a process"
ROOT = "runs in a root file system that has no runtime of the sanitizer"
MALLOC = "asks for libc's malloc, whose place the sanitizer's has taken"
EARLY = (
    "its interposer of dlsym calls strcmp while the sanitizer's start-up looks up its functions by dlsym, and that "
    "strcmp is the sanitizer's own, which leads nowhere before the start-up is over"
)
FORK = (
    "gcc 12's AddressSanitizer takes none of its allocator's locks around a fork: a child that is forked while another "
    "thread allocates may wait for such a lock for ever (seen in SizeClassAllocator64::GetFromAllocator)"
)
PROC = (
    "there is no /proc: the sanitizer reads its options from there, and so does not hear that leaks are no matter "
    "(AddressSanitizer) and that threads may be started after a fork (ThreadSanitizer)"
)

LEFT_OUT = (
    (BOTH, "tests/libhook/ways/test_ways.py::test_way_04_libcuda_is_not_needed_and_nothing_is_done_without_cuda", MADE),
    (
        BOTH,
        "tests/libhook/ways/test_ways.py::test_way_05_rtld_next_is_answered_relative_to_the_caller_each_time",
        MALLOC,
    ),
    (BOTH, "tests/libhook/hooks/test_guest.py::test_it_needs_the_c_library_only", MADE),
    (BOTH, "tests/libhook/hooks/test_guest.py::test_its_system_calls_are_those_of_being_loaded", MADE),
    (
        TSAN,
        "tests/libhook/hooks/test_guest.py::test_a_process_without_cuda_is_left_alone[bash]",
        "bash has a malloc of its own, and ends by SIGSEGV where the sanitizer's runtime alone is preloaded",
    ),
    (BOTH, "tests/libhook/hooks/test_entry.py::test_other_names_keep_their_caller", MALLOC),
    (BOTH, "tests/libhook/hooks/test_entry.py::test_beside_another_dlsym_interposer_both_have_their_names", EARLY),
    (BOTH, "tests/libhook/processes/test_old_system.py::test_on_an_old_debian_it_loads_gates_and_counts", ROOT),
    (
        BOTH,
        "tests/libhook/processes/test_other_worlds.py::"
        "test_a_musl_program_is_told_clearly_that_the_library_is_not_for_it",
        "musl's loader also names what the sanitizer's runtime lacks",
    ),
    (
        ASAN,
        "tests/libhook/processes/test_processes.py::test_each_process_is_a_client_of_its_own_and_works[fork-threads-5]",
        FORK,
    ),
    (
        BOTH,
        "tests/libhook/processes/test_processes.py::"
        "test_in_a_pid_namespace_or_without_proc_it_works_and_its_end_is_seen[--mount]",
        PROC,
    ),
    (
        BOTH,
        "tests/libhook/processes/test_processes.py::test_in_a_chroot_by_ld_so_preload_with_no_environment_at_all",
        FIRST,
    ),
    (
        ASAN,
        "tests/libhook/processes/test_processes.py::test_a_setuid_program_takes_no_word_of_who_started_it",
        FIRST,
    ),
)


def reason_for(nodeid: str, runtime: str) -> str | None:
    """Why this test is left out in a process with that runtime; None: it is not."""
    for sanitizers, name, reason in LEFT_OUT:
        under = any(Path(runtime).name.startswith(sanitizer) for sanitizer in sanitizers.split())
        if under and (nodeid == name or nodeid.startswith(name + "[")):
            return reason
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if reason := reason_for(item.nodeid, os.environ.get("GEMINI_SANITIZER", "")):
            item.add_marker(pytest.mark.skip(reason=f"left out under the sanitizer: {reason}"))
