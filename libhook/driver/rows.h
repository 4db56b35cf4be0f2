/*
 * rows.h - cuda_hooks.h and nvml_hooks.h as data: names, versions, flavours; no functions yet.
 *
 * The names lie in one block of text and are given by their place in it. Pointers would have to be relocated in every
 * process that the library is loaded into, which costs more than everything else at its start.
 */
#ifndef GEMINI_DRIVER_ROWS_H
#define GEMINI_DRIVER_ROWS_H

#include <stdint.h>

enum row_kind { ROW_HOOK, ROW_PASS, ROW_KNOWN };
enum row_library { ROW_CUDA, ROW_NVML };
enum row_flavour { LEGACY, PER_THREAD, ANY };

enum { ROW_NO_POINTER = UINT16_MAX };

struct row {
    uint16_t symbol; /* what the library exports; see row_symbol */
    uint16_t name;   /* what cuGetProcAddress is asked for; see row_name */
    uint16_t since;  /* CUDA version in which this row's ABI came; 0 for NVML */
    uint16_t pointer; /* its place in `real` (real.h); ROW_NO_POINTER for rows known by name only and for NVML's */
    uint8_t flavour; /* enum row_flavour: of the default stream */
    uint8_t library; /* enum row_library */
    uint8_t kind;    /* enum row_kind */
};

enum {
#define HOOK(symbol, name, since, flavour, class_) +1
#define PASS(symbol, name, since, flavour, reason) +1
#define KNOWN(symbol, name, since, flavour, reason) +1
    ROWS_CUDA = 0
#include "libhook/driver/cuda_hooks.h"
    ,
#define HOOK(symbol, class_) +1
#define PASS(symbol) +1
    ROWS_NVML = 0
#include "libhook/driver/nvml_hooks.h"
    ,
    ROWS = ROWS_CUDA + ROWS_NVML
};

#pragma GCC visibility push(hidden)

extern const struct row rows[ROWS]; /* CUDA's, then NVML's, each in the order of its table */

const char *row_symbol(const struct row *row);
const char *row_name(const struct row *row); /* empty for NVML */

#pragma GCC visibility pop

#endif
