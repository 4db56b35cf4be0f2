"""An extra is added from what the package was installed from, for no index has it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SAID = "from gemini.cli.installed import with_extra; print(with_extra('plots'))"


def told(folder: Path, url: str) -> str:
    """What is said where pip recorded this."""
    record = folder / "gemini_gpu-9.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: gemini-gpu\nVersion: 9\n")
    if url:
        (record / "direct_url.json").write_text(json.dumps({"url": url, "archive_info": {}}))
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {SAID}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_wheels_file_is_named_again(tmp_path: Path) -> None:
    wheel = tmp_path / "a b" / "gemini_gpu-9-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    assert told(tmp_path, wheel.as_uri()) == f"pip install '{wheel}[plots]'"


def test_a_tree_is_installed_editable(tmp_path: Path) -> None:
    assert told(tmp_path, tmp_path.as_uri()) == f"pip install -e '{tmp_path}[plots]'"


@pytest.mark.parametrize("url", ["", "file:///nowhere/gemini_gpu-9-py3-none-any.whl", "https://[nowhere/x.whl"])
def test_one_that_is_not_there_any_more_is_described(tmp_path: Path, url: str) -> None:
    assert told(tmp_path, url) == "install it with the wheel's file: pip install './gemini_gpu-....whl[plots]'"
