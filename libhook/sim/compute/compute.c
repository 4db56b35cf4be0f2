#include "libhook/sim/compute/compute.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    __typeof__(cuInit) *cuInit;
    __typeof__(cuCtxGetCurrent) *cuCtxGetCurrent;
    __typeof__(cuCtxSetCurrent) *cuCtxSetCurrent;
    __typeof__(cuDevicePrimaryCtxRetain) *cuDevicePrimaryCtxRetain;
    __typeof__(cuLibraryLoadData) *cuLibraryLoadData;
    __typeof__(cuLibraryGetKernel) *cuLibraryGetKernel;
    __typeof__(cuLaunchKernel) *cuLaunchKernel;
    __typeof__(cuThreadExchangeStreamCaptureMode) *cuThreadExchangeStreamCaptureMode;
} cu;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool ready;

struct named {
    struct named *next;
    CUkernel kernel;
    char name[];
};
enum { BUCKETS = 1024 };
static struct named *named[BUCKETS];

static void say(const char *what) {
    fprintf(stderr, "gemini: " COMPUTE_NAME " is a stand-in: %s\n", what);
}

void compute_refuse(const char *name, unsigned char *said) {
    char line[160];
    if (__atomic_exchange_n(said, 1, __ATOMIC_RELAXED))
        return;
    snprintf(line, sizeof(line), "%s is not there; it answers that it is not supported", name);
    say(line);
}

static bool load(void) {
    static unsigned char said;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || !dlsym(library, "geminiSimulatedDriver")) {
        if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
            say("it refuses to work, for the driver is no simulated one; use NVIDIA's");
        return false;
    }
#define FIND(symbol, exported) *(void **)&cu.symbol = dlsym(library, exported)
    FIND(cuInit, "cuInit");
    FIND(cuCtxGetCurrent, "cuCtxGetCurrent");
    FIND(cuCtxSetCurrent, "cuCtxSetCurrent");
    FIND(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    FIND(cuLibraryLoadData, "cuLibraryLoadData");
    FIND(cuLibraryGetKernel, "cuLibraryGetKernel");
    FIND(cuLaunchKernel, "cuLaunchKernel");
    FIND(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
    if (cu.cuInit(0))
        return false;
    say("its calls take their time on the simulated card, and nothing is computed");
    return true;
}

bool compute_ready(void) {
    CUcontext context = NULL;
    pthread_mutex_lock(&lock);
    bool loaded = ready || (ready = load());
    pthread_mutex_unlock(&lock);
    if (!loaded)
        return false;
    if (cu.cuCtxGetCurrent(&context) == 0 && context)
        return true;
    return cu.cuDevicePrimaryCtxRetain(&context, 0) == 0 && cu.cuCtxSetCurrent(context) == 0;
}

static unsigned bucket(const char *name) {
    unsigned hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash % BUCKETS;
}

static CUkernel make(const char *name) {
    CUlibrary library;
    CUkernel kernel = NULL;
    char text[512];
    snprintf(text, sizeof(text),
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry %s(.param .u64 flops, .param .u64 bytes, .param .u32 precision)\n{ ret; }\n",
        name);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* loading spoils nobody's capture */
    cu.cuThreadExchangeStreamCaptureMode(&mode);
    if (cu.cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0) == 0)
        cu.cuLibraryGetKernel(&kernel, library, name);
    cu.cuThreadExchangeStreamCaptureMode(&mode);
    return kernel;
}

static CUkernel kernel_of(const char *name) {
    struct named **at = &named[bucket(name)];
    pthread_mutex_lock(&lock);
    struct named *found = *at;
    while (found && strcmp(found->name, name) != 0)
        found = found->next;
    if (!found && (found = calloc(1, sizeof(*found) + strlen(name) + 1))) {
        strcpy(found->name, name);
        found->kernel = make(name);
        if (found->kernel) {
            found->next = *at;
            *at = found;
        } else {
            free(found);
            found = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    return found ? found->kernel : NULL;
}

/* Blocks as a library of tiles of 128 by 128 would take them: what is known of a launch by its grid stays apart. */
static unsigned tiles(const struct work_size *size) {
    uint64_t blocks = ((size->m + 127) / 128) * ((size->n + 127) / 128) * size->batch;
    return blocks < 1 ? 1 : blocks > 1u << 30 ? 1u << 30 : (unsigned)blocks;
}

bool compute_launch(const char *operation, enum roofline_precision precision, const struct work_size *size,
    uint64_t flops, uint64_t bytes, CUstream stream) {
    char name[160];
    uint32_t kind = precision;
    void *arguments[] = {&flops, &bytes, &kind};
    if (!compute_ready())
        return false;
    snprintf(name, sizeof(name), "gemini_work_%s_%llux%llux%llu_b%llu", operation, (unsigned long long)size->m,
        (unsigned long long)size->n, (unsigned long long)size->k, (unsigned long long)size->batch);
    CUkernel kernel = kernel_of(name);
    return kernel &&
           cu.cuLaunchKernel((CUfunction)kernel, tiles(size), 1, 1, 128, 1, 1, 0, stream, arguments, NULL) == 0;
}

bool compute_product(const char *operation, enum roofline_precision precision, unsigned element,
    const struct work_size *s, CUstream stream) {
    if (!s->m || !s->n || !s->batch)
        return true;
    uint64_t flops = 2 * s->m * s->n * s->k * s->batch;
    uint64_t bytes = (s->m * s->k + s->k * s->n + 2 * s->m * s->n) * s->batch * element;
    return compute_launch(operation, precision, s, flops, bytes, stream);
}
