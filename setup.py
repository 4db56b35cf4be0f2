"""The part of the package's build that pyproject.toml cannot say: the C parts are compiled into the wheel.

`pip install .` runs libhook/build.py and carries libhook/lib/ along, so the wheel is bound to this Python and platform.
GEMINI_SKIP_C=1 leaves the C parts out: the Makefile installs editable and runs the builder as a step of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent


class BuildPyAndC(build_py):
    def run(self) -> None:
        if not (self.editable_mode or os.environ.get("GEMINI_SKIP_C")):
            subprocess.run([sys.executable, "-m", "libhook.build"], cwd=HERE, check=True)
            self.data_files = self._get_data_files()  # looked up anew: the builder has only now made them
        super().run()


class PlatformDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": BuildPyAndC}, distclass=PlatformDistribution)
