"""NVIDIA's own tests of its clients, run on the simulated driver without and with the library, and compared.

    python -m tests.clients.suite [--part] [--record] [SUITE...]

runs each suite both ways, prints where the outcomes differ from one another or from the recorded ones, and exits with 1
if they do. `--record` writes `suites/SUITE.txt` anew (from the run without the library). `--part` is what CI runs: the
files that are quick, chosen in SUITES.

Nothing is computed on the simulated card, so tests that look at a kernel's results fail both ways; what is held is that
the library changes nothing: not which tests pass, and not which fail.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.bed import Bed

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "suites"
SIM = "gpus=2,memory=8GiB"
Outcomes = dict[str, str]


@dataclass(frozen=True)
class Suite:
    """A client's tests: `needs` is the module that must be there, `part` the files CI runs, `kind` how they are run."""

    needs: str
    folder: str  # inside of the package `needs`
    files: Callable[[Path], list[str]]
    part: tuple[str, ...]
    run: Callable[[Path, list[str], Mapping[str, str]], Outcomes]


def folder_of(suite: Suite) -> Path | None:
    """Where the client's tests lie; None where the client is not installed or has none."""
    found = importlib.util.find_spec(suite.needs)
    for place in (found.submodule_search_locations or []) if found else []:
        if (Path(place) / suite.folder).is_dir():
            return Path(place) / suite.folder
    return None


def run_pytest(*options: str) -> Callable[[Path, list[str], Mapping[str, str]], Outcomes]:
    def run(folder: Path, files: list[str], environment: Mapping[str, str]) -> Outcomes:
        with tempfile.TemporaryDirectory(prefix="gemini-suite-") as scratch:
            report = Path(scratch) / "report.xml"
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib"]
            # Their environment may lie inside of this tree, whose options are not theirs.
            command += [
                "-o",
                "addopts=",
                "-p",
                "no:rerunfailures",
                f"--rootdir={folder}",
                f"--junit-xml={report}",
                *options,
            ]
            command += ["--timeout=120", *(str(folder / file) for file in files)]
            ran = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, timeout=600)
            if not report.exists():
                raise RuntimeError(f"no report: {(ran.stdout + ran.stderr)[-3000:]}")
            outcomes = {}
            for case in xml.etree.ElementTree.parse(report).iter("testcase"):
                kinds = {child.tag for child in case}
                outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
                outcomes[f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"] = outcome
            return outcomes

    return run


def run_unittest(package: str) -> Callable[[Path, list[str], Mapping[str, str]], Outcomes]:
    def run(folder: Path, files: list[str], environment: Mapping[str, str]) -> Outcomes:
        names = [f"{package}.tests.{file.removesuffix('.py').replace('/', '.')}" for file in files]
        with tempfile.TemporaryDirectory(prefix="gemini-suite-") as scratch:
            out = Path(scratch) / "outcomes"
            command = [sys.executable, "-P", str(HERE / "unittest_program.py"), str(out), "180", package, *names]
            log = Path(scratch) / "log"
            with log.open("wb") as to:
                subprocess.run(command, cwd=scratch, env=environment, stdout=to, stderr=to, timeout=5400, check=False)
            if not out.exists():
                raise RuntimeError(f"nothing ran: {log.read_text()[-3000:]}")
            lines = [json.loads(line) for line in out.read_text().splitlines()]
            return {name.removeprefix(f"{package}.tests."): outcome for name, outcome in lines}

    return run


def tests_below(*parts: str) -> Callable[[Path], list[str]]:
    return lambda folder: [
        str(path.relative_to(folder)) for part in parts for path in sorted((folder / part).glob("test_*.py"))
    ]


def these(*files: str) -> Callable[[Path], list[str]]:
    return lambda folder: list(files)


DRIVER = ("test_cuda.py", "test_kernelParams.py", "test_nvrtc.py")
OVER_DRIVER = ("test_cuda.py", "test_cudart.py", "test_interoperability.py", "test_cython.py")
QUICK = (
    "cudadrv/test_context_stack.py",
    "cudadrv/test_cuda_auto_context.py",
    "cudadrv/test_cuda_driver.py",
    "cudadrv/test_cuda_memory.py",
    "cudadrv/test_deallocations.py",
    "cudadrv/test_emm_plugins.py",
    "cudadrv/test_events.py",
    "cudadrv/test_host_alloc.py",
    "cudadrv/test_pinned.py",
    "cudadrv/test_profiler.py",
    "cudadrv/test_reset_device.py",
    "cudadrv/test_select_device.py",
    "cudadrv/test_streams.py",
    "cudapy/test_multigpu.py",
)
SUITES = {
    # The last wheel of NVIDIA's with its tests inside; its runtime API is written in Python over the driver.
    "cuda-python": Suite("cuda", "tests", these(*OVER_DRIVER), OVER_DRIVER, run_pytest()),
    "cuda-bindings": Suite("cuda", "tests", these(*DRIVER), DRIVER, run_pytest("-p", "tests.clients.newer_bindings")),
    "numba-cuda": Suite(
        "numba_cuda",
        "numba/cuda/tests",
        tests_below("core", "cudadrv", "cudapy", "cudasim", "doc_examples", "nocuda", "nrt"),
        QUICK,
        run_unittest("numba.cuda"),
    ),
}


def environment_of(bed: Bed, hooked: bool) -> dict[str, str]:
    environment = bed.environment("client", hooked)
    environment["PYTHONPATH"] = str(HERE.parents[1])
    return environment


def outcomes_both_ways(suite: Suite, part: bool) -> tuple[Outcomes, Outcomes]:
    """What the suite's tests ended with (without the library, with it), each on a machine of its own, at once."""
    folder = folder_of(suite)
    assert folder is not None
    files = list(suite.part) if part else suite.files(folder)
    results: dict[bool, Outcomes] = {}
    errors: list[BaseException] = []

    def one(hooked: bool) -> None:
        try:
            with Bed(sim=SIM, tokens=hooked) as bed:
                if hooked:
                    bed.tenant("client", 1.0, 1.0)
                results[hooked] = suite.run(folder, files, environment_of(bed, hooked))
                bed.end()  # the trace is whole then
                if hooked and "ClientJoined" not in bed.trace.read_text():
                    raise RuntimeError("nobody came to the daemon: the library was not in front of the driver")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(hooked,)) for hooked in (False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results[False], results[True]


def recorded(name: str) -> Outcomes:
    lines = [line.split(maxsplit=1) for line in (RECORDS / f"{name}.txt").read_text().splitlines()]
    return {test: outcome for outcome, test in lines}


def differences(one: Outcomes, other: Outcomes, names: tuple[str, str]) -> list[str]:
    return [
        f"{test}: {one.get(test, 'not run')} {names[0]}, {other.get(test, 'not run')} {names[1]}"
        for test in sorted(one.keys() | other.keys())
        if one.get(test) != other.get(test)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.suite", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"some of {', '.join(SUITES)}; all by default")
    parser.add_argument("--part", action="store_true", help="the quick files only, as CI does")
    parser.add_argument("--record", action="store_true", help="write the outcomes without the library as the record")
    asked = parser.parse_args()
    if unknown := set(asked.suites) - set(SUITES):
        parser.error(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    wrong = 0
    for name in asked.suites or SUITES:
        if folder_of(SUITES[name]) is None:
            print(f"{name}: not installed; make .venv/.stamp-clients installs it", file=sys.stderr)
            wrong += 1
            continue
        bare, guest = outcomes_both_ways(SUITES[name], asked.part)
        counts = {kind: list(bare.values()).count(kind) for kind in sorted(set(bare.values()))}
        print(f"{name}: {len(bare)} tests without the library: {counts}")
        found = differences(bare, guest, ("without the library", "with it"))
        if asked.record:
            text = "".join(f"{outcome} {test}\n" for test, outcome in sorted(bare.items()))
            (RECORDS / f"{name}.txt").write_text(text)
        else:
            known = recorded(name)
            known = {test: known[test] for test in known if not asked.part or test in bare}
            found += differences(known, bare, ("recorded", "now"))
        for line in found:
            print(f"  {line}")
        wrong += len(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(main())
