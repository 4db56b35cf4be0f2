"""What an answer of the API server says: an object, a refusal, or nothing that tells what was done."""

from __future__ import annotations

import pytest

from gemini.kube.answer import ApiFault, Refused, TooOld, Unanswered, Undefined, is_unknown, read_answer


def test_an_object_is_read_and_no_text_is_an_empty_one() -> None:
    assert read_answer("GET", "/a", 200, b'{"kind": "Pod"}') == {"kind": "Pod"}
    assert read_answer("DELETE", "/a", 200, b"") == {}


@pytest.mark.parametrize(
    ("status", "text", "raised", "says"),
    [
        (404, b'{"message": "no pod p"}', Refused, "404: no pod p"),
        (409, b"{}", Refused, "409: PUT /a"),
        (429, b'{"message": "slower"}', Unanswered, "PUT /a: 429: slower"),
        (500, b"{}", Unanswered, "PUT /a: 500: "),
        (200, b"<html>", Unanswered, "PUT /a: 200 with a body that is no object"),
        (200, b"[1]", Unanswered, "PUT /a: 200 with a body that is no object"),
        (404, b"404 page not found\n", Undefined, "PUT /a: the API server has no such path"),
        (404, b"no backend", Unanswered, "PUT /a: 404 with a body that is no object"),
    ],
)
def test_what_was_not_done_says_whether_that_is_known(
    status: int, text: bytes, raised: type[ApiFault], says: str
) -> None:
    with pytest.raises(ApiFault) as found:
        read_answer("PUT", "/a", status, text)
    assert (type(found.value), str(found.value)) == (raised, says)


def test_a_kind_is_unknown_where_the_server_says_so_and_nowhere_else() -> None:
    assert is_unknown(Undefined("no path"))
    assert is_unknown(Refused(404, "none"))
    assert not any(is_unknown(fault) for fault in (Refused(403, "no"), Unanswered("?"), TooOld("list again")))
