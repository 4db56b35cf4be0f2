"""What a check is given, and what it leaves."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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


def torch_there(context: Context) -> bool:
    if context.sim is not None:
        context.skip("PyTorch runs on a real card only")
        return False
    if importlib.util.find_spec("torch") is None:
        context.skip(f"PyTorch is not installed for {sys.executable}")
        return False
    return True
