/* managed.h - what calls on one range of managed memory and on lists of them share. */
#ifndef GEMINI_SIM_MANAGED_H
#define GEMINI_SIM_MANAGED_H

#include "libhook/sim/driver/driver.h"

/* Is all of it inside of one managed allocation? */
CUresult managed_check(CUdeviceptr pointer, size_t bytes);
CUresult managed_prefetch(CUdeviceptr pointer, size_t bytes, CUmemLocation to, CUstream handle, bool per_thread);

#endif
