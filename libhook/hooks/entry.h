/*
 * entry.h - the second way in: dlsym. See entry.c for the rules, dlsym.S for the entry itself.
 */
#ifndef GEMINI_HOOKS_ENTRY_H
#define GEMINI_HOOKS_ENTRY_H

#include "libhook/hooks/answer.h"

/* `caller` is the return address of whoever called dlsym. Keeps errno where it answers itself. */
struct entry_answer entry_dlsym(void *handle, const char *name, void *caller) __attribute__((visibility("hidden")));

#endif
