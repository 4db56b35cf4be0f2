/*
 * real.h - the real driver: one pointer for every HOOK and PASS row of cuda_hooks.h, called as `real.cuX(...)`.
 *
 * The pointers always can be called. Until the driver has been found each one leads to a stub (stubs.S) that looks up
 * the whole table once, keeps the arguments, and goes on to the real function. So the call path has no "is it there
 * yet" branch, and nothing is looked up in a process that makes no CUDA call. Afterwards
 *   - a row that the driver lacks leads to a function that answers CUDA_ERROR_NOT_FOUND (real_has() tells), and
 *   - while no driver is loaded at all, every row answers CUDA_ERROR_NO_DEVICE, and the next call looks again.
 *
 * We never link against libcuda and never load it: we find the one that the application has (real.c says how). Then we
 * hold a reference to it, so that an application that closes it does not pull it from under us.
 *
 * Thread safety: any number of threads may look up at once; all of them store the same values. There is no lock, for
 * the dynamic loader has one of its own, and a constructor that runs under dlopen may be the first to call us.
 */
#ifndef GEMINI_DRIVER_REAL_H
#define GEMINI_DRIVER_REAL_H

#include <stdbool.h>

#include "libhook/driver/pointers.h"

#pragma GCC visibility push(hidden)

/* Written by real_load() only; read everywhere. */
extern struct real_driver real;

/* Is the application's driver there? Looks it up if need be. `hint` may be NULL, or the path of a loaded libcuda that
 * answers to another name than libcuda.so.1. Keeps errno. */
bool real_load(const char *hint);

/* Has it been looked up already? Never looks. */
bool real_loaded(void);

/* What a row leads to when the driver lacks it. Only comparing is allowed: see real_has. */
CUresult real_missing(void);

/* Does the driver have this function? False also while no driver is loaded. */
#define real_has(symbol) (real_load(NULL) && (void *)real.symbol != (void *)real_missing)

/* The C library's own dlsym: its caller is whoever calls the pointer, so RTLD_NEXT means "after this library". */
typedef void *real_dlsym_function(void *handle, const char *name);
real_dlsym_function *real_dlsym(void);

/* Its dlopen and dlmopen, past our own; NULL where the C library keeps them apart and the program has no use for them. A
 * call of either has to be one, and no jump, where it is to act for this library and not for our caller. */
typedef void *real_dlopen_function(const char *file, int flags);
typedef void *real_dlmopen_function(long space, const char *file, int flags);
real_dlopen_function *real_dlopen(void);
real_dlmopen_function *real_dlmopen(void);

/* The pointer of a row in `real`; NULL while there is no driver, and for rows without one. */
struct row;
void *real_pointer(const struct row *row);

/* The exported symbol `name` of the driver in use, or NULL. */
void *real_symbol(const char *name);

#pragma GCC visibility pop

#endif
