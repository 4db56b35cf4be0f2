/*
 * fake_cuda.c - a libcuda.so.1 that can do nothing but be looked up: for tests of the ways in.
 *
 *     -DNEWER       a driver of the future: it also has cuMemAlloc_v3, and answers with it from CUDA 14.0 on
 *     -DUNEXPORTED  cuGetProcAddress answers with functions that are not the exported ones
 *     -DSUFFIXES    cuGetProcAddress also answers to the names of exported functions
 *     -DOLD         a driver before CUDA 11.3: no cuGetProcAddress
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SAME __attribute__((noinline, noclone))
/* Distinct bodies, so that no two functions share an address. */
#define FUNCTION(symbol, code)                                                                                         \
    SAME int symbol(void) {                                                                                            \
        __asm__ volatile("" ::"i"(code));                                                                              \
        return code;                                                                                                   \
    }
FUNCTION(cuInit, 0)
FUNCTION(cuDriverGetVersion, 1001)
FUNCTION(cuCtxCreate_v2, 1002)
FUNCTION(cuCtxCreate_v3, 1003)
FUNCTION(cuCtxCreate_v4, 1004)
FUNCTION(cuCtxSetCurrent, 1005)
FUNCTION(cuMemAlloc_v2, 1006)
FUNCTION(cuMemFreeAsync, 1007)
FUNCTION(cuMemFreeAsync_ptsz, 1008)
FUNCTION(cuMemFree_v2, 1010)
FUNCTION(cuMemcpyDtoD_v2, 1012)
FUNCTION(cuMemcpyDtoD_v2_ptds, 1013)
FUNCTION(cuOfTheFuture, 1009)
#ifdef NEWER
FUNCTION(cuMemAlloc_v3, 1011)
#endif
#ifdef UNEXPORTED
#define INNER(symbol, code) static FUNCTION(inner_##symbol, code)
#define ANSWER(symbol) ((void *)inner_##symbol)
#else
#define INNER(symbol, code)
#define ANSWER(symbol) ((void *)symbol)
#endif
INNER(cuCtxCreate_v2, 2002)
INNER(cuCtxCreate_v3, 2003)
INNER(cuCtxCreate_v4, 2004)
INNER(cuMemAlloc_v2, 2006)
INNER(cuMemFreeAsync, 2007)
INNER(cuMemFreeAsync_ptsz, 2008)

#ifndef OLD
int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status);

static void *answer(const char *symbol, int version, uint64_t flags) {
    if (strcmp(symbol, "cuInit") == 0)
        return (void *)cuInit;
    if (strcmp(symbol, "cuDriverGetVersion") == 0)
        return (void *)cuDriverGetVersion;
    if (strcmp(symbol, "cuOfTheFuture") == 0)
        return (void *)cuOfTheFuture;
    if (strcmp(symbol, "cuCtxCreate") == 0)
        return version >= 12050   ? ANSWER(cuCtxCreate_v4)
               : version >= 11040 ? ANSWER(cuCtxCreate_v3)
                                  : ANSWER(cuCtxCreate_v2);
#ifdef NEWER
    if (strcmp(symbol, "cuMemAlloc") == 0 && version >= 14000)
        return (void *)cuMemAlloc_v3;
#endif
    if (strcmp(symbol, "cuMemAlloc") == 0)
        return ANSWER(cuMemAlloc_v2);
    if (strcmp(symbol, "cuMemFreeAsync") == 0 && version >= 11020)
        return (flags & 2) != 0 ? ANSWER(cuMemFreeAsync_ptsz) : ANSWER(cuMemFreeAsync);
    if (strcmp(symbol, "cuGetProcAddress") == 0)
        return (void *)cuGetProcAddress_v2;
#ifdef SUFFIXES
    if (strcmp(symbol, "cuMemAlloc_v2") == 0)
        return ANSWER(cuMemAlloc_v2);
    if (strcmp(symbol, "cuMemFreeAsync_ptsz") == 0)
        return ANSWER(cuMemFreeAsync_ptsz);
    if (strcmp(symbol, "cuMemcpyDtoD_v2") == 0)
        return (flags & 2) != 0 ? (void *)cuMemcpyDtoD_v2_ptds : (void *)cuMemcpyDtoD_v2;
    if (strcmp(symbol, "cuGetProcAddress_v2") == 0)
        return (void *)cuGetProcAddress_v2;
#endif
    return NULL;
}

int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status) {
    if (symbol == NULL || pfn == NULL || version > 14000)
        return 1;
    *pfn = answer(symbol, version, flags);
    if (status != NULL)
        *status = *pfn == NULL ? 1 : 0;
    return 0;
}

int cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags) {
    if (symbol == NULL || pfn == NULL || version > 14000)
        return 1;
    *pfn = answer(symbol, version, flags);
    return *pfn == NULL ? 500 : 0;
}
#endif
