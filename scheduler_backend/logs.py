"""The form of a record in a log: one line, of words and `key=value`.

What is logged comes from anywhere: a program's name is its own bytes, an error's text is another library's. So a value
that has blanks or quotes, or what cannot be printed, stands as a JSON string, and so does a traceback: nobody's value
ends a record or looks like another key. With GEMINI_LOG_FORMAT=json the same record is one JSON object.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from datetime import datetime

from scheduler_backend.allowance import Allowance
from scheduler_backend.problem import Problem

FORMAT = "GEMINI_LOG_FORMAT"
FORMATS = ("line", "json")
_VERB = re.compile(r"%(?:%|[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")
_PLAIN = re.compile(r'[^\s"]+')


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _value(text: str) -> str:
    """As it stands behind a key."""
    return text if _PLAIN.fullmatch(text) and text.isprintable() else _quoted(text)


def printable(text: str) -> str:
    """As it stands among words: what would move the cursor, end the line or turn it round is written as \\u001b."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _quoted(c)[1:-1] for c in text)


def parts(template: str, values: tuple[object, ...]) -> list[tuple[str, str, bool]]:
    """The words of a template with their values: key (empty: none), text, and whether that is or has a value. Raises
    TypeError, ValueError where they do not fit."""
    found, rest = [], list(values)
    for word in template.split(" "):
        count = sum(verb != "%%" for verb in _VERB.findall(word))
        mine, rest = tuple(rest[:count]), rest[count:]
        key, equals, form = word.partition("=")
        if equals and key and "%" not in key:
            found.append((key, form % mine, True))
        else:
            found.append(("", word % mine, bool(count)))
    if rest:
        raise TypeError(f"{len(rest)} values too many for {template!r}")
    return found


def told(template: str, values: tuple[object, ...]) -> str:
    """The event: each word of the template with its values."""
    words = []
    for key, text, valued in parts(template, values):
        if key:
            words.append(f"{printable(key)}={_value(text)}")
        else:
            words.append(_quoted(text) if valued and ("=" in text or '"' in text) else printable(text))
    return " ".join(words)


def moment(seconds: float) -> str:
    """A time of the wall clock, with its zone."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


class Formatter(logging.Formatter):
    """One line a record, whatever is in it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        values = record.args
        if isinstance(values, tuple) and values:
            record.message = told(str(record.msg), values)
        else:
            record.message = printable(record.getMessage())
        record.asctime = moment(record.created)
        line = self.formatMessage(record)
        if record.exc_info:
            line += f" traceback={_quoted(self.formatException(record.exc_info))}"
        if record.stack_info:
            line += f" stack={_quoted(record.stack_info)}"
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a record, on one line: time, level, logger, event, and the values by their keys."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        values = record.args
        pairs: dict[str, str] = {}
        event = record.getMessage() if not values else ""
        if isinstance(values, tuple) and values:
            words = parts(str(record.msg), values)
            event = " ".join(text for key, text, _ in words if not key)
            pairs = {key: text for key, text, _ in words if key}
        if record.exc_info:
            pairs["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            pairs["stack"] = record.stack_info
        own = {"time": moment(record.created), "level": record.levelname.lower(), "logger": record.name, "event": event}
        return json.dumps({**own, **{f"{key}_" if key in own else key: text for key, text in pairs.items()}})


class Sparse(logging.Filter):
    """Lets so many records a second through, and `burst` at once: for what a stranger may cause without end."""

    def __init__(self, a_second: float, burst: float) -> None:
        super().__init__()
        self._allowance = Allowance(a_second, burst)

    def filter(self, record: logging.LogRecord) -> bool:
        """Is there room for this one?"""
        return self._allowance.spend(time.monotonic_ns())


def start(
    level: int | str, form: str = "%(asctime)s %(levelname)s %(name)s %(message)s", *, force: bool = False
) -> None:
    """Log to stderr from this level on: time, level, logger, event; `force`: also where somebody logs already. Raises
    Problem where GEMINI_LOG_FORMAT is none."""
    wanted = os.environ.get(FORMAT) or FORMATS[0]
    if wanted not in FORMATS:
        raise Problem(f"{FORMAT} {wanted!r} is unknown; there are {', '.join(FORMATS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if wanted == "json" else Formatter(form))
    logging.basicConfig(level=level, handlers=[handler], force=force)
