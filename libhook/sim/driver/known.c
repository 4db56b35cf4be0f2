/*
 * What the driver exports and no simulated card has: programs that are linked against any of it load, and are answered
 * NOT_SUPPORTED when they call it. The names are the KNOWN rows of the table; they take whatever they are given.
 */
#include "libhook/sim/driver/driver.h"

#pragma GCC visibility push(default)
#define KNOWN(symbol, name, since, flavour, reason)                                                                    \
    CUresult symbol(void);                                                                                             \
    CUresult symbol(void) {                                                                                            \
        return CUDA_ERROR_NOT_SUPPORTED;                                                                               \
    }
#include "libhook/driver/cuda_hooks.h"
#pragma GCC visibility pop
