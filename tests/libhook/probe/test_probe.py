"""gemini-probe on simulated cards: what it says is so, and a card made of its answers is that card again."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from libhook.build import LIB

PROBE = LIB / "gemini-probe"
SEEN = {
    "name": 'Card "X", of 2026',
    "driver": "12.8",
    "memory": "40GiB",
    "context": "96MiB",
    "slice": "700us",
    "switch": "90us",
    "host_bandwidth": "20GB",
    "device_bandwidth": "900GB",
    "copy_latency": "4us",
}
NS_AND_BYTES = {"slice": 0.1, "switch": 0.25, "host_bandwidth": 0.02, "device_bandwidth": 0.02, "copy_latency": 0.02}

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def probe() -> Iterator[Run]:
    name = f"probe-{uuid.uuid4().hex[:10]}"

    def run(spec: str, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
        number = len(list(Path("/dev/shm").glob(f"gemini-sim-*{name}*")))
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("GEMINI_", "LD_"))}
        environment |= {"GEMINI_SIM": f"{spec},id={name}-{number}", "LD_LIBRARY_PATH": str(LIB / "sim"), **env}
        command = [str(word) for word in (PROBE, *words)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)

    yield run
    for path in Path("/dev/shm").glob(f"gemini-sim-*{name}*"):
        path.unlink(missing_ok=True)


def amount(text: str) -> float:
    return float(text.rstrip("nsB"))


@pytest.mark.flaky(reruns=2)
def test_a_card_made_of_the_answers_gives_the_same_answers(probe: Run, tmp_path: Path) -> None:
    spec = ",".join(f"{key}={value}" for key, value in SEEN.items())
    profiles: list[dict[str, str]] = []
    for turn, given in enumerate((spec, f"profile={tmp_path}/0.json")):
        done = probe(given, tmp_path / f"{turn}.json")
        assert done.returncode == 0, (done.stderr, (tmp_path / f"{turn}.json").read_text())
        profiles.append(json.loads((tmp_path / f"{turn}.json").read_text())["profile"])
    first, second = profiles
    assert set(first) >= set(SEEN)
    assert set(second) == set(first)
    for key in ("name", "driver", "memory", "context"):
        assert first[key] == second[key], key
    assert (first["name"], first["driver"], first["memory"]) == (SEEN["name"], "12.8", f"{40 << 30}B")
    assert first["context"] == f"{96 << 20}B"
    true = {"slice": 700e3, "switch": 90e3, "host_bandwidth": 20e9, "device_bandwidth": 900e9, "copy_latency": 4e3}
    for key, part in NS_AND_BYTES.items():
        assert amount(first[key]) == pytest.approx(true[key], rel=part), key
        assert amount(second[key]) == pytest.approx(amount(first[key]), rel=2 * part), key


def test_the_harmless_probes_answer_within_seconds_and_name_what_they_saw(probe: Run, tmp_path: Path) -> None:
    done = probe("memory=8GiB", "--harmless", tmp_path / "seen.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    seen: dict[str, Any] = json.loads((tmp_path / "seen.json").read_text())
    assert set(seen["probes"]) == {"card", "memory", "refusals", "no-context", "captures", "costs", "loading"}
    assert set(seen["probes"].values()) == {"ok"}
    answers = seen["answers"]
    assert answers["memory_bytes"] == 8 << 30
    assert (answers["capture_end_relaxed"], answers["capture_query_global"]) == (0, 900)
    assert answers["capture_end_global"] == 901
    assert answers["nvml_lists_our_pid"] == 1
    assert 0 < answers["launch_ns"] < 1e6
    assert "slice_ns" not in answers


def test_what_beside_the_file_is_named_stays(probe: Run, tmp_path: Path) -> None:
    card = tmp_path / "card.json"
    card.write_text(
        json.dumps({"answers": {}, "profile": {"name": "Of the file", "memory": "8GiB", "unheard_of": "1"}})
    )
    done = probe(f"memory=4GiB,profile={card}", "--only", "card")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["profile"] == {"name": "Of the file", "driver": "13.0", "memory": f"{4 << 30}B"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("{}", "has no profile in it"),
        ('{"profile": {"memory": 8}}', "has no profile in it"),
        ('{"profile": {"memory": "many"}}', "'many' is no value for memory"),
        ('{"profile": {"memory": "8GiB"', "has no profile in it"),
    ],
)
def test_a_file_that_is_no_profile_is_said(probe: Run, tmp_path: Path, text: str | None, said: str) -> None:
    card = tmp_path / "card.json"
    if text is not None:
        card.write_text(text)
    done = probe(f"profile={card}", "--only", "card")
    assert done.returncode == 1
    assert said in done.stderr


def test_a_probe_that_cannot_go_on_costs_its_own_answers_alone(probe: Run) -> None:
    """Less memory than the copies need."""
    done = probe("memory=64MiB", "--only", "copies", "--only", "card")
    assert done.returncode == 1
    seen = json.loads(done.stdout)
    assert seen["probes"]["card"] == "ok"
    assert seen["probes"]["copies"].endswith("answered 2")
    assert "memory_bytes" in seen["answers"]


def test_without_a_driver_every_probe_says_so(probe: Run) -> None:
    done = probe("gpus=1", "--harmless", LD_LIBRARY_PATH="/nowhere")
    seen = json.loads(done.stdout)
    assert done.returncode == 1
    assert seen["answers"] == seen["profile"] == {}
    assert all("libcuda.so.1" in how for how in seen["probes"].values())


def test_the_results_are_there_after_each_probe(probe: Run, tmp_path: Path) -> None:
    """Whoever is killed leaves a whole file: each is written beside and takes the other's place."""
    target = tmp_path / "seen.json"
    done = probe("gpus=1", "--only", "card", target)
    assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seen.json"]
    assert probe("gpus=1", "--only", "card", tmp_path / "no" / "folder.json").returncode == 1
