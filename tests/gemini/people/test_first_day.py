"""The eleven things that went wrong on the first day, by what a person types: nothing of Gemini's is imported here, so
that each test can be run against any commit's command (FIRST_DAY_GEMINI: its `gemini`; FIRST_DAY_TREE: its pages)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("FIRST_DAY_TREE") or Path(__file__).resolve().parents[3])
GEMINI = [os.environ["FIRST_DAY_GEMINI"]] if "FIRST_DAY_GEMINI" in os.environ else [sys.executable, "-m", "gemini"]
LOAD = [*GEMINI, "load", "--seconds"]
Answer = subprocess.CompletedProcess[str]


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


class Person:
    """Types commands on a machine of so many simulated cards, with a state directory for each session."""

    def __init__(self, cards: int = 1) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="fd-"))
        self.sim = f"gpus={cards},memory=8GiB,id=day-{uuid.uuid4().hex[:8]}"
        self.started: list[subprocess.Popen[str]] = []
        self.sessions: set[str] = set()

    def words(self, command: str, *words: str, session: str = "s") -> list[str]:
        self.sessions.add(session)
        return [*GEMINI, command, "--state-dir", str(self.dir / session), f"--sim={self.sim}", *words]

    def types(self, command: str, *words: str, session: str = "s", **more: str) -> Answer:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GEMINI_")} | more
        return subprocess.run(self.words(command, *words, session=session), env=environment, cwd=self.dir,
                              capture_output=True, text=True, timeout=60, check=False)  # fmt: skip

    def starts(self, command: str, *words: str, session: str = "s", **more: str) -> subprocess.Popen[str]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GEMINI_")} | more
        process = subprocess.Popen(self.words(command, *words, session=session), env=environment, cwd=self.dir,
                                   text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True)  # fmt: skip
        self.started.append(process)
        return process

    def daemon(self, session: str = "s") -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return int((self.dir / session / "daemon.lock").read_text())
        return None

    def tenants(self, session: str = "s") -> dict[str, dict[str, object]]:
        said = self.types("ps", "--json", session=session)
        return {one["name"]: one for one in json.loads(said.stdout)["tenants"]} if said.returncode == 0 else {}

    def close(self) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for session in self.sessions:
            if (pid := self.daemon(session)) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        for path in Path("/dev/shm").glob(f"gemini-sim-*{self.sim.rpartition('=')[2]}*"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture
def person() -> Iterator[Person]:
    here = Person()
    yield here
    here.close()


@pytest.fixture
def two_cards() -> Iterator[Person]:
    here = Person(cards=2)
    yield here
    here.close()


def test_1_a_card_is_not_promised_twice_by_a_session_without_its_own_folder(person: Person) -> None:
    person.starts("run", "--request", "0.8", "--name", "a", "--", *LOAD, "0")
    until(lambda: "a" in person.tenants())
    second = person.types("run", "--request", "0.8", "--name", "b", "--", *LOAD, "0.1", session="cron")
    assert second.returncode == 125, second.stdout
    assert len(second.stderr.splitlines()) == 1


def test_2_a_service_for_several_users_can_be_installed(person: Person) -> None:
    made = subprocess.run([*GEMINI, "install-service", "--print"], cwd="/", capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert "ExecStart=" in made.stdout


def test_3_a_hang_up_that_is_ignored_stays_ignored(person: Person) -> None:
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *person.words("run", "--name", "a", "--", *LOAD, "2")],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        cwd=person.dir,
    )  # fmt: skip
    person.started.append(process)
    until(lambda: "a" in person.tenants())
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) == 0


def test_4_programs_whose_daemon_was_killed_go_on(person: Person) -> None:
    running = person.starts("run", "--request", "0.5", "--name", "a", "--", *LOAD, "3")
    until(lambda: "a" in person.tenants() and person.daemon())
    os.kill(int(str(person.daemon())), signal.SIGKILL)
    _, said = running.communicate(timeout=20)
    assert running.returncode == 0
    assert "the daemon was killed" in said


def test_5_what_a_launcher_leaves_in_the_background_keeps_its_tenant(person: Person) -> None:
    load = " ".join(LOAD)
    out = person.dir / "out"
    launched = person.types(
        "run", "--name", "a", "--request", "0.5", "--", "sh", "-c", f"({load} 3 > {out} 2>&1 < /dev/null) &"
    )
    assert launched.returncode == 0
    until(lambda: "launches" in out.read_text() if out.exists() else False, 20)


def test_6_a_second_program_goes_to_the_card_that_has_room(two_cards: Person) -> None:
    two_cards.starts("run", "--request", "0.7", "--name", "a", "--", *LOAD, "0")
    until(lambda: "a" in two_cards.tenants())
    second = two_cards.types("run", "--request", "0.7", "--name", "b", "--", *LOAD, "0.2")
    assert second.returncode == 0, second.stderr


def test_7_no_package_is_pinned_to_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [one for one in project["dependencies"] if "==" in one]


def test_8_a_program_without_a_request_gets_a_part_of_what_is_free(person: Person) -> None:
    for name, request in (("a", "0.1"), ("b", "0.2"), ("effort", "0")):
        person.starts("run", "--request", request, "--name", name, "--", *LOAD, "0")

    def held() -> dict[str, int]:
        return {name: int(str(one["held_ns"])) for name, one in person.tenants().items()}

    until(lambda: len(held()) == 3 and all(value for name, value in held().items() if name != "effort"))
    before = held()
    time.sleep(3)
    got = {name: value - before[name] for name, value in held().items()}
    assert got["effort"] / sum(got.values()) > 0.05, got  # 0.143 is due; bench.best_effort measures it


def test_9_memory_whose_unit_was_forgotten_is_refused(person: Person) -> None:
    refused = person.types("run", "--memory", "8", "--", "true")
    assert refused.returncode == 125
    assert "write a unit" in refused.stderr


def test_10_no_page_installs_the_package_from_an_index_that_has_none() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", *(ROOT / "gemini").rglob("*.py")]
    assert [str(page) for page in pages if re.search(r"pip install '?gemini-gpu", page.read_text())] == []


def test_11_sizes_and_cards_are_read_as_they_are_typed(two_cards: Person) -> None:
    for words in (["--memory", "1g"], ["--gpu", "0,1"], ["--gpu", "all"], ["--gpu", "any"], ["--gpus", "2"]):
        said = two_cards.types("run", *words, "--", "true")
        assert said.returncode == 0, (words, said.stderr)


def test_11_memory_can_be_changed_and_a_tenant_joined_without_its_shares(person: Person) -> None:
    person.starts("run", "--request", "0.5", "--name", "a", "--", *LOAD, "0")
    until(lambda: "a" in person.tenants())
    changed = person.types("set", "a", "--memory", "2GiB")
    assert changed.returncode == 0, changed.stderr
    joined = person.types("run", "--name", "a", "--", *LOAD, "0.1")
    assert joined.returncode == 0, joined.stderr


def test_11_ps_fits_a_terminal_and_top_a_pipe(person: Person) -> None:
    person.starts("run", "--request", "0.5", "--limit", "0.75", "--memory", "1GiB", "--name", "a", "--", *LOAD, "0")
    until(lambda: "a" in person.tenants())
    for command, words in (("ps", ()), ("top", ("--count", "1"))):
        said = person.types(command, *words, COLUMNS="80")
        assert said.returncode == 0
        assert max(map(len, said.stdout.splitlines())) <= 80
        assert "\x1b" not in said.stdout


def test_11_who_is_alone_sees_its_launches(person: Person) -> None:
    person.starts("run", "--request", "0.5", "--name", "a", "--", *LOAD, "0")
    until(lambda: "a" in person.tenants())
    until(lambda: person.tenants()["a"]["launches"])


def test_11_limits_that_sum_to_more_memory_than_the_card_has_are_said(person: Person) -> None:
    person.starts("run", "--memory", "6GiB", "--name", "a", "--", *LOAD, "0")
    until(lambda: "a" in person.tenants())
    second = person.types("run", "--memory", "6GiB", "--name", "b", "--", "true")
    assert second.returncode == 0
    assert "12 GiB" in second.stderr
    assert "8 GiB" in second.stderr


def test_11_advise_asks_for_no_whole_card_and_an_export_calls_an_end_no_death(person: Person) -> None:
    ran = person.types("run", "--request", "0.3", "--name", "a", "--", *LOAD, "7")
    assert ran.returncode == 0, ran.stderr
    trace = person.dir / "s" / "trace.jsonl"
    until(trace.exists)
    advice = person.types("advise", "a")
    assert advice.returncode == 0, advice.stderr
    assert "request" in advice.stdout
    assert not re.search(r"--request\s+(1|100\s?%)\s", advice.stdout), advice.stdout
    out = person.dir / "out.json"
    made = subprocess.run([*GEMINI, "trace", "export", str(trace), "--out", str(out)], check=False)
    assert made.returncode == 0
    assert not re.search(r"\b(died|dead|death)\b", out.read_text())


def test_11_times_in_the_log_have_their_zone(person: Person) -> None:
    served = person.starts("serve", "--log", "info")
    until(lambda: person.daemon() is not None and person.types("ps").returncode == 0)
    served.send_signal(signal.SIGTERM)
    _, said = served.communicate(timeout=30)
    stamps = [line.split()[0] for line in said.splitlines() if " INFO " in line]
    assert stamps
    assert all(re.search(r"[+-]\d\d:\d\d$", stamp) for stamp in stamps), said


def test_11_no_alert_sends_its_reader_to_what_a_wheel_has_not(person: Person) -> None:
    out = person.dir / "rules"
    made = subprocess.run([*GEMINI, "dashboards", "--out", str(out), "--docs", "https://docs.example.com"],
                          cwd="/", capture_output=True, text=True, check=False)  # fmt: skip
    assert made.returncode == 0, made.stderr
    rules = (out / "gemini.rules.yaml").read_text()
    assert "python -m bench" not in rules
    assert "runbook_url" in rules


def test_11_each_option_of_the_daemon_says_what_it_is() -> None:
    said = subprocess.run([*GEMINI, "serve", "--help"], cwd="/", capture_output=True, text=True, check=False).stdout
    assert len(re.findall(r"\bpolicy$", said, re.M)) == 0
    assert (ROOT / "docs/configuration.md").exists()
