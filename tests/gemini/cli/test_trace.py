"""gemini trace end to end: what a demo recorded exports, replays, and differs where a constant was changed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.gemini import chrome_schema
from tests.gemini.cli.conftest import Place


def test_the_trace_of_a_demo_exports_and_replays(place: Place) -> None:
    assert place.gemini("demo", "--seconds", "1", "--no-baseline", "--plot", "").returncode == 0
    recorded = place.node.state_dir / "trace.jsonl"
    out = place.dir / "chrome.json"
    done = place.gemini("trace", "export", str(recorded), "--out", str(out))
    assert done.returncode == 0, done.stderr
    document = json.loads(out.read_text())
    assert chrome_schema.check(document) > 50
    assert {event["name"] for event in document["traceEvents"]} >= {"token", "waiting", "thread_name"}
    picture = place.dir / "line.png"
    plotted = place.gemini("trace", "plot", str(recorded), "--out", str(picture), "--seconds", "0.4")
    assert (plotted.returncode, plotted.stdout) == (0, f"{picture}: 0.400 s of 3 tenants\n"), plotted.stderr
    assert picture.read_bytes()[:4] == b"\x89PNG"
    for words, said in ((["--from", "999"], "begin within them"), (["--seconds", "0"], "--seconds 0")):
        refused = place.gemini("trace", "plot", str(recorded), "--out", str(picture), *words)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
        assert said in refused.stderr
    same = place.gemini("trace", "replay", str(recorded))
    assert same.returncode == 0, same.stdout
    changed = place.gemini("trace", "replay", str(recorded), "--set", "quota_ms=7")
    assert changed.returncode == 1
    assert "recorded" in changed.stdout
    unknown = place.gemini("trace", "replay", str(recorded), "--set", "nonsense=7")
    assert unknown.returncode == 1
    assert len(unknown.stderr.splitlines()) == 1


def test_bad_traces_are_one_line(place: Place, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no trace\n")
    for words in (["replay", str(tmp_path / "x")], ["replay", str(tmp_path / "none")], ["export", str(tmp_path / "x")],
                  ["plot", str(tmp_path / "x"), "--out", str(tmp_path / "y.png")]):  # fmt: skip
        done = place.gemini("trace", *words)
        assert done.returncode in (1, 2)
        assert len(done.stderr.splitlines()) == 1
