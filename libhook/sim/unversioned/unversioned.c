/*
 * libcuda.so, the name without a version, by which some programs open the driver and others are linked (-lcuda): a filter.
 * It has the driver's names for the linker, which leaves out a library that has none of those wanted (--as-needed), and the
 * loader takes each from libcuda.so.1. A link of that name would become a copy in a wheel, and a copy a second driver.
 */
#define NAME(symbol)                                                                                                   \
    __attribute__((visibility("default"))) void symbol(void);                                                          \
    void symbol(void) {                                                                                                \
    }
#define HOOK(symbol, ...) NAME(symbol)
#define PASS(symbol, ...) NAME(symbol)
#define KNOWN(symbol, ...) NAME(symbol)
#include "libhook/driver/cuda_hooks.h"
