"""One record of the log is one line, and its values are what they were."""

from __future__ import annotations

import json
import logging
import re
import time
from datetime import datetime
from typing import Any

import pytest

from scheduler_backend import logs
from scheduler_backend.logs import Formatter, JsonFormatter, Sparse
from scheduler_backend.problem import Problem
from tests.scheduler_backend.rig import Rig, lib, wait_for

PAIR = re.compile(r'([\w-]+)=("(?:[^"\\]|\\.)*"|\S*)(?: |$)')


def line(template: str, *values: Any, **more: Any) -> str:
    record = logging.LogRecord("gemini.x", logging.INFO, "x.py", 1, template, values, more.get("exc_info"))
    return Formatter("%(levelname)s %(message)s").format(record)


def read(text: str) -> dict[str, str]:
    return {key: json.loads(value) if value.startswith('"') else value for key, value in PAIR.findall(text)}


def test_a_plain_value_stands_as_it_is() -> None:
    assert line("hello tenant=%s client=%d late_ms=%.1f", "a", 7, 1.25) == "INFO hello tenant=a client=7 late_ms=1.2"
    assert line("idle-exit") == "INFO idle-exit"
    assert line("bind pod=%s/%s path=%s", "ns", "p", "/a=b\\c") == "INFO bind pod=ns/p path=/a=b\\c"


@pytest.mark.parametrize(
    "value",
    [
        "",
        "two words",
        'a"b',
        "x\nINFO forged tenant=b",
        "\t",
        "a\x1b[2Jb",
        "a\u2028b",
        "a\x85b",
        "\ud800",
        'a" tenant="b',
    ],
)
def test_any_value_is_one_on_one_line_and_comes_back(value: str) -> None:
    text = line("hello program=%s pid=%d", value, 7)
    assert text.isprintable()
    assert read(text) == {"program": value, "pid": "7"}


def test_values_among_words_end_no_line_and_look_like_no_key() -> None:
    assert line("path=%s refused: %s", "/m", "no such\nthing") == "INFO path=/m refused: no such\\nthing"
    assert read(line("path=%s refused: %s", "/m", "x tenant=b"))["path"] == "/m"
    assert "tenant" not in read(line("refused: %s", "x tenant=b").replace('"x tenant=b"', ""))
    assert line("100%% of %s", "it") == "INFO 100% of it"
    assert line("a\nb") == "INFO a\\nb"


def test_a_traceback_is_a_value() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        text = line("verb=%s failed", "bind", exc_info=(ValueError, error, error.__traceback__))
    assert text.isprintable()
    assert read(text)["traceback"].endswith("ValueError: two\nlines")


def test_a_time_has_its_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        record = logging.LogRecord("gemini.x", logging.INFO, "x.py", 1, "idle-exit", (), None)
        record.created = 1_700_000_000.25
        said = Formatter("%(asctime)s %(message)s").format(record)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert said == "2023-11-15T03:43:20.250+05:30 idle-exit"
    assert datetime.fromisoformat(said.split()[0]).timestamp() == 1_700_000_000.25


def test_a_record_may_be_a_json_object_whose_values_are_what_they_were() -> None:
    values = ('a" tenant="b', "x\nERROR forged", 7)
    record = logging.LogRecord("gemini.x", logging.WARNING, "x.py", 1, "hello program=%s %s level=%d", values, None)
    text = JsonFormatter().format(record)
    assert len(text.splitlines()) == 1
    found = json.loads(text)
    assert datetime.fromisoformat(found.pop("time")).tzinfo is not None
    assert found == {"level": "warning", "logger": "gemini.x", "event": "hello x\nERROR forged",
                     "program": 'a" tenant="b', "level_": "7"}  # fmt: skip


def test_all_parts_log_json_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = logging.getLogger().handlers[:]
    try:
        monkeypatch.setenv("GEMINI_LOG_FORMAT", "json")
        logs.start(logging.INFO, force=True)
        logging.getLogger("gemini.x").info("bind pod=%s", "p")
        assert json.loads(capsys.readouterr().err)["pod"] == "p"
        monkeypatch.setenv("GEMINI_LOG_FORMAT", "xml")
        with pytest.raises(Problem, match="GEMINI_LOG_FORMAT 'xml' is unknown; there are line, json"):
            logs.start(logging.INFO, force=True)
    finally:
        logging.getLogger().handlers[:] = before


def test_values_that_do_not_fit_the_template_are_a_fault_that_logging_tells() -> None:
    for template, values in (("a=%s", ("b", "c")), ("a=%d", ("b",)), ("a=%s b=%s", ("c",))):
        with pytest.raises((TypeError, ValueError)):
            line(template, *values)


def test_a_programs_name_cannot_forge_a_record() -> None:
    name = b"a\nERROR forged x=1"
    with Rig() as rig:
        rig.tenant("a")
        client = rig.client("a", hello=False)
        client.hello(program=name)
        client.expect(lib.WIRE_WELCOME)
        wait_for(lambda: "hello tenant=a" in rig.log(), what="word of it")
        (said,) = (text for text in rig.log().splitlines() if "hello tenant=a" in text)
        assert read(said)["program"] == name.decode()
        assert not any(text.startswith("ERROR") for text in rig.log().splitlines())


def test_what_a_stranger_may_cause_without_end_is_logged_sparsely() -> None:
    sparse, record = Sparse(0.001, 3), logging.LogRecord("x", logging.ERROR, "x.py", 1, "bad", (), None)
    assert [sparse.filter(record) for _ in range(100)] == [True] * 3 + [False] * 97
