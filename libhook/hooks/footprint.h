/*
 * footprint.h - what a context costs its tenant: its own memory on the card (some hundred MB on a real one), counted when
 * it is made and given back when it ends, with all that the program allocated in it.
 */
#ifndef GEMINI_HOOKS_FOOTPRINT_H
#define GEMINI_HOOKS_FOOTPRINT_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/driver/cuda_types.h"

#pragma GCC visibility push(hidden)

struct footprint {
    bool locked;
    int device; /* -1: not counted */
    CUdevice cuda_device;
    bool primary;
    uint64_t reserved;
};

/* Before a context is made on `device`. One context at a time is made or ended in a process, so that their costs can be
 * told apart. CUDA_ERROR_OUT_OF_MEMORY when the tenant has no room for it; then made() must not be called. `primary`: it
 * is the device's primary context, counted once however often it is retained, until its last release. */
CUresult footprint_making(struct footprint *footprint, CUdevice device, bool primary);

/* After it: the driver's result, changed to out-of-memory when the context turned out to be larger than what is left. The
 * caller then destroys (releases) it; nothing is counted. */
CUresult footprint_made(struct footprint *footprint, CUresult result, CUcontext context);

/* Around the end of a context. The second counts it and what was allocated in it as freed, if `gone`. */
void footprint_ending(void);
void footprint_ended(CUcontext context, bool gone);

/* The primary context of a device as far as it is known here, or NULL. */
CUcontext footprint_primary(CUdevice device);

#pragma GCC visibility pop

#endif
