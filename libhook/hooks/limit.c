/*
 * limit.c - cuCtxSetLimit: the device memory that a context sets aside when one of its limits is raised.
 *
 * Three of the limits are of memory: the stack of every thread that the card can hold at once, the buffer of printf,
 * and the heap of device code's malloc. What a context has of them from the start is in its footprint. What a program
 * raises them by is reserved before the driver is asked (which may answer CUDA_ERROR_OUT_OF_MEMORY, says its
 * reference). It stands in the ledger by context and limit, and is given back when the limit is lowered or the context
 * ends. The driver may take the heap and the buffer only with the first kernel that uses them; that is not seen from
 * here, so they count from the moment in which they are asked for. A stack that the driver enlarges by itself for a
 * kernel is not counted.
 *
 * The lock is held across the driver's call, as in footprint.c: it orders changes of limits, nothing else.
 */
#include <pthread.h>
#include <stddef.h>

#include "libhook/core/ledger.h"
#include "libhook/driver/real.h"
#include "libhook/hooks/memory.h"
#include "libhook/runtime/account.h"
#include "libhook/runtime/context.h"
#include "libhook/runtime/forks.h"

/* CUlimit and CUdevice_attribute, by cuda.h. */
enum { STACK_SIZE = 0, MALLOC_HEAP_SIZE = 2, MULTIPROCESSORS = 16, THREADS_PER_MULTIPROCESSOR = 39 };

FORKS_LOCK(lock, take_lock);

/* How often the card sets aside what the limit says. */
static uint64_t times(CUlimit limit) {
    int multiprocessors = 0, threads = 0;
    CUdevice device;
    if (limit != STACK_SIZE)
        return 1;
    if (real.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        real.cuDeviceGetAttribute(&multiprocessors, MULTIPROCESSORS, device) != CUDA_SUCCESS ||
        real.cuDeviceGetAttribute(&threads, THREADS_PER_MULTIPROCESSOR, device) != CUDA_SUCCESS)
        return 0;
    return (uint64_t)multiprocessors * (uint64_t)threads;
}

/* What is set aside for `value` beyond what the context had from the start. */
static uint64_t bytes_of(uint64_t value, uint64_t from_the_start, uint64_t each) {
    uint64_t bytes;
    if (value <= from_the_start || each == 0)
        return 0;
    return __builtin_mul_overflow(value - from_the_start, each, &bytes) ? UINT64_MAX : memory_rounded(bytes);
}

/* The driver's call, with what it may take reserved, and *bytes, what was reserved before, set to what it took. */
static CUresult change(CUlimit limit, size_t value, int device, uint64_t from_the_start, uint64_t *bytes) {
    uint64_t each = times(limit), before = *bytes, wanted = bytes_of(value, from_the_start, each);
    uint64_t reserved = wanted > before ? wanted : before;
    size_t now;
    if (memory_reserve(device, reserved - before, false) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real.cuCtxSetLimit(limit, value);
    if (result != CUDA_SUCCESS)
        wanted = before;
    else if (real.cuCtxGetLimit(&now, limit) == CUDA_SUCCESS) /* it may have taken another value */
        wanted = bytes_of(now, from_the_start, each);
    *bytes = wanted < reserved ? wanted : reserved;
    account_return(device, reserved - *bytes, false);
    return result;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    size_t now;
    int device = limit >= STACK_SIZE && limit <= MALLOC_HEAP_SIZE ? memory_device() : -1;
    if (device < 0 || real.cuCtxGetLimit(&now, limit) != CUDA_SUCCESS)
        return real.cuCtxSetLimit(limit, value);
    uint64_t context = (uint64_t)(uintptr_t)context_current()->context;
    struct ledger_entry entry = {
        .kind = LEDGER_LIMIT + (uint32_t)limit, .key = context, .owner = context, .link = now, .device = device};
    take_lock();
    account_take(entry.kind, entry.key, &entry); /* its link is what the context had from the start */
    CUresult result = change(limit, value, device, entry.link, &entry.bytes);
    account_enter(&entry);
    pthread_mutex_unlock(&lock);
    memory_synchronized();
    return result;
}
