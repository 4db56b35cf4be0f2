"""A pytest plugin: cuda-python's tests of the driver, with the modules of the installed cuda-bindings in their place.

The last wheel that has NVIDIA's tests in it is cuda-python 12.6. Since then modules moved and cuCtxCreate has one
argument more; nothing else is bent, so that a test fails here only where the newer client itself differs. The runtime
API, of which these tests ask one attribute, stays the older's: it is written over the driver and needs no cudart.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import cuda.cudart
from cuda.bindings import driver, nvrtc


def stand_in(name: str, module: types.ModuleType, **own: Any) -> None:
    made = types.ModuleType(name)
    vars(made).update({**vars(module), **own, "__name__": name})
    sys.modules[name] = made
    setattr(cuda, name.rpartition(".")[2], made)


stand_in("cuda.cuda", driver, cuCtxCreate=lambda flags, device: driver.cuCtxCreate(None, flags, device))
stand_in("cuda.nvrtc", nvrtc)
