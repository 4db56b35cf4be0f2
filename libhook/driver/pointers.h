/*
 * pointers.h - one pointer for every HOOK and PASS row of cuda_hooks.h, in the order of the table.
 */
#ifndef GEMINI_DRIVER_POINTERS_H
#define GEMINI_DRIVER_POINTERS_H

#include "libhook/driver/cuda_abi.h"

struct real_driver {
#define HOOK(symbol, name, since, flavour, class_) __typeof__(symbol) *symbol;
#define PASS(symbol, name, since, flavour, reason) __typeof__(symbol) *symbol;
#include "libhook/driver/cuda_hooks.h"
};

#endif
