/*
 * Code: fat binaries that programs register at their start, the kernels and variables in them, and launches.
 *
 * A program registers what its compiler put into it, ten thousand kernels at a time, before main. All of that is noted
 * only. A fat binary becomes a library of the driver when the first of its kernels or variables is used.
 */
#include "libhook/sim/runtime/runtime.h"

#include <pthread.h>
#include <stdlib.h>

struct fat {
    const void *image; /* the wrapper that nvcc puts around it; the driver reads it */
    CUlibrary library;
    pthread_mutex_t lock;
};

struct entry {
    const void *host; /* the address that the program knows it by; NULL: a free place */
    const char *name;
    struct fat *fat;
    CUkernel kernel; /* once it was used */
    bool variable;
};

/* Open addressing; a power of two, at most half full. Entries whose fat binary is gone keep their place, without one. */
static struct entry *table;
static size_t places, used;
static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;

static struct entry *place(struct entry *in, size_t size, const void *host) {
    size_t at = ((uintptr_t)host >> 3) * 0x9e3779b97f4a7c15ull & (size - 1);
    while (in[at].host && in[at].host != host)
        at = (at + 1) & (size - 1);
    return &in[at];
}

static void enter(const void *host, const char *name, struct fat *fat, bool variable) {
    pthread_rwlock_wrlock(&table_lock);
    if (2 * (used + 1) > places) {
        size_t more = places ? 2 * places : 1024;
        struct entry *grown = calloc(more, sizeof(*grown));
        if (!grown)
            goto out;
        for (size_t i = 0; i < places; i++)
            if (table[i].host)
                *place(grown, more, table[i].host) = table[i];
        free(table);
        table = grown;
        places = more;
    }
    struct entry *entry = place(table, places, host);
    used += !entry->host;
    *entry = (struct entry){host, name, fat, NULL, variable};
out:
    pthread_rwlock_unlock(&table_lock);
}

static bool find(const void *host, struct entry *out) {
    bool found = false;
    pthread_rwlock_rdlock(&table_lock);
    if (places) {
        const struct entry *entry = place(table, places, host);
        found = entry->host && entry->fat;
        *out = *entry;
    }
    pthread_rwlock_unlock(&table_lock);
    return found;
}

/* ---- what the compiler's start-up code calls ---- */

EXPORT void **__cudaRegisterFatBinary(void *image);
EXPORT void __cudaRegisterFatBinaryEnd(void **handle);
EXPORT void __cudaUnregisterFatBinary(void **handle);
EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads,
    void *tid, void *bid, void *block, void *grid, int *warps);
EXPORT void __cudaRegisterVar(
    void **handle, char *host, char *address, const char *name, int ext, size_t bytes, int constant, int global);
EXPORT void __cudaRegisterManagedVar(
    void **handle, void **host, char *address, const char *name, int ext, size_t bytes, int constant, int global);
EXPORT void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t bytes);
EXPORT void __cudaRegisterUnifiedTable(void **handle, void *unified);
EXPORT char __cudaInitModule(void **handle);

void **__cudaRegisterFatBinary(void *image) {
    struct fat *fat = calloc(1, sizeof(*fat));
    if (fat) {
        fat->image = image;
        pthread_mutex_init(&fat->lock, NULL);
    }
    return (void **)fat;
}

void __cudaRegisterFatBinaryEnd(void **handle) {
    (void)handle;
}

char __cudaInitModule(void **handle) {
    (void)handle;
    return 0;
}

/* Its library stays with the driver: this comes when the process ends, or when a shared object goes that may have
 * kernels in flight. */
void __cudaUnregisterFatBinary(void **handle) {
    pthread_rwlock_wrlock(&table_lock);
    for (size_t i = 0; i < places; i++)
        if (table[i].host && table[i].fat == (struct fat *)handle)
            table[i].fat = NULL;
    pthread_rwlock_unlock(&table_lock);
    free(handle);
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads, void *tid,
    void *bid, void *block, void *grid, int *warps) {
    (void)device, (void)threads, (void)tid, (void)bid, (void)block, (void)grid, (void)warps;
    enter(host, name, (struct fat *)handle, false);
}

void __cudaRegisterVar(
    void **handle, char *host, char *address, const char *name, int ext, size_t bytes, int constant, int global) {
    (void)address, (void)ext, (void)bytes, (void)constant, (void)global;
    enter(host, name, (struct fat *)handle, true);
}

void __cudaRegisterManagedVar(
    void **handle, void **host, char *address, const char *name, int ext, size_t bytes, int constant, int global) {
    (void)address, (void)ext, (void)bytes, (void)constant, (void)global;
    enter(host, name, (struct fat *)handle, true);
}

void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t bytes) {
    (void)bytes;
    enter(host, name, (struct fat *)handle, true);
}

void __cudaRegisterUnifiedTable(void **handle, void *unified) {
    (void)handle, (void)unified;
}

/* ---- kernels and variables ---- */

/* Loading code is nothing that a capture elsewhere may be spoilt by: as with the real runtime's lazy loading. */
static cudaError_t load(struct fat *fat) {
    cudaError_t result = cudaSuccess;
    pthread_mutex_lock(&fat->lock);
    if (!fat->library) {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        cu.cuThreadExchangeStreamCaptureMode(&mode);
        result = (cudaError_t)cu.cuLibraryLoadData(&fat->library, fat->image, NULL, NULL, 0, NULL, NULL, 0);
        cu.cuThreadExchangeStreamCaptureMode(&mode);
    }
    pthread_mutex_unlock(&fat->lock);
    return result;
}

cudaError_t runtime_kernel(const void *function, CUkernel *kernel) {
    struct entry entry;
    NEED(function, cudaErrorInvalidDeviceFunction);
    if (!find(function, &entry)) {
        const char *name; /* cudaGetKernel and cudaLibraryGetKernel give the driver's own handles */
        *kernel = (CUkernel)function;
        NEED(cu.cuKernelGetName(&name, *kernel) == 0, cudaErrorInvalidDeviceFunction);
        return cudaSuccess;
    }
    NEED(!entry.variable, cudaErrorInvalidDeviceFunction);
    *kernel = entry.kernel;
    if (*kernel)
        return cudaSuccess;
    TRY(load(entry.fat));
    cudaError_t result = (cudaError_t)cu.cuLibraryGetKernel(kernel, entry.fat->library, entry.name);
    NEED(result != cudaErrorSymbolNotFound, cudaErrorInvalidDeviceFunction);
    TRY(result);
    pthread_rwlock_wrlock(&table_lock);
    place(table, places, function)->kernel = *kernel;
    pthread_rwlock_unlock(&table_lock);
    return cudaSuccess;
}

cudaError_t runtime_symbol(const void *symbol, CUdeviceptr *address, size_t *bytes) {
    struct entry entry;
    NEED(symbol && find(symbol, &entry) && entry.variable, cudaErrorInvalidSymbol);
    TRY(load(entry.fat));
    cudaError_t result = (cudaError_t)cu.cuLibraryGetGlobal(address, bytes, entry.fat->library, entry.name);
    return runtime_end(result == cudaErrorSymbolNotFound ? cudaErrorInvalidSymbol : result);
}

static cudaError_t address_of(void **pointer, const void *symbol) {
    CUdeviceptr address;
    NEED(pointer, cudaErrorInvalidValue);
    TRY(runtime_symbol(symbol, &address, NULL));
    *pointer = (void *)address;
    return cudaSuccess;
}
CALL(cudaGetSymbolAddress, (void **pointer, const void *symbol), address_of(pointer, symbol))
CALL(cudaGetSymbolSize, (size_t *bytes, const void *symbol), runtime_symbol(symbol, NULL, bytes))
CALL(__cudaGetKernel, (cudaKernel_t * kernel, const void *function), runtime_kernel(function, kernel))
CALL(cudaGetKernel, (cudaKernel_t * kernel, const void *function), runtime_kernel(function, kernel))

static cudaError_t function_of(cudaFunction_t *function, const void *symbol) {
    CUkernel kernel;
    TRY(runtime_kernel(symbol, &kernel));
    return (cudaError_t)cu.cuKernelGetFunction(function, kernel);
}
CALL(cudaGetFuncBySymbol, (cudaFunction_t * function, const void *symbol), function_of(function, symbol))

/* ---- launches ---- */

struct configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
enum { DEEPEST = 16 };
static _Thread_local struct configuration pushed[DEEPEST];
static _Thread_local int depth;

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream);
EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    if (depth == DEEPEST)
        return 1;
    pushed[depth++] = (struct configuration){grid, block, shared, stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    NEED(depth > 0, cudaErrorMissingConfiguration);
    const struct configuration *top = &pushed[--depth];
    *grid = top->grid;
    *block = top->block;
    *shared = top->shared;
    *(cudaStream_t *)stream = top->stream;
    return cudaSuccess;
}

/* A shape that no card takes has an error of its own in the runtime. */
static cudaError_t launched(CUresult result) {
    return result == CUDA_ERROR_INVALID_VALUE ? cudaErrorInvalidConfiguration : (cudaError_t)result;
}

static cudaError_t launch_kernel(
    CUkernel kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    return launched(cu.cuLaunchKernel((CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
        (unsigned int)shared, stream, arguments, NULL));
}

static cudaError_t launch(
    const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    CUkernel kernel;
    TRY(runtime_kernel(function, &kernel));
    return launch_kernel(kernel, grid, block, arguments, shared, stream);
}
STREAM(cudaLaunchKernel,
    (const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream),
    launch(function, grid, block, arguments, shared, stream))
STREAM(__cudaLaunchKernel,
    (cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream),
    launch_kernel(kernel, grid, block, arguments, shared, stream))

static cudaError_t cooperative(
    const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    CUkernel kernel;
    TRY(runtime_kernel(function, &kernel));
    return launched(cu.cuLaunchCooperativeKernel((CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
        (unsigned int)shared, stream, arguments));
}
STREAM(cudaLaunchCooperativeKernel,
    (const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream),
    cooperative(function, grid, block, arguments, shared, stream))

static CUlaunchConfig shape_of(const cudaLaunchConfig_t *config, cudaStream_t stream) {
    return (CUlaunchConfig){config->gridDim.x, config->gridDim.y, config->gridDim.z, config->blockDim.x,
        config->blockDim.y, config->blockDim.z, (unsigned int)config->dynamicSmemBytes, stream, config->attrs,
        config->numAttrs};
}

static cudaError_t launch_ex(const cudaLaunchConfig_t *config, const void *function, void **arguments, bool own) {
    CUkernel kernel;
    NEED(config, cudaErrorInvalidConfiguration);
    TRY(runtime_kernel(function, &kernel));
    CUlaunchConfig shape = shape_of(config, own && !config->stream ? CU_STREAM_PER_THREAD : config->stream);
    return launched(cu.cuLaunchKernelEx(&shape, (CUfunction)kernel, arguments, NULL));
}
CALL(cudaLaunchKernelExC, (const cudaLaunchConfig_t *config, const void *function, void **arguments),
    launch_ex(config, function, arguments, false))
CALL(cudaLaunchKernelExC_ptsz, (const cudaLaunchConfig_t *config, const void *function, void **arguments),
    launch_ex(config, function, arguments, true))

/* ---- functions: attributes and occupancy ---- */

static cudaError_t attributes(struct cudaFuncAttributes *out, const void *function) {
    CUkernel kernel;
    int device, value;
    NEED(out, cudaErrorInvalidValue);
    TRY(runtime_kernel(function, &kernel));
    TRY(cu.cuCtxGetDevice(&device));
    memset(out, 0, sizeof(*out));
    void *const field[] = {&out->maxThreadsPerBlock, NULL, NULL, NULL, &out->numRegs, &out->ptxVersion,
        &out->binaryVersion, &out->cacheModeCA, &out->maxDynamicSharedSizeBytes, &out->preferredShmemCarveout,
        &out->clusterDimMustBeSet, &out->requiredClusterWidth, &out->requiredClusterHeight, &out->requiredClusterDepth,
        &out->nonPortableClusterSizeAllowed, &out->clusterSchedulingPolicyPreference};
    size_t *const bytes[] = {NULL, &out->sharedSizeBytes, &out->constSizeBytes, &out->localSizeBytes};
    for (int i = 0; i < 16; i++) { /* in the order of the driver's attributes */
        TRY(cu.cuKernelGetAttribute(&value, i, kernel, device));
        if (field[i])
            *(int *)field[i] = value;
        else
            *bytes[i] = (size_t)value;
    }
    return cudaSuccess;
}
CALL(cudaFuncGetAttributes, (struct cudaFuncAttributes * out, const void *function), attributes(out, function))

static cudaError_t set_attribute(const void *function, int attribute, int value) {
    CUkernel kernel;
    int device;
    TRY(runtime_kernel(function, &kernel));
    TRY(cu.cuCtxGetDevice(&device));
    return (cudaError_t)cu.cuKernelSetAttribute(attribute, value, kernel, device);
}
CALL(cudaFuncSetAttribute, (const void *function, int attribute, int value), set_attribute(function, attribute, value))
START(cudaKernelSetAttributeForDevice, (cudaKernel_t kernel, int attribute, int value, int device),
    cu.cuKernelSetAttribute(attribute, value, kernel, device))

#define OF_KERNEL(name, parameters, ...)                                                                               \
    static cudaError_t of_##name parameters {                                                                          \
        CUkernel kernel;                                                                                               \
        TRY(runtime_kernel(function, &kernel));                                                                        \
        return (cudaError_t)(__VA_ARGS__);                                                                             \
    }
OF_KERNEL(cache, (const void *function, int config), cu.cuFuncSetCacheConfig((CUfunction)kernel, config))
CALL(cudaFuncSetCacheConfig, (const void *function, int config), of_cache(function, config))
CALL(cudaFuncSetSharedMemConfig, (const void *function, int config), of_cache(function, config))
OF_KERNEL(name, (const char **name, const void *function), cu.cuKernelGetName(name, kernel))
CALL(cudaFuncGetName, (const char **name, const void *function), of_name(name, function))
OF_KERNEL(parameter, (const void *function, size_t index, size_t *offset, size_t *bytes),
    cu.cuKernelGetParamInfo(kernel, index, offset, bytes))
CALL(cudaFuncGetParamInfo, (const void *function, size_t index, size_t *offset, size_t *bytes),
    of_parameter(function, index, offset, bytes))
OF_KERNEL(occupancy, (int *blocks, const void *function, int threads, size_t shared, unsigned int flags),
    cu.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, (CUfunction)kernel, threads, shared, flags))
CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, const void *function, int threads, size_t shared),
    of_occupancy(blocks, function, threads, shared, 0))
CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
    (int *blocks, const void *function, int threads, size_t shared, unsigned int flags),
    of_occupancy(blocks, function, threads, shared, flags))
OF_KERNEL(room, (size_t *bytes, const void *function, int blocks, int threads),
    cu.cuOccupancyAvailableDynamicSMemPerBlock(bytes, (CUfunction)kernel, blocks, threads))
CALL(cudaOccupancyAvailableDynamicSMemPerBlock, (size_t *bytes, const void *function, int blocks, int threads),
    of_room(bytes, function, blocks, threads))

static cudaError_t clusters(int *out, const void *function, const cudaLaunchConfig_t *config, bool active) {
    CUkernel kernel;
    NEED(config, cudaErrorInvalidValue);
    TRY(runtime_kernel(function, &kernel));
    CUlaunchConfig shape = shape_of(config, config->stream);
    return (cudaError_t)(active ? cu.cuOccupancyMaxActiveClusters(out, (CUfunction)kernel, &shape)
                                : cu.cuOccupancyMaxPotentialClusterSize(out, (CUfunction)kernel, &shape));
}
CALL(cudaOccupancyMaxActiveClusters, (int *out, const void *function, const cudaLaunchConfig_t *config),
    clusters(out, function, config, true))
CALL(cudaOccupancyMaxPotentialClusterSize, (int *out, const void *function, const cudaLaunchConfig_t *config),
    clusters(out, function, config, false))

/* ---- libraries ---- */

START(cudaLibraryLoadData,
    (cudaLibrary_t * library, const void *code, CUjit_option *jit, void **jit_values, unsigned int jits,
        CUlibraryOption *options, void **values, unsigned int count),
    cu.cuLibraryLoadData(library, code, jit, jit_values, jits, options, values, count))
START(cudaLibraryLoadFromFile,
    (cudaLibrary_t * library, const char *file, CUjit_option *jit, void **jit_values, unsigned int jits,
        CUlibraryOption *options, void **values, unsigned int count),
    cu.cuLibraryLoadFromFile(library, file, jit, jit_values, jits, options, values, count))
START(cudaLibraryUnload, (cudaLibrary_t library), cu.cuLibraryUnload(library))
START(cudaLibraryGetKernel, (cudaKernel_t * kernel, cudaLibrary_t library, const char *name),
    cu.cuLibraryGetKernel(kernel, library, name))
START(
    cudaLibraryGetKernelCount, (unsigned int *count, cudaLibrary_t library), cu.cuLibraryGetKernelCount(count, library))
START(cudaLibraryEnumerateKernels, (cudaKernel_t * kernels, unsigned int count, cudaLibrary_t library),
    cu.cuLibraryEnumerateKernels(kernels, count, library))
CALL(cudaLibraryGetGlobal, (void **pointer, size_t *bytes, cudaLibrary_t library, const char *name),
    cu.cuLibraryGetGlobal((CUdeviceptr *)pointer, bytes, library, name))
CALL(cudaLibraryGetManaged, (void **pointer, size_t *bytes, cudaLibrary_t library, const char *name),
    cu.cuLibraryGetManaged((CUdeviceptr *)pointer, bytes, library, name))
CALL(cudaLibraryGetUnifiedFunction, (void **function, cudaLibrary_t library, const char *name),
    cu.cuLibraryGetUnifiedFunction(function, library, name))
