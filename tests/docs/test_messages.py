"""docs/messages.md has all messages that people meet, and each says what to do in words that are known outside."""

from __future__ import annotations

import ast
import re

import pytest

from scheduler_backend.config import DAEMON, POLICY
from tests.docs.messages import (
    PAGE,
    RAISED,
    ROOT,
    Message,
    collected,
    events,
    library_lines,
    passed_on,
    renewed,
)  # fmt: skip

MESSAGES = [message for message in collected() if not passed_on(message)]
MENDS = re.compile(r"; \S|: (give|any|--)|\b(see|write|use) \S")
READY = re.compile(r"listens on|serves|has written")  # of a part that has started
# Names with an underscore that are known outside: options, and what the control API takes.
PUBLIC = {*DAEMON, *POLICY, "memory_bytes", "x86_64", "get_context"}
NAME = re.compile(r"[A-Za-z]\w*_\w+|\b_\w+")
LOGGED = events("scheduler_backend") | {
    event: where for event, where in events("gemini").items() if where[0].startswith("gemini/cdi.py")
}


def ids(message: Message) -> str:
    return f"{message.path}:{message.line}"


def test_the_page_has_all_messages_and_no_other() -> None:
    text = PAGE.read_text()
    assert text == renewed(text), "python -m tests.docs.messages writes it anew"


def test_no_class_of_messages_is_left_out() -> None:
    """Whatever is a kind of Problem, or of a mistaken value, is collected."""
    known = set(RAISED)
    for path in sorted([*(ROOT / "gemini").rglob("*.py"), *(ROOT / "scheduler_backend").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & known:
                assert node.name in known, f"{path}:{node.lineno}"


@pytest.mark.parametrize("message", MESSAGES, ids=ids)
def test_a_message_says_what_to_do(message: Message) -> None:
    assert MENDS.search(message.text) or READY.search(message.text), message.text


@pytest.mark.parametrize("message", MESSAGES, ids=ids)
def test_a_message_has_no_private_name_and_no_number_without_its_unit(message: Message) -> None:
    assert message.faults == ()
    private = [name for name in NAME.findall(message.text) if name not in PUBLIC and not name.isupper()]
    assert not private, message.text


def test_each_event_of_the_daemons_log_has_its_row() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| .+ \| .+ \|$", PAGE.read_text(), re.M)
    assert rows == sorted(LOGGED)


def test_no_event_shows_an_object_or_bytes_without_a_unit() -> None:
    for where, template in events("scheduler_backend", "gemini").values():
        assert "%r" not in template, where
        assert "_bytes=" not in template, where


def test_what_the_library_says_tells_what_to_do() -> None:
    lines = library_lines()
    assert len(lines) > 8
    for line in lines:
        assert MENDS.search(line) or line.endswith(": …"), line  # or the daemon's own words
