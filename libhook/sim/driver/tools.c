/*
 * What tools are switched on and off by. There is no tool here: a profiler is told to start and nothing happens; what is
 * said of core dumps is remembered for the process, and no core is ever dumped.
 */
#include <pthread.h>
#include <string.h>

#include "libhook/sim/driver/driver.h"

CUresult cuProfilerStart(void) {
    struct CUctx_st *ctx;
    return context_current(&ctx);
}

CUresult cuProfilerStop(void) {
    struct CUctx_st *ctx;
    return context_current(&ctx);
}

/* CUcoredumpSettings, as far as CUDA 12.1 has them: the first four are one byte each, the others text. */
enum { ON_EXCEPTION = 1, TRIGGER_HOST, LIGHTWEIGHT, USER_TRIGGER, FILE_NAME, PIPE_NAME };
enum { LONGEST = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool flags[USER_TRIGGER + 1] = {[TRIGGER_HOST] = true};
static char names[2][LONGEST] = {"core.cuda.%h.%p", "corepipe.cuda.%h.%p"};

CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attribute, void *value, size_t *size) {
    NEED(size && attribute >= ON_EXCEPTION && attribute <= PIPE_NAME, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&lock);
    const void *from = attribute < FILE_NAME ? (const void *)&flags[attribute] : names[attribute - FILE_NAME];
    size_t bytes = attribute < FILE_NAME ? sizeof(bool) : strlen(from) + 1;
    if (value && *size >= bytes)
        memcpy(value, from, bytes);
    CUresult result = value && *size < bytes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    pthread_mutex_unlock(&lock);
    *size = bytes;
    return result;
}

CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attribute, void *value, size_t *size) {
    NEED(value && size && attribute >= ON_EXCEPTION && attribute <= PIPE_NAME, CUDA_ERROR_INVALID_VALUE);
    bool text = attribute >= FILE_NAME;
    NEED(text ? *size < LONGEST : *size == sizeof(bool), CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&lock);
    if (text) {
        memset(names[attribute - FILE_NAME], 0, LONGEST);
        memcpy(names[attribute - FILE_NAME], value, *size);
    } else {
        flags[attribute] = *(bool *)value;
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
