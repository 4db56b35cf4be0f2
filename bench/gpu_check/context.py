"""What a check is given, and what it leaves."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DOING = "doing"  # folder for what is not done yet


@dataclass
class Context:
    """The card, where results go, and the findings so far."""

    sim: str | None
    out: Path
    scale: float = 1.0  # of all durations
    findings: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def finding(self, verdict: bool | None, text: str, figure: Any = None) -> None:
        """None as verdict is a figure without a bound."""
        word = "INFO" if verdict is None else "PASS" if verdict else "FAIL"
        self.findings.append({"verdict": word, "text": text, "figure": figure})

    def skip(self, text: str) -> None:
        self.findings.append({"verdict": "SKIP", "text": text, "figure": None})

    def once(self, name: str, measure: Callable[[], Any]) -> Any:
        """What `measure` answers as JSON; where a check of this run has asked for it before, what it got."""
        path = self.out / DOING / f"once-{name}.json"
        with contextlib.suppress(OSError, ValueError):
            return json.loads(path.read_text())
        answer = measure()
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(answer))
        return answer


def torch_there(context: Context) -> bool:
    if context.sim is not None:
        context.skip("PyTorch runs on a real card only")
        return False
    if importlib.util.find_spec("torch") is None:
        context.skip(f"PyTorch is not installed for {sys.executable}")
        return False
    return True
