/*
 * table.h - cuda_hooks.h and nvml_hooks.h as something to search: which of our functions stands for which of theirs.
 *
 * The three ways in (entry.c, resolve.c) ask here and nowhere else, so none of them can know of a function that
 * another does not. Searching takes no lock and never waits.
 */
#ifndef GEMINI_HOOKS_TABLE_H
#define GEMINI_HOOKS_TABLE_H

#include <stddef.h>
#include <stdint.h>

enum table_library { TABLE_CUDA, TABLE_NVML };
enum table_flavour { LEGACY, PER_THREAD, ANY };

struct table_row {
    const char *symbol;         /* what the library exports */
    const char *name;           /* what cuGetProcAddress is asked for */
    int since;                  /* CUDA version in which this row's ABI came */
    enum table_flavour flavour; /* of the default stream */
    enum table_library library;
    void *ours; /* our function; NULL: this row is left alone */
    void **real;                /* the pointer in `real`; NULL for rows known by name only and for NVML's */
};

#pragma GCC visibility push(hidden)

/* The row of an exported symbol, or NULL. */
const struct table_row *table_by_symbol(const char *symbol);

/* The rows that answer to a name of cuGetProcAddress, one after another: NULL begins and ends. */
const struct table_row *table_next_by_name(const char *name, const struct table_row *after);

#pragma GCC visibility pop

#endif
