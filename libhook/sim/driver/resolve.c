/*
 * cuGetProcAddress, answered from the one table. Semantics as documented: the newest entry whose version is not above
 * the one asked for; with flag 0x2 the per-thread variant where there is one. A name that is not there is a success
 * with a NULL pointer and its status (the v2 call), or NOT_FOUND (the v1 call); a version above the driver's is
 * INVALID_VALUE.
 */
#include <stdlib.h>

#define SIM_BY_EXPORT
#include "libhook/sim/driver/driver.h"

enum flavour { LEGACY, PER_THREAD, ANY };

/* Those of known.c are of no type that could be named. */
#define KNOWN(symbol, name, since, flavour, reason) CUresult symbol(void);
#include "libhook/driver/cuda_hooks.h"

static const struct row {
    const char *name;
    int since;
    enum flavour flavour;
    void *entry;
} rows[] = {
#define HOOK(symbol, name, since, flavour, class_) {name, since, flavour, (void *)symbol},
#define PASS(symbol, name, since, flavour, reason) {name, since, flavour, (void *)symbol},
#define KNOWN(symbol, name, since, flavour, reason) {name, since, flavour, (void *)symbol},
#include "libhook/driver/cuda_hooks.h"
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static const struct row *sorted[ROWS];
static pthread_once_t sorted_once = PTHREAD_ONCE_INIT;

static int by_name(const void *a, const void *b) {
    const struct row *p = *(const struct row *const *)a, *q = *(const struct row *const *)b;
    int order = strcmp(p->name, q->name);
    return order ? order : p->since - q->since;
}

static void sort(void) {
    for (int i = 0; i < ROWS; i++)
        sorted[i] = &rows[i];
    qsort(sorted, ROWS, sizeof(sorted[0]), by_name);
}

static void *find(const char *name, int version, bool per_thread, CUdriverProcAddressQueryResult *status) {
    int low = 0, high = ROWS;
    void *best[3] = {NULL, NULL, NULL};
    pthread_once(&sorted_once, sort);
    while (low < high) {
        int middle = (low + high) / 2;
        if (strcmp(sorted[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    for (; low < ROWS && strcmp(sorted[low]->name, name) == 0; low++) {
        if (sorted[low]->since > version) {
            if (*status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
                *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            continue;
        }
        best[sorted[low]->flavour] = sorted[low]->entry;
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
    }
    if (per_thread && best[PER_THREAD])
        return best[PER_THREAD];
    return best[LEGACY] ? best[LEGACY] : best[ANY];
}

CUresult cuGetProcAddress_v2(
    const char *symbol, void **pfn, int cuda_version, cuuint64_t flags, CUdriverProcAddressQueryResult *symbol_status) {
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    int version;
    TRY(cuDriverGetVersion(&version));
    NEED(pfn && symbol && flags <= 2 && cuda_version <= version, CUDA_ERROR_INVALID_VALUE);
    *pfn = find(symbol, cuda_version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status);
    if (symbol_status)
        *symbol_status = status;
    if (!*pfn && !symbol_status)
        return CUDA_ERROR_NOT_FOUND;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cuda_version, cuuint64_t flags) {
    return cuGetProcAddress_v2(symbol, pfn, cuda_version, flags, NULL);
}
