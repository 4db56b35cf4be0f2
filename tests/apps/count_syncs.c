/*
 * count_syncs.c - counts the synchronising calls that reach the driver. Preloaded behind whatever else stands in front of
 * the driver; writes the count to the file that COUNT_SYNCS names when the program ends.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "libhook/driver/cuda_abi.h"

static unsigned long count;

#define COUNTED(name, parameters, arguments)                                                                           \
    CUresult name parameters {                                                                                         \
        static CUresult(*next) parameters;                                                                             \
        if (!next)                                                                                                     \
            next = (CUresult(*) parameters)dlsym(RTLD_NEXT, #name);                                                    \
        __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);                                                               \
        return next arguments;                                                                                         \
    }

COUNTED(cuStreamSynchronize, (CUstream stream), (stream))
COUNTED(cuCtxSynchronize, (void), ())
COUNTED(cuEventSynchronize, (CUevent event), (event))

__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("COUNT_SYNCS");
    FILE *file = path ? fopen(path, "w") : NULL;

    if (file) {
        fprintf(file, "%lu\n", count);
        fclose(file);
    }
}
