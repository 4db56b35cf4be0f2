/*
 * resolve.h - the third way in: what cuGetProcAddress hands out. See resolve.c for the rules.
 */
#ifndef GEMINI_HOOKS_RESOLVE_H
#define GEMINI_HOOKS_RESOLVE_H

#include <stdint.h>

/* How often a driver entry that is newer than the table was handed out as it is: work through it is not gated. */
uint64_t resolve_ungated_lookups(void);

#endif
