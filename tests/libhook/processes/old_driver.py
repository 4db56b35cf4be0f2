"""A program of an old system: `python3 old_driver.py`, with that system's Python. Opens the driver by ctypes."""

import ctypes
import json

cuda = ctypes.CDLL("libcuda.so.1")
context, module, function, pointer = (ctypes.c_void_p() for _ in range(4))
image = (
    b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry gemini_spin(.param .u64 nanoseconds)\n{ ret; }\n"
)
duration = ctypes.c_uint64(1000 * 1000)
parameters = (ctypes.c_void_p * 1)(ctypes.addressof(duration))
codes = [
    cuda.cuInit(0),
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
    cuda.cuCtxSetCurrent(context),
    cuda.cuModuleLoadData(ctypes.byref(module), image),
    cuda.cuModuleGetFunction(ctypes.byref(function), module, b"gemini_spin"),
]
for _ in range(50):
    codes.append(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, parameters, None))
codes.append(cuda.cuCtxSynchronize())
taken = 0
while cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64 << 20)) == 0:
    taken += 64 << 20
libc = ctypes.CDLL(None)
libc.gnu_get_libc_version.restype = ctypes.c_char_p
print(json.dumps({"codes": codes, "taken": taken, "glibc": libc.gnu_get_libc_version().decode()}))
