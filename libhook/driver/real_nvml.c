/*
 * real_nvml.c - find libnvidia-ml.so.1 in the way that real.c finds the driver, and keep a reference to it.
 */
#define _GNU_SOURCE
#include "libhook/driver/real_nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#include "libhook/driver/real.h"
#include "libhook/driver/rows.h"

_Static_assert(
    sizeof(struct real_nvml) == ROWS_NVML * sizeof(void *), "one pointer per row, in the order of the table");

/* Filled with the same values by whichever threads look first; `loaded` last, with release. */
static struct real_nvml table;
static int loaded;

const struct real_nvml *real_nvml(bool open) {
    if (__atomic_load_n(&loaded, __ATOMIC_ACQUIRE) != 0)
        return &table;
    if (real_dlsym() == NULL || real_dlopen() == NULL)
        return NULL;
    int saved_errno = errno;
    void *handle = real_dlopen()("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL | (open ? 0 : RTLD_NOLOAD));
    if (handle != NULL) {
        void **pointers = (void **)&table;
        for (int i = 0; i < ROWS_NVML; i++)
            __atomic_store_n(&pointers[i], real_dlsym()(handle, row_symbol(&rows[ROWS_CUDA + i])), __ATOMIC_RELAXED);
        __atomic_store_n(&loaded, 1, __ATOMIC_RELEASE);
    }
    dlerror();
    errno = saved_errno;
    return handle == NULL ? NULL : &table;
}
