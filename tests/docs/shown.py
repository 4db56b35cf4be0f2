"""The pictures of `gemini top` and `kubectl gemini` in docs/shown, drawn from what the programs say in a real run.

    python -m tests.docs.shown [top | kubectl]...        # both

`top`: three loads share a simulated card through the real daemon, and `gemini top` draws on a terminal.

`kubectl`: what the plugin said when the quick start for a cluster was read on the test cluster
(tests/e2e/test_quickstarts.py leaves that in out/docs).

Colours and layout are the programs' own; nothing is drawn by hand.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from html import unescape
from pathlib import Path

from rich.console import Console
from rich.text import Text

from bench.bed import Bed
from tests.docs.reader import Terminal

ROOT = Path(__file__).resolve().parents[2]
SHOWN = ROOT / "docs/shown"
READ = ROOT / "out/docs/cluster.json"  # what was typed and answered, in order
TENANTS = (("train", 0.5, 1.0, 40), ("serve", 0.3, 1.0, 8), ("notebook", 0.1, 0.5, 4))  # name, request, limit, GiB
GIB = 1 << 30
WIDEST = 132  # columns; longer lines go on in the next, as on a terminal
LOADS = {
    "train": [f"--alloc={32 * GIB}"],
    "serve": [f"--alloc={5 * GIB}", "--burst=20", "--gap-us=8000"],
    "notebook": [f"--alloc={GIB}", "--burst=50", "--gap-us=40000"],
}
FONT = re.compile(r"@font-face \{.*?\}\s*", re.S)
TEXT = re.compile(r"<text[^>]*\by=\"([\d.]+)\"[^>]*>([^<]*)</text>")
UP = re.compile(r"\x1b\[\d*A")
PARTS = ("top", "kubectl")


def draw(name: str, title: str, drawn: str) -> Path:
    """What a terminal was told to show, as a picture."""
    lines = [Text.from_ansi(line) for line in drawn.rstrip().splitlines()]
    for line in lines:
        line.rstrip()
    width = min(max(line.cell_len for line in lines) + 1, WIDEST)
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=width, file=nowhere)
        for line in lines:
            console.print(line, overflow="fold")
        picture = console.export_svg(title=title, unique_id=name)
    SHOWN.mkdir(exist_ok=True)
    path = SHOWN / f"{name}.svg"
    path.write_text(FONT.sub("", picture))  # fonts would be fetched from elsewhere: the reader's own do
    print(f"{path.relative_to(ROOT)}: {len(lines)} lines")
    return path


def lines_of(picture: Path) -> list[str]:
    """The words of a picture, line by line, its title among them."""
    rows: dict[float, list[str]] = {}
    for height, text in TEXT.findall(picture.read_text()):
        rows.setdefault(float(height), []).extend(unescape(text).replace("\xa0", " ").split())
    return [" ".join(rows[height]) for height in sorted(rows)]


def top() -> None:
    with Bed() as bed, contextlib.ExitStack() as loads:
        for name, request, limit, memory in TENANTS:
            bed.tenant(name, request, limit, memory=memory * GIB, latency=name != "train")
            bed.load(name, "--seconds", "0", *LOADS[name])
        bed.until_busy(*(name for name, *_ in TENANTS))
        time.sleep(10)  # so that what is shown of the last seconds is of these
        command = [sys.executable, "-m", "gemini", "top", "--count", "3", "--state-dir", str(bed.state_dir)]
        terminal = loads.enter_context(Terminal(os.getuid()))
        with open(terminal.path, "w") as screen:
            process = subprocess.Popen(
                command, stdout=screen, stderr=screen, env={**os.environ, "TERM": "xterm-256color"}
            )
            while process.poll() is None:
                terminal.read(0.2)
        assert process.returncode == 0, terminal.shown()
        before = b""
        while terminal.drawn != before:
            before = terminal.drawn
            terminal.read(0.2)
    frame = UP.split(terminal.drawn.decode())[-1]
    frame = frame[frame.index("NVIDIA") :].replace("\x1b[?25h", "").replace("\r", "")
    assert "ACHIEVED" in frame, frame
    draw("top", "gemini top", frame)


def kubectl() -> None:
    if not READ.exists():
        raise SystemExit(f"gemini: {READ} is not there; make e2e ARGS=tests/e2e/test_quickstarts.py writes it")
    said = [(command, text) for command, text in json.loads(READ.read_text()) if command.startswith("kubectl gemini")]
    for name, command in (("kubectl-gemini", "kubectl gemini"), ("kubectl-gemini-wide", "kubectl gemini -o wide")):
        fullest = max((text for typed, text in said if typed == command), key=len)
        draw(name, command, fullest)


def main() -> int:
    parts = sys.argv[1:] or PARTS
    if unknown := set(parts) - set(PARTS):
        print(f"gemini: no such picture: {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    for part in parts:
        {"top": top, "kubectl": kubectl}[part]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
