/*
 * table.h - cuda_hooks.h and nvml_hooks.h as something to search: which of our functions stands for which of theirs.
 *
 * The three ways in (entry.c, resolve.c) ask here and nowhere else, so none of them can know of a function that
 * another does not. Searching takes no lock and never waits.
 */
#ifndef GEMINI_HOOKS_TABLE_H
#define GEMINI_HOOKS_TABLE_H

#include "libhook/driver/rows.h"

#pragma GCC visibility push(hidden)

/* Our function for this row; NULL: it is left alone. */
void *table_ours(const struct row *row);

/* The row of an exported symbol, or NULL. */
const struct row *table_by_symbol(const char *symbol);

/* The rows that answer to a name of cuGetProcAddress, one after another: NULL begins and ends. */
const struct row *table_next_by_name(const char *name, const struct row *after);

#pragma GCC visibility pop

#endif
