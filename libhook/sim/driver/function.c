/* Functions and kernels: attributes, parameters, occupancy. */
#include <stdlib.h>

#include "libhook/sim/driver/module.h"
#include "libhook/sim/model/roofline.h"

enum { ATTRIBUTES = 16, SHARED_MOST = 232448, SHARED_SM = 233472, THREADS_SM = 2048, BLOCKS_SM = 32 };

CUresult module_facts(CUfunction handle, struct CUctx_st *ctx, const struct kernel_facts **out) {
    if (slab_has(SLAB_FUNCTION, handle)) {
        NEED(handle->module->ctx == ctx, CUDA_ERROR_INVALID_HANDLE);
        *out = handle->facts;
        return CUDA_SUCCESS;
    }
    NEED(slab_has(SLAB_KERNEL, handle), CUDA_ERROR_INVALID_HANDLE);
    *out = ((CUkernel)handle)->facts;
    return CUDA_SUCCESS;
}

/* Where it stands whether this function, or kernel, is loaded. */
static _Atomic bool *loaded_of(CUfunction handle) {
    if (!slab_has(SLAB_FUNCTION, handle))
        return &((CUkernel)handle)->loaded;
    struct CUlib_st *library = handle->module->library;
    return library ? &library->kernel[handle->facts - library->image->kernel]->loaded : &handle->loaded;
}

void function_load(CUfunction handle) {
    _Atomic bool *loaded = loaded_of(handle);
    if (!spec()->load_ns || atomic_load_explicit(loaded, memory_order_relaxed) || atomic_exchange(loaded, true))
        return;
    sim_sleep(sim_now() + spec()->load_ns);
}

static CUresult function_of(CUfunction handle, struct CUfunc_st **out) {
    INIT();
    NEED(slab_has(SLAB_FUNCTION, handle), CUDA_ERROR_INVALID_HANDLE);
    *out = handle;
    return CUDA_SUCCESS;
}

static CUresult kernel_of(CUkernel handle, struct CUkern_st **out) {
    INIT();
    NEED(slab_has(SLAB_KERNEL, handle), CUDA_ERROR_INVALID_HANDLE);
    *out = handle;
    return CUDA_SUCCESS;
}

/* Attributes of either: a kernel may stand where a function is asked for. */
static CUresult attributes_of(CUfunction handle, int **out) {
    INIT();
    if (slab_has(SLAB_FUNCTION, handle))
        *out = handle->attribute;
    else if (slab_has(SLAB_KERNEL, handle))
        *out = ((CUkernel)handle)->attribute;
    else
        return CUDA_ERROR_INVALID_HANDLE;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle) {
    int *attributes;
    NEED(value && attribute >= 0 && attribute < ATTRIBUTES, CUDA_ERROR_INVALID_VALUE);
    TRY(attributes_of(handle, &attributes));
    *value = attributes[attribute];
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    int *attributes;
    NEED(attribute >= 8 && attribute < ATTRIBUTES, CUDA_ERROR_INVALID_VALUE);
    NEED(attribute != 8 || (value >= 0 && value <= SHARED_MOST), CUDA_ERROR_INVALID_VALUE);
    TRY(attributes_of(handle, &attributes));
    attributes[attribute] = value;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
    INIT();
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    return cuFuncGetAttribute(value, attribute, (CUfunction)kernel);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
    INIT();
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    return cuFuncSetAttribute((CUfunction)kernel, attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
    int *attributes;
    (void)config;
    return attributes_of(handle, &attributes);
}

CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
    return cuFuncSetCacheConfig(handle, config);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
    INIT();
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    return cuFuncSetCacheConfig((CUfunction)kernel, config);
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction handle) {
    struct CUfunc_st *function;
    NEED(module, CUDA_ERROR_INVALID_VALUE);
    TRY(function_of(handle, &function));
    *module = function->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction handle) {
    struct CUfunc_st *function;
    NEED(name, CUDA_ERROR_INVALID_VALUE);
    TRY(function_of(handle, &function));
    *name = function->facts->name;
    return CUDA_SUCCESS;
}

static CUresult parameter(const struct kernel_facts *facts, size_t index, size_t *offset, size_t *bytes) {
    NEED(offset && index < facts->parameters, CUDA_ERROR_INVALID_VALUE);
    *offset = facts->parameter[index].offset;
    if (bytes)
        *bytes = facts->parameter[index].bytes;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *bytes) {
    struct CUfunc_st *function;
    TRY(function_of(handle, &function));
    return parameter(function->facts, index, offset, bytes);
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *bytes) {
    struct CUkern_st *kernel;
    TRY(kernel_of(handle, &kernel));
    return parameter(kernel->facts, index, offset, bytes);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle) {
    struct CUfunc_st *function;
    NEED(state, CUDA_ERROR_INVALID_VALUE);
    TRY(function_of(handle, &function));
    *state = !spec()->load_ns || atomic_load(loaded_of(handle));
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle) {
    struct CUfunc_st *function;
    if (slab_has(SLAB_KERNEL, handle) && spec()->fatal_handle)
        abort();
    TRY(function_of(handle, &function));
    function_load(handle);
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel handle) {
    struct CUkern_st *kernel;
    struct CUmod_st *module;
    NEED(function, CUDA_ERROR_INVALID_VALUE);
    if (slab_has(SLAB_FUNCTION, handle) && spec()->fatal_handle)
        abort();
    TRY(kernel_of(handle, &kernel));
    TRY(cuLibraryGetModule(&module, kernel->library));
    *function = module->function[kernel->facts - kernel->library->image->kernel];
    return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel handle) {
    struct CUkern_st *kernel;
    NEED(library, CUDA_ERROR_INVALID_VALUE);
    TRY(kernel_of(handle, &kernel));
    *library = kernel->library;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel handle) {
    struct CUkern_st *kernel;
    NEED(name, CUDA_ERROR_INVALID_VALUE);
    TRY(kernel_of(handle, &kernel));
    *name = kernel->facts->name;
    return CUDA_SUCCESS;
}

/* ---- occupancy: threads, blocks and shared memory of a multiprocessor; registers are taken as plenty ---- */

static int resident(int threads, size_t shared) {
    int blocks = THREADS_SM / ((threads + 31) / 32 * 32);
    int by_shared = (int)(SHARED_SM / (shared + 1024));
    blocks = blocks < BLOCKS_SM ? blocks : BLOCKS_SM;
    return blocks < by_shared ? blocks : by_shared;
}

uint64_t function_parts(const struct kernel_facts *facts, const CUDA_KERNEL_NODE_PARAMS *p) {
    uint64_t blocks = (uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ;
    int fit = resident((int)(p->blockDimX * p->blockDimY * p->blockDimZ), p->sharedMemBytes + facts->shared_bytes);
    uint64_t room = (uint64_t)(fit > 0 ? fit : 1) * (uint64_t)roofline_of(spec()->profile)->multiprocessors;
    return blocks < room ? (blocks * SIM_WHOLE + room - 1) / room : SIM_WHOLE;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, CUfunction handle, int threads, size_t shared, unsigned int flags) {
    int *attributes;
    NEED(blocks && threads > 0 && flags <= 1, CUDA_ERROR_INVALID_VALUE);
    TRY(attributes_of(handle, &attributes));
    *blocks = threads > attributes[0] ? 0 : resident(threads, shared + (size_t)attributes[1]);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle, int threads, size_t shared) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, threads, shared, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction handle,
    CUoccupancyB2DSize shared_of, size_t shared, int limit, unsigned int flags) {
    int *attributes, best = 0;
    NEED(grid && block && flags <= 1 && limit >= 0, CUDA_ERROR_INVALID_VALUE);
    TRY(attributes_of(handle, &attributes));
    int most = limit && limit < attributes[0] ? limit : attributes[0];
    *block = *grid = 0;
    for (int threads = most; threads > 0; threads -= threads % 32 ? threads % 32 : 32) {
        int blocks = resident(threads, (shared_of ? shared_of(threads) : shared) + (size_t)attributes[1]);
        if (blocks * threads > best) {
            best = blocks * threads;
            *block = threads;
            *grid = blocks * 132;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(
    int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of, size_t shared, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, shared_of, shared, limit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle, int blocks, int threads) {
    int *attributes;
    NEED(bytes && blocks > 0 && threads > 0, CUDA_ERROR_INVALID_VALUE);
    TRY(attributes_of(handle, &attributes));
    size_t each = SHARED_SM / (size_t)blocks - 1024;
    *bytes = each < SHARED_MOST ? each : SHARED_MOST;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *cluster, CUfunction handle, const CUlaunchConfig *config) {
    int *attributes;
    NEED(cluster && config, CUDA_ERROR_INVALID_VALUE);
    TRY(attributes_of(handle, &attributes));
    *cluster = attributes[14] ? 16 : 8;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction handle, const CUlaunchConfig *config) {
    int *attributes;
    NEED(clusters && config, CUDA_ERROR_INVALID_VALUE);
    TRY(attributes_of(handle, &attributes));
    int threads = (int)(config->blockDimX * config->blockDimY * config->blockDimZ);
    NEED(threads > 0, CUDA_ERROR_INVALID_VALUE);
    *clusters = resident(threads, config->sharedMemBytes) * 132 / 8;
    return CUDA_SUCCESS;
}
