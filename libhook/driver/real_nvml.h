/*
 * real_nvml.h - the real NVML, for our own questions and for the wrappers of hooks/nvml.c.
 *
 * Unlike the driver it is asked rarely, so there are no stubs: whoever wants it gets the table of functions, or NULL.
 */
#ifndef GEMINI_DRIVER_REAL_NVML_H
#define GEMINI_DRIVER_REAL_NVML_H

#include <stdbool.h>

#include "libhook/driver/nvml_abi.h"

struct real_nvml {
#define HOOK(symbol, class_) __typeof__(symbol) *symbol;
#define PASS(symbol) __typeof__(symbol) *symbol;
#include "libhook/driver/nvml_hooks.h"
};

#pragma GCC visibility push(hidden)

/* The NVML that the application has loaded; with `open`, else the one that can be loaded. NULL: there is none. A
 * function that this NVML lacks is a NULL pointer. Any thread, no lock; keeps errno. */
const struct real_nvml *real_nvml(bool open);

#pragma GCC visibility pop

#endif
