"""The Python API, by programs that use it: who is within a share, who is told that he is not, and when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import gemini
from gemini.cli.control import ask
from gemini.cli.node import LOAD, SIM
from tests.gemini.cli.conftest import Place, until

# What each program has above it: `on` says where its daemon is, `take` allocates on the card as a program would.
HEAD = """
import ctypes, multiprocessing, os, subprocess, sys, time
import gemini

on = {"state_dir": os.environ["PLACE"], "sim": os.environ["MACHINE"]}


def take(mib):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    return cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(mib << 20))


def within(mib):
    mine = gemini.current()
    return mine and mine.name, take(mib)


def names():
    return [tenant.name for tenant in gemini.status(**on).tenants]
"""
OUT_OF_MEMORY = 2


@pytest.fixture
def place() -> Iterator[Place]:
    here = Place()
    yield here
    here.close()


class Program:
    """A program of a user's, in a file of its own."""

    def __init__(self, place: Place, text: str, **variables: str) -> None:
        self.path = place.dir / "program.py"
        self.path.write_text(HEAD + "\n\nif __name__ == '__main__':\n" + textwrap.indent(textwrap.dedent(text), "    "))
        libraries = {"LD_LIBRARY_PATH": str(SIM)}  # as the driver is found on a machine that has one
        self.environment = {
            **place.environment(), **libraries, "PLACE": str(place.node.state_dir), "MACHINE": place.sim, **variables,
        }  # fmt: skip

    def run(self) -> tuple[list[str], list[str]]:
        """What it prints and says."""
        done = subprocess.run(
            [sys.executable, str(self.path)], capture_output=True, text=True, env=self.environment, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(), done.stderr.splitlines()


def test_subprocess_is_within_by_its_environment_and_the_program_itself_is_not(place: Place) -> None:
    said, told = Program(
        place,
        """
        share = gemini.share(request=0.3, limit=0.5, memory="512MiB", name="a", **on)
        code = "import gemini; print(gemini.current().name, gemini.current().request, gemini.current().memory_limit)"
        subprocess.run([sys.executable, "-c", code], env=share.environment, check=True)
        print(gemini.current(), "GEMINI_SOCKET" in os.environ)
        [tenant] = gemini.status(**on).tenants
        [card] = gemini.status(**on).cards
        print(tenant.name, tenant.limit, tenant.latency, tenant.gpus, card.promised, card.simulated)
        share.close()
        print(names())
        """,
    ).run()
    assert said == [f"a 0.3 {512 << 20}", "None False", "a 0.5 False (0,) 0.3 True", "[]"]
    assert told == []


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_multiprocessing_and_futures_are_within_the_block_and_bound_to_its_memory(
    place: Place, method: str
) -> None:
    said, told = Program(
        place,
        f"""
        from concurrent.futures import ProcessPoolExecutor
        method = multiprocessing.get_context("{method}")
        with gemini.share(request=0.3, memory="512MiB", name="a", **on):
            with ProcessPoolExecutor(2, mp_context=method) as pool:
                print(list(pool.map(within, [1, 4096])))
            with method.Pool(1) as pool:
                print(pool.map(within, [1]))
        print(names(), [name for name in os.environ if name.startswith("GEMINI")], os.environ.get("LD_PRELOAD"))
        with gemini.share(request=1.0, name="b", **on), method.Pool(1) as pool:
            print(pool.map(within, [1]))
        """,
    ).run()
    assert said == [f"[('a', 0), ('a', {OUT_OF_MEMORY})]", "[('a', 0)]", "[] [] None", "[('b', 0)]"]
    assert told == [], "the second share had the whole card: the first had ended"


def test_workers_of_joblib_are_within_and_do_not_outlive_the_share(place: Place) -> None:
    pytest.importorskip("joblib")
    said, told = Program(
        place,
        """
        from joblib import Parallel, delayed
        for name in ("a", "b"):
            with gemini.share(request=0.9, memory="512MiB", name=name, **on):
                print(sorted(Parallel(n_jobs=2)(delayed(within)(mib) for mib in (1, 4096))))
        Parallel(n_jobs=2)(delayed(abs)(number) for number in range(4))
        with gemini.share(request=0.9, name="c", **on):
            pass
        """,
    ).run()
    assert said == [f"[('{name}', 0), ('{name}', {OUT_OF_MEMORY})]" for name in "ab"]
    assert [line for line in told if "OutsideShare" in line] == [line for line in told if "joblib's workers" in line]
    assert len([line for line in told if "OutsideShare" in line]) == 1


def test_who_comes_too_late_is_told(place: Place) -> None:
    said, told = Program(
        place,
        """
        method = multiprocessing.get_context("forkserver")
        with method.Pool(1) as pool:
            pool.map(abs, [1])
        take(1)
        with gemini.share(request=0.3, name="a", **on) as share:
            worker = multiprocessing.get_context("fork").Process(target=print, args=("forked",))
            worker.start()
            worker.join()
            try:
                share.restart()
            except gemini.Problem as problem:
                print(problem)
        """,
        GEMINI_SIM=place.sim,
    ).run()
    warned = [line.partition("OutsideShare: ")[2] for line in told if "OutsideShare" in line]
    assert len(warned) == 3, told
    assert warned[0].startswith("this process has loaded the driver already, so what it does itself")
    assert warned[1].startswith("multiprocessing's fork server runs already, outside of the share a; enter the share")
    assert warned[2].startswith("this process was forked, and so is outside of the share a; use multiproc")
    assert said[0] == "forked"
    assert "it is too late to begin anew in the share a" in said[1]


def test_a_program_begins_anew_within_its_share(place: Place) -> None:
    said, told = Program(
        place,
        """
        print("from the beginning", flush=True)
        gemini.share(request=0.3, memory="512MiB", **on).restart()
        print(gemini.current().name.startswith("program.py-"), within(4096)[1])
        gemini.set_share(request=0.2)
        print(gemini.current().request, gemini.current().pids == (os.getpid(),))
        """,
    ).run()
    assert said == ["from the beginning"] * 2 + [f"True {OUT_OF_MEMORY}", "0.2 True"]
    assert told == []
    until(lambda: ask(place.node, "GET", "/state")["tenants"] == [])


def test_what_was_left_running_keeps_the_share_until_it_ends(place: Place) -> None:
    said, _ = Program(
        place,
        f"""
        with gemini.share(request=0.3, name="a", **on):
            load = subprocess.Popen(["{LOAD}", "--seconds", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        print(load.pid)
        """,
    ).run()
    [tenant] = place.state()["tenants"]
    assert tenant["name"] == "a"
    before = tenant["held_ns"]
    until(lambda: place.state()["tenants"][0]["held_ns"] > before + 50_000_000)
    os.kill(int(said[0]), signal.SIGTERM)
    until(lambda: place.state()["tenants"] == [])


def test_a_daemon_that_is_killed_under_a_share_comes_back(place: Place) -> None:
    said, told = Program(
        place,
        f"""
        import signal
        from gemini.cli.node import Node
        from gemini.cli.starting import holder
        with gemini.share(request=0.3, name="a", **on) as share:
            load = subprocess.Popen(["{LOAD}", "--seconds", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while not gemini.status(**on).tenants[0].pids:
                time.sleep(0.01)
            for _ in range(3):
                before = holder(share._node)
                os.kill(before, signal.SIGKILL)
                while True:
                    try:
                        if holder(share._node) != before and gemini.status(**on).tenants[0].achieved > 0:
                            break
                    except gemini.Problem:
                        pass
                    time.sleep(0.01)
            load.terminate()
            load.wait()
        while names():
            time.sleep(0.01)
        print("over")
        """,
    ).run()
    assert said == ["over"]
    assert len(told) == 1, told
    assert told[0].startswith("the daemon was killed; it was started again")


def test_shares_are_changed_by_name_and_a_name_is_shared_by_programs(place: Place) -> None:
    with gemini.share(request=0.3, name="a", state_dir=place.node.state_dir, sim=place.sim) as share:
        gemini.set_share("a", limit=0.6, memory="1GiB", latency=True, state_dir=place.node.state_dir)
        [tenant] = gemini.status(state_dir=place.node.state_dir).tenants
        assert (tenant.request, tenant.limit, tenant.memory_limit, tenant.latency) == (0.3, 0.6, 1 << 30, True)
        joined = subprocess.run(
            place.words("run", "--name", "a", "--", "sh", "-c", "echo $GEMINI_SOCKET"), env=place.environment(),
            capture_output=True, text=True,
        )  # fmt: skip
        assert joined.stdout.strip() == share.variables["GEMINI_SOCKET"], joined.stderr
        with pytest.raises(gemini.Problem, match="this process has a share a already"):
            gemini.share(name="a", state_dir=place.node.state_dir, sim=place.sim)
    with pytest.raises(gemini.Problem, match="the share a has ended; make a new one"), share:
        pass


def test_best_effort_is_told_what_it_gets(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    where = {"state_dir": place.node.state_dir, "sim": place.sim}
    with gemini.share(request=0.3, name="a", **where), gemini.share(name="b", **where):
        assert [record.getMessage() for record in caplog.records] == [
            "b has no --request: it gets 14.3 % of the GPU while all others are busy"
        ]


def test_what_no_share_can_be_is_said_in_one_line(place: Place, tmp_path: Path) -> None:
    where = {"state_dir": place.node.state_dir, "sim": place.sim}
    with pytest.raises(ValueError, match=r"request '1\.5' is outside 0\.\.1"):
        gemini.share(request=1.5, **where)
    with pytest.raises(ValueError, match="memory '8' is 8 bytes, less than any program needs"):
        gemini.share(memory=8, **where)
    with pytest.raises(ValueError, match="nothing to change"):
        gemini.set_share("a", **where)
    with pytest.raises(gemini.Problem, match="no daemon answers at"):
        gemini.status(**where)
    with pytest.raises(gemini.Problem, match="this process is in no share"):
        gemini.set_share(request=0.1)
    with gemini.share(request=0.8, **where), pytest.raises(gemini.Problem, match="does not fit on the GPU"):
        gemini.share(request=0.3, **where)
    assert gemini.current() is None
