"""The part of the package's build that pyproject.toml cannot say: the C parts are compiled into the wheel.

`pip install .` and `make wheel` run libhook/build.py and carry libhook/lib/ along. The wheel is for any Python from
3.11 on (the extension uses the stable ABI; the Python that built it finds the token machine compiled, others read it)
and for any x86-64 Linux with glibc from build.FLOOR on, which is checked.
GEMINI_SKIP_C=1 leaves the C parts out: the Makefile installs editable and runs the builder as a step of its own.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from libhook import build, info  # noqa: E402

SKIP_C = bool(os.environ.get("GEMINI_SKIP_C"))


class BuildPyAndC(build_py):
    def run(self) -> None:
        if not (self.editable_mode or SKIP_C):
            subprocess.run([sys.executable, "-m", "libhook.build"], cwd=HERE, check=True)
            build.check_floor()
            info.COMMIT.write_text(f"{os.environ.get('GEMINI_COMMIT') or info.commit()}\n")
            self.data_files = self._get_data_files()  # looked up anew: the builder has only now made them
        super().run()


class PlatformDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


glibc = "_".join(map(str, build.FLOOR))
tags = {} if SKIP_C else {"py_limited_api": "cp311", "plat_name": f"manylinux_{glibc}_{platform.machine()}"}
setup(cmdclass={"build_py": BuildPyAndC}, distclass=PlatformDistribution, options={"bdist_wheel": tags})
