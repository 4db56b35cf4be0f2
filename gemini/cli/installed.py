"""What this package was installed from: no index has it, so an extra is added from the same file or tree once more."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

PROJECT = "gemini-gpu"


def source() -> str | None:
    """The file or folder as pip recorded it (PEP 610); None where it is not known or there no more."""
    try:
        said = metadata.distribution(PROJECT).read_text("direct_url.json")
        url = urlsplit(json.loads(said or "{}").get("url", ""))
    except (metadata.PackageNotFoundError, ValueError):
        return None
    path = unquote(url.path)
    return path if url.scheme == "file" and Path(path).exists() else None


def with_extra(extra: str) -> str:
    """What to type for one of pyproject.toml's optional-dependencies."""
    place = source()
    if place is None:
        return f"install it with the wheel's file: pip install './gemini_gpu-....whl[{extra}]'"
    editable = "-e " if Path(place).is_dir() else ""
    return f"pip install {editable}'{place}[{extra}]'"
