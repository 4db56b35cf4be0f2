"""The code blocks of a page, as a reader would use them. Pure: text in, steps out.

What a block's language means here:

    console   `$ ` is typed, `> ` goes on with it, `# ` is typed by root while the machine is set up; all else is what
              the program answers: figures and names of things differ from run to run, the form does not
    sh        every line is typed; nothing is said of the answers
    others    are looked at; one whose first line is `# NAME.EXT` (or `# path/NAME.EXT`) is saved under that name

A block without a language cannot be told apart from these, so it is a fault of the page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^ *(`{3,}|~{3,}) *([A-Za-z0-9_+-]*)[^`]*$")
HERE = re.compile(r"<<-? *['\"]?([A-Za-z_]+)['\"]?")
SAVED = re.compile(r"^# ([\w./-]+\.\w+)$")
# What differs between two runs of the same form: numbers with their units, identifiers, and how columns are padded.
IDENTIFIER = re.compile(r"\b(GPU-)?[0-9a-f]{8}-[0-9a-f-]{4,}\b|(?<=-)[0-9a-f]{8}\b")
MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT[\d:]+Z")
NUMBER = re.compile(r"(?<![\w.])-?\d+(\.\d+)?(?: ?(?:ns|us|ms|s|m|h|d|B|[KMGT]i?B?))?(?![\w])")
AGE = re.compile(r"(?<![\w.])(\d+[dhms]){2,}(?![\w])")  # as kubectl says it: 2m3s
SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class Block:
    page: str
    line: int  # of its first line
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Step:
    """Something to type, or a file to save, and what is then shown."""

    where: str
    command: str = ""
    shown: tuple[str, ...] = ()
    file: str = ""
    content: str = ""
    root: bool = False


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        opened = FENCE.match(lines[number])
        number += 1
        if opened is None:
            continue
        first = number
        while number < len(lines) and lines[number].strip() != opened[1]:
            number += 1
        found.append(Block(page.name, first + 1, opened[2], "\n".join(lines[first:number])))
        number += 1
    return found


def steps(block: Block) -> list[Step]:
    if block.language == "console":
        return _console(block)
    if block.language in ("sh", "bash"):
        return [Step(block.where, command) for command in commands(block.text)]
    head, _, rest = block.text.partition("\n")
    if (saved := SAVED.match(head)) is not None:
        return [Step(block.where, file=saved[1], content=rest + "\n")]
    return []


def commands(text: str) -> list[str]:
    """The commands of a script, one by one: lines, joined where a backslash or a here-document says so."""
    found: list[str] = []
    open_until = ""
    for line in text.splitlines():
        if open_until or (found and found[-1].endswith("\\")):
            found[-1] += "\n" + line
            open_until = "" if line.strip() == open_until else open_until
        elif line.strip() and not line.lstrip().startswith("#"):
            found.append(line)
        if not open_until and found and found[-1].endswith(line) and (here := HERE.search(line)):
            open_until = here[1]
    return found


def _console(block: Block) -> list[Step]:
    found: list[Step] = []
    for line in block.text.splitlines():
        last = found[-1] if found else None
        if line.startswith(("$ ", "# ")):
            found.append(Step(block.where, line[2:], root=line[0] == "#"))
        elif last is None:
            raise ValueError(f"{block.where}: a console block begins with `$ ` or `# `, not with {line!r}")
        elif line.startswith("> ") and not last.shown:
            found[-1] = Step(last.where, f"{last.command}\n{line[2:]}", root=last.root)
        else:
            found[-1] = Step(last.where, last.command, (*last.shown, line), root=last.root)
    return found


def form(line: str) -> str:
    """A line of output without what differs from run to run."""
    return SPACES.sub(" ", NUMBER.sub("0", AGE.sub("0s", MOMENT.sub("THEN", IDENTIFIER.sub("ID", line))))).strip()


def missing(shown: tuple[str, ...], said: str) -> str | None:
    """The first shown line that no line of what was said has the form of; None when each has one of its own.

    Their order may be another: whose row comes first in a table is chance. `...` stands for anything, in a line or for
    lines.
    """
    answers = [form(line) for line in said.splitlines()]
    for line in shown:
        if line.strip() in ("", "..."):
            continue
        pattern = re.compile(" ?.* ?".join(re.escape(part.strip(" ")) for part in form(line).split("...")))
        found = next((answer for answer in answers if pattern.fullmatch(answer)), None)
        if found is None:
            return line
        answers.remove(found)
    return None
