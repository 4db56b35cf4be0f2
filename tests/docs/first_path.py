"""Plays a person's way from README to two programs that share a card, on a clean Debian, and keeps what was said.

    python -m tests.docs.first_path          # writes docs/first-path.md anew; some minutes

What is typed stands in README, word for word; what root is told to install is in the quick start. The clone is there.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.docs.blocks import blocks, steps
from tests.docs.reader import ENDLESS, Reader
from tests.docs.room import USER, debian, room
from tests.docs.test_workstation import PAGE as QUICK_START
from tests.docs.test_workstation import README, cloned

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/first-path.md"
SHARES = ("a ... yes ...", "b ... yes ...")  # what must be on the screen: both are held to their shares
HEAD = """# The first ten minutes

What README says to type until two programs share a card, as `python -m tests.docs.first_path` typed it. It ran on a
clean Debian 12 without a GPU, on a machine with 2 processors that had other work as well. There were the packages that
the [quick start](quickstart-workstation.md#set-up) names and a clone of the sources.
Five commands, {minutes:.1f} minutes.

```text
"""


class Answer(NamedTuple):
    command: str
    seconds: float
    said: str


def commands() -> list[str]:
    """README's, up to the first look at two programs."""
    _, set_up, share, look, *_ = [block for block in blocks(README) if steps(block)]
    return [steps(set_up)[0].command, *(step.command for step in (*steps(share), *steps(look)))]


def play(folder: Path) -> list[Answer]:
    """Type them."""
    typed = [step for block in blocks(QUICK_START) for step in steps(block) if step.root]
    root = debian([word for step in typed for word in step.command.removeprefix("apt-get install ").split()])
    (folder / "home/reader").mkdir(parents=True)
    cloned(folder / "home/reader/gemini")
    found = []
    with Reader(room(root, folder), folder / "home/reader/gemini", owner=USER, limit=600) as reader:
        reader.type("cd gemini")
        for command in commands():
            began = time.monotonic()
            while ENDLESS.match(command) and reader.type("gemini ps")[1].count(" yes\n") < len(SHARES):
                time.sleep(0.5)  # README: "once they run, a second or two later"
            status, said = reader.watch(command, SHARES) if ENDLESS.match(command) else reader.type(command)
            if status:
                raise SystemExit(f"gemini: {command} ended with status {status}; it said:\n{said}")
            found.append(Answer(command, time.monotonic() - began, said))
            print(f"{found[-1].seconds:6.1f} s  {command}", file=sys.stderr)
    return found


def last_look(said: str) -> str:
    """Of a screen that was drawn several times, the last whole one."""
    lines = [line for line in said.splitlines() if line.strip()]
    at = [number for number, line in enumerate(lines) if line.startswith("NVIDIA ")]
    return "\n".join(line.rstrip() for line in lines[at[-1] : at[-1] + 4])


def page_of(answers: list[Answer]) -> str:
    """The page."""
    parts = []
    for answer in answers:
        said = last_look(answer.said) if ENDLESS.match(answer.command) else answer.said.strip("\n")
        parts.append(f"$ {answer.command}\n" + (f"{said}\n" if said else "") + f"[{answer.seconds:.1f} s]\n")
    return HEAD.format(minutes=sum(answer.seconds for answer in answers) / 60) + "\n".join(parts) + "```\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="gm-first-") as folder:
        PAGE.write_text(page_of(play(Path(folder))))
    print(PAGE.relative_to(ROOT))
