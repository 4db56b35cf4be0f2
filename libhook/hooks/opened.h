/*
 * opened.h - libraries that the loader binds past this one. See opened.c.
 */
#ifndef GEMINI_HOOKS_OPENED_H
#define GEMINI_HOOKS_OPENED_H

#include "libhook/hooks/answer.h"

#pragma GCC visibility push(hidden)

struct link_map;

/* The library or program that this lies in; NULL: in none. */
struct link_map *opened_object_of(const void *address);

/* dlopen, of whoever called it from `caller`: what it returns, or that the real one is to answer. */
struct entry_answer opened_dlopen(const char *file, int flags, void *caller);

/* The driver that `object` is of, if it is in a namespace of its own, from now on also where this library is. */
void opened_bring(const struct link_map *object);

#pragma GCC visibility pop

#endif
