/* Starting up: the driver, the thread's context, and errors. */
#include "libhook/sim/runtime/runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

struct runtime_driver cu;
_Thread_local struct runtime_thread runtime_thread;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int state; /* enum */
enum { UNTRIED, STARTED, FAILED, FORKED };
static cudaError_t failure;

static CUresult missing(void) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

static void say(const char *what) {
    fprintf(stderr, "gemini: the simulated CUDA runtime: %s\n", what);
}

cudaError_t runtime_refuse(const char *name, unsigned char *said) {
    if (!__atomic_exchange_n(said, 1, __ATOMIC_RELAXED)) {
        char line[160];
        snprintf(line, sizeof(line), "%s is not there; it answers cudaErrorNotSupported", name);
        say(line);
    }
    return runtime_end(cudaErrorNotSupported);
}

enum { LEGACY, PER_THREAD, ANY };
static const struct {
    const char *name;
    unsigned short since;
    unsigned char flavour;
} rows[] = {
#define HOOK(symbol, name, since, flavour, class_) {name, since, flavour},
#define PASS(symbol, name, since, flavour, reason) {name, since, flavour},
#include "libhook/driver/cuda_hooks.h"
};

static cudaError_t load(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return cudaErrorInsufficientDriver;
    if (!dlsym(library, "geminiSimulatedDriver")) {
        say("the driver is no simulated one; use NVIDIA's libcudart with it");
        return cudaErrorSystemDriverMismatch;
    }
    CUresult (*find)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    *(void **)&find = dlsym(library, "cuGetProcAddress_v2");
    if (!find)
        return cudaErrorInsufficientDriver;
    void **entry = (void **)&cu;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CUdriverProcAddressQueryResult status;
        void *found = NULL;
        if (find(rows[i].name, &found, rows[i].since, rows[i].flavour == PER_THREAD ? 2 : 0, &status) || !found)
            found = (void *)missing;
        entry[i] = found;
    }
    return (cudaError_t)cu.cuInit(0);
}

static void forked(void) {
    state = FORKED;
    pthread_mutex_init(&lock, NULL);
}

static cudaError_t start_slowly(void) {
    pthread_mutex_lock(&lock);
    if (state == UNTRIED) {
        failure = load();
        if (!failure)
            pthread_atfork(NULL, NULL, forked);
        state = failure ? FAILED : STARTED;
    }
    int now = state;
    pthread_mutex_unlock(&lock);
    return now == STARTED ? cudaSuccess : now == FORKED ? cudaErrorInitializationError : failure;
}

cudaError_t runtime_start(void) {
    return __builtin_expect(state == STARTED, 1) ? cudaSuccess : start_slowly();
}

cudaError_t runtime_ready(void) {
    CUcontext context = NULL;
    cudaError_t result = runtime_start();
    if (__builtin_expect(result != 0, 0))
        return result;
    if (__builtin_expect(cu.cuCtxGetCurrent(&context) == 0 && context, 1))
        return cudaSuccess;
    result = runtime_primary(runtime_thread.device, &context);
    return result ? result : (cudaError_t)cu.cuCtxSetCurrent(context);
}

/* ---- errors ---- */

EXPORT cudaError_t cudaGetLastError(void);
EXPORT cudaError_t cudaPeekAtLastError(void);
EXPORT const char *cudaGetErrorName(cudaError_t error);
EXPORT const char *cudaGetErrorString(cudaError_t error);

cudaError_t cudaGetLastError(void) {
    cudaError_t last = runtime_thread.last;
    runtime_thread.last = cudaSuccess;
    return last;
}

cudaError_t cudaPeekAtLastError(void) {
    return runtime_thread.last;
}

const char *cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define NAME(name, value)                                                                                              \
    case name: return #name;
        CUDART_ERRORS(NAME)
    default: return "unrecognized error code";
    }
}

/* The driver's words where it has the number too; else what the name says. */
const char *cudaGetErrorString(cudaError_t error) {
    switch (error) {
#define WORDS(name, value, words)                                                                                      \
    case value: return words;
        CUDA_ERRORS(WORDS)
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    case cudaErrorInvalidSymbol: return "invalid device symbol";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorInvalidMemcpyDirection: return "invalid copy direction for memcpy";
    case cudaErrorInvalidPitchValue: return "invalid pitch argument";
    case cudaErrorMissingConfiguration: return "launch without a configuration";
    default: return cudaGetErrorName(error);
    }
}
