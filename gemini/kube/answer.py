"""What the API server answers: an object, or what was not done. Pure.

A refusal is a Refused with its HTTP status; no answer (connection, time-out, a proxy's page) is an Unanswered: then
what was asked may or may not have been done.
"""

from __future__ import annotations

from typing import Any

from gemini.kube.decode import decode

Object = dict[str, Any]

NO_SUCH_PATH = b"404 page not found"  # where not even the group of a kind is there


class ApiFault(Exception):
    """The API server did not do what was asked."""


class Refused(ApiFault):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Unanswered(ApiFault):
    """No answer came: it may have been done."""


class Undefined(Unanswered):
    """The API server knows no such path: nobody has defined the kind (yet)."""


def is_unknown(error: ApiFault) -> bool:
    """Whether it says that nobody has defined the kind that was asked for, or not its group."""
    return isinstance(error, Undefined) or (isinstance(error, Refused) and error.status == 404)


class TooOld(ApiFault):
    """The watch cannot go on from there; list again."""


def read_answer(method: str, path: str, status: int, text: bytes | bytearray) -> Object:
    """The object that the API server answered; raises what it did not do."""
    if status == 404 and text.strip() == NO_SUCH_PATH:
        raise Undefined(f"{method} {path}: the API server has no such path")
    try:
        decoded = decode(text) if text else {}
    except ValueError:
        decoded = None
    if not isinstance(decoded, dict):
        raise Unanswered(f"{method} {path}: {status} with a body that is no object")
    if status >= 500 or status == 429:
        raise Unanswered(f"{method} {path}: {status}: {decoded.get('message', '')}")
    if status >= 400:
        raise Refused(status, f"{decoded.get('message') or method + ' ' + path}")
    return decoded
