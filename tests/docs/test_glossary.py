"""docs/glossary.md against the public names: each word of ours in one has a row, and each row is seen in one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemini.kube import names
from scheduler_backend.config import DAEMON, POLICY
from scheduler_backend.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
MOST_TERMS = 40
ROW = re.compile(r"^\| ([a-z][a-z-]*) \| (.+) \| `([^`]+)` \|$", re.MULTILINE)
# Words in public names that are no terms of ours: English, units, and what Kubernetes, CUDA and NVML say.
WORDS = """
admissions after again ahead alike allocation assigned assume bind build bytes cdi context copied count cpu
device devices dir early error errors events every exchange exclude exit exported extend file flood foreseen gpu
gpushare hello holding host idle info join joined joint known latency launches lead least log lookups lost magic
margin marks max measure mem memory metrics missed model more most ms newcomer ns pauses pod policy port
preferred processes prompt protocol ratio ready refusals release renew reply reported required reserve resume
return returns seconds shared short shutdown silent sim size stall stats stranger sum takes time to topology
trace unconfirmed unit used uuid version wait want welcome whole window
"""
PLAIN = frozenset(WORDS.split())


def public() -> set[str]:
    """Metrics, options, annotations, messages and their flags."""
    wire = re.findall(r"\bWIRE_([A-Z_]+)\b", (ROOT / "libhook" / "core" / "wire.h").read_text())
    return {*(row.name for row in METRICS), *POLICY, *DAEMON, *names.ANNOTATION_KEYS, *wire}


def words(name: str) -> list[str]:
    """Those of a name, but for what says whose it is."""
    said = name.removeprefix("gemini_").rpartition("/")[2]
    return [word for word in re.split(r"[_-]", said.lower()) if len(word) > 1]


TERMS = {term: (meaning, seen) for term, meaning, seen in ROW.findall((ROOT / "docs" / "glossary.md").read_text())}


@pytest.mark.parametrize("name", sorted(public()))
def test_each_word_of_a_public_name_is_plain_or_has_a_row(name: str) -> None:
    stems = [term.replace("-", "") for term in TERMS]
    unknown = [
        word
        for word in words(name)
        if word not in PLAIN
        and not any(word.startswith(stem) or (len(word) > 4 and stem.startswith(word)) for stem in stems)
    ]
    assert unknown == [], f"say in docs/glossary.md what {unknown} of {name} means, or use a word of the field"


@pytest.mark.parametrize("term", sorted(TERMS))
def test_each_row_is_seen_in_a_public_name(term: str) -> None:
    assert TERMS[term][1] in public()


def test_the_glossary_is_short_and_in_order_and_no_word_has_two_meanings() -> None:
    rows = [term for term, _, _ in ROW.findall((ROOT / "docs" / "glossary.md").read_text())]
    assert rows == sorted(set(rows))
    assert len(rows) <= MOST_TERMS
    assert not PLAIN & set(rows)


def test_no_plain_word_is_kept_that_no_name_has() -> None:
    assert {word for name in public() for word in words(name)} >= PLAIN
