/* copy.h - putting a copy together from the ends that a call names, and handing it to its stream. */
#ifndef GEMINI_SIM_COPY_H
#define GEMINI_SIM_COPY_H

#include "libhook/sim/driver/op.h"

/* Into the stream of this handle; a blocking copy is one in the default stream, waited for. */
CUresult op_copy_submit(const CUDA_MEMCPY3D *copy, CUstream handle, bool per_thread, bool blocking);

#define LINEAR(bytes) .WidthInBytes = (bytes), .Height = (bytes) != 0, .Depth = 1
#define FROM_HOST(p) .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = (p)
#define FROM_DEVICE(p) .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = (p)
#define FROM_ANY(p) .srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = (p)
#define FROM_ARRAY(a, at) .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = (a), .srcXInBytes = (at)
#define TO_HOST(p) .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = (p)
#define TO_DEVICE(p) .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = (p)
#define TO_ANY(p) .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = (p)
#define TO_ARRAY(a, at) .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = (a), .dstXInBytes = (at)

#endif
