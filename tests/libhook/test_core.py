"""The loader: the same core through the extension and through its ABI-mode fallback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from libhook import core

ROOT = Path(__file__).parents[2]


def test_every_message_type_has_its_struct() -> None:
    for kind, name in core.STRUCTS.items():
        assert core.ffi.sizeof(name) == core.lib.wire_size(kind)
        assert core.new(kind, 5).header.serial == 5


def test_without_python_h_the_same_core_is_loaded_by_dlopen(tmp_path: Path) -> None:
    package = tmp_path / "libhook"
    shutil.copytree(ROOT / "libhook" / "core", package / "core")
    (package / "driver").mkdir()
    for name in ("__init__.py", "build.py", "core.py", "objects.py", "driver/versions.h"):
        shutil.copy(ROOT / "libhook" / name, package / name)
    program = (
        "import libhook.build as b; b.build_extension();"
        "from libhook import core; f = core.encode(core.new(core.lib.WIRE_GRANT, 3, quota_ns=5));"
        "print(core.ffi.__class__.__module__, core.lib.WIRE_VERSION, core.decode(f)[1].quota_ns)"
    )
    environment = {**os.environ, "GEMINI_CFFI_MODE": "abi", "PYTHONPATH": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[-2:] == ["1", "5"]
