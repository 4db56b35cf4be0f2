/*
 * Launches of every kind. A kernel computes nothing; it takes its time. `gemini_spin` says how long in its first
 * argument, in nanoseconds; `gemini_collective(ns, group, peers)` runs that long once `peers` of the group run; any
 * other takes what the table file, its profile (roofline.h) or spec.kernel_ns says. `gemini_work_*(flops, bytes, precision)`
 * are the launches of the stand-ins for compute libraries (libhook/sim/compute).
 */
#include <stdlib.h>

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/event.h"
#include "libhook/sim/driver/host.h"
#include "libhook/sim/driver/module.h"
#include "libhook/sim/driver/queue.h"
#include "libhook/sim/driver/op_run.h"
#include "libhook/sim/model/roofline.h"

/* Argument number i, 8 bytes of it, wherever the launch put it. */
static bool argument(
    const struct kernel_facts *facts, void **params, void **extra, uint32_t i, void *to, size_t bytes) {
    if (i >= facts->parameters)
        return false;
    if (params) {
        if (!params[i])
            return false;
        memcpy(to, params[i], bytes);
        return true;
    }
    const char *buffer = NULL;
    size_t have = 0;
    for (; extra && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            have = *(const size_t *)extra[1];
    }
    if (!buffer || facts->parameter[i].offset + bytes > have)
        return false;
    memcpy(to, buffer + facts->parameter[i].offset, bytes);
    return true;
}

static CUresult check_shape(const CUDA_KERNEL_NODE_PARAMS *p) {
    uint64_t threads = (uint64_t)p->blockDimX * p->blockDimY * p->blockDimZ;
    NEED(p->gridDimX && p->gridDimY && p->gridDimZ && threads, CUDA_ERROR_INVALID_VALUE);
    NEED(p->gridDimX <= 2147483647u && p->gridDimY <= 65535 && p->gridDimZ <= 65535, CUDA_ERROR_INVALID_VALUE);
    NEED(threads <= 1024 && p->blockDimZ <= 64 && p->sharedMemBytes <= 232448, CUDA_ERROR_INVALID_VALUE);
    NEED(!(p->kernelParams && p->extra), CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static uint64_t spread(uint64_t ns) {
    static _Thread_local uint64_t draws;
    return *spec()->profile ? roofline_spread(ns, (uintptr_t)&draws + ++draws) : ns;
}

static CUresult time_of(const struct kernel_facts *facts, const CUDA_KERNEL_NODE_PARAMS *p, struct work *work) {
    void **const params = p->kernelParams, **const extra = p->extra;
    work->kind = SIM_KERNEL;
    work->kernels = 1;
    work->duration_ns = facts->fixed_ns;
    if (spec()->overlap)
        work->until = function_parts(facts, p);
    if (facts->by_shape) {
        uint64_t blocks = (uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ;
        uint64_t threads = (uint64_t)p->blockDimX * p->blockDimY * p->blockDimZ;
        work->duration_ns = spread(roofline_shape_ns(roofline_of(spec()->profile), blocks * threads));
        return CUDA_SUCCESS;
    }
    if (facts->work) {
        uint64_t flops, bytes;
        uint32_t precision;
        NEED(argument(facts, params, extra, 0, &flops, 8) && argument(facts, params, extra, 1, &bytes, 8) &&
                 argument(facts, params, extra, 2, &precision, 4),
            CUDA_ERROR_INVALID_VALUE);
        work->duration_ns = spread(roofline_ns(roofline_of(spec()->profile), flops, bytes, precision));
        return CUDA_SUCCESS;
    }
    if (__builtin_expect(facts->fixed_ns == 0, 1)) {
        NEED(argument(facts, params, extra, 0, &work->duration_ns, 8), CUDA_ERROR_INVALID_VALUE);
        if (facts->collective) {
            NEED(argument(facts, params, extra, 1, &work->arg, 8) && argument(facts, params, extra, 2, &work->peers, 4),
                CUDA_ERROR_INVALID_VALUE);
            work->kind = SIM_COLLECTIVE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult op_kernel_resolve(struct op_kernel *kernel) {
    struct work work = {0};
    struct CUctx_st *ctx = kernel->params.ctx;
    if (!ctx)
        TRY(context_current(&ctx));
    TRY(check_shape(&kernel->params));
    CUfunction handle = kernel->params.func ? kernel->params.func : (CUfunction)kernel->params.kern;
    TRY(module_facts(handle, ctx, &kernel->facts));
    TRY(time_of(kernel->facts, &kernel->params, &work));
    kernel->duration_ns = work.duration_ns;
    kernel->group = work.arg;
    kernel->peers = work.peers;
    kernel->parts = work.until;
    return CUDA_SUCCESS;
}

static CUresult launch(
    const CUDA_KERNEL_NODE_PARAMS *params, CUstream handle, bool per_thread, const CUlaunchConfig *config) {
    struct CUctx_st *current;
    struct CUstream_st *stream;
    const struct kernel_facts *facts;
    struct work work = {0};
    TRY(context_current(&current));
    TRY(stream_of(handle, per_thread, &stream));
    TRY(check_shape(params));
    TRY(module_facts(params->func, stream->ctx, &facts));
    TRY(time_of(facts, params, &work));
    if (stream_capturing(stream)) {
        struct op op = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
        op.kernel.params = *params;
        op.kernel.facts = facts;
        op.kernel.duration_ns = work.duration_ns;
        op.kernel.group = work.arg;
        op.kernel.peers = work.peers;
        op.kernel.parts = work.until;
        for (unsigned int i = 0; config && i < config->numAttrs; i++)
            if (config->attrs[i].id > 0 && config->attrs[i].id < 20)
                op.kernel.attribute[config->attrs[i].id] = config->attrs[i].value;
        return capture_op(stream, &op);
    }
    TRY(capture_check_legacy(stream));
    function_load(params->func);
    TRY(queue_push(stream, &work, NULL));
    for (unsigned int i = 0; config && i < config->numAttrs; i++) {
        CUevent event = config->attrs[i].value.launchCompletionEvent.event;
        bool marks = config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT ||
                     config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
        if (marks && slab_has(SLAB_EVENT, event))
            TRY(event_record(event, stream));
    }
    return CUDA_SUCCESS;
}

#define PARAMS                                                                                                         \
    (&(CUDA_KERNEL_NODE_PARAMS){.func = function,                                                                      \
        .gridDimX = grid_dim_x,                                                                                        \
        .gridDimY = grid_dim_y,                                                                                        \
        .gridDimZ = grid_dim_z,                                                                                        \
        .blockDimX = block_dim_x,                                                                                      \
        .blockDimY = block_dim_y,                                                                                      \
        .blockDimZ = block_dim_z,                                                                                      \
        .sharedMemBytes = shared_mem_bytes,                                                                            \
        .kernelParams = kernel_params,                                                                                 \
        .extra = extra})

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_dim_x, unsigned int grid_dim_y, unsigned int grid_dim_z,
    unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z, unsigned int shared_mem_bytes,
    CUstream stream, void **kernel_params, void **extra) {
    return launch(PARAMS, stream, false, NULL);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_dim_x, unsigned int grid_dim_y,
    unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z,
    unsigned int shared_mem_bytes, CUstream stream, void **kernel_params, void **extra) {
    return launch(PARAMS, stream, true, NULL);
}

/* All blocks of a cooperative launch must fit on the card at once. */
static CUresult cooperative(const CUDA_KERNEL_NODE_PARAMS *params, CUstream stream, bool per_thread) {
    int blocks;
    TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, params->func,
        (int)(params->blockDimX * params->blockDimY * params->blockDimZ), params->sharedMemBytes));
    NEED((uint64_t)params->gridDimX * params->gridDimY * params->gridDimZ <= (uint64_t)blocks * 132,
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    return launch(params, stream, per_thread, NULL);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_dim_x, unsigned int grid_dim_y,
    unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z,
    unsigned int shared_mem_bytes, CUstream stream, void **kernel_params) {
    void **extra = NULL;
    return cooperative(PARAMS, stream, false);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_dim_x, unsigned int grid_dim_y,
    unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z,
    unsigned int shared_mem_bytes, CUstream stream, void **kernel_params) {
    void **extra = NULL;
    return cooperative(PARAMS, stream, true);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags) {
    NEED(launches && count && flags < 4, CUDA_ERROR_INVALID_VALUE);
    for (unsigned int i = 0; i < count; i++) {
        const CUDA_LAUNCH_PARAMS *p = &launches[i];
        TRY(cuLaunchCooperativeKernel(p->function, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY,
            p->blockDimZ, p->sharedMemBytes, p->hStream, p->kernelParams));
    }
    return CUDA_SUCCESS;
}

static CUresult launch_ex(
    const CUlaunchConfig *config, CUfunction function, void **kernel_params, void **extra, bool per_thread) {
    NEED(config && (config->attrs || !config->numAttrs), CUDA_ERROR_INVALID_VALUE);
    const CUDA_KERNEL_NODE_PARAMS params = {
        .func = function,
        .gridDimX = config->gridDimX,
        .gridDimY = config->gridDimY,
        .gridDimZ = config->gridDimZ,
        .blockDimX = config->blockDimX,
        .blockDimY = config->blockDimY,
        .blockDimZ = config->blockDimZ,
        .sharedMemBytes = config->sharedMemBytes,
        .kernelParams = kernel_params,
        .extra = extra,
    };
    return launch(&params, config->hStream, per_thread, config);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **kernel_params, void **extra) {
    return launch_ex(config, function, kernel_params, extra, false);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **kernel_params, void **extra) {
    return launch_ex(config, function, kernel_params, extra, true);
}

/* The launches of CUDA 2, whose arguments were set one by one beforehand: there are none to find here. */
CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    unsigned int grid_dim_x = (unsigned int)width, grid_dim_y = (unsigned int)height, grid_dim_z = 1;
    unsigned int block_dim_x = 1, block_dim_y = 1, block_dim_z = 1, shared_mem_bytes = 0;
    void **kernel_params = NULL, **extra = NULL;
    NEED(width > 0 && height > 0, CUDA_ERROR_INVALID_VALUE);
    return launch(PARAMS, stream, false, NULL);
}

CUresult cuLaunchGrid(CUfunction function, int width, int height) {
    return cuLaunchGridAsync(function, width, height, NULL);
}

CUresult cuLaunch(CUfunction function) {
    return cuLaunchGridAsync(function, 1, 1, NULL);
}

/* ---- host functions ---- */

struct call {
    CUhostFn function;
    CUstreamCallback callback;
    CUstream stream;
    void *data;
};

static bool run_call(void *argument) {
    const struct call *call = argument;
    if (call->function)
        call->function(call->data);
    else
        call->callback(call->stream, CUDA_SUCCESS, call->data);
    return true;
}

static CUresult push_call(struct CUstream_st *stream, const struct call *what) {
    struct call *call = malloc(sizeof(*call));
    NEED(call, CUDA_ERROR_OUT_OF_MEMORY);
    *call = *what;
    CUresult result = host_push(stream, &(struct host_step){run_call, free, call, true});
    if (result)
        free(call);
    return result;
}

CUresult op_host_run(struct CUstream_st *stream, const CUDA_HOST_NODE_PARAMS *host) {
    return push_call(stream, &(struct call){.function = host->fn, .data = host->userData});
}

static CUresult launch_host(CUstream handle, CUhostFn function, void *data, bool per_thread) {
    struct CUstream_st *stream;
    NEED(function, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, per_thread, &stream));
    return op_submit(stream, &(struct op){.type = CU_GRAPH_NODE_TYPE_HOST, .host = {function, data}});
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *user_data) {
    return launch_host(stream, fn, user_data, false);
}

CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn fn, void *user_data) {
    return launch_host(stream, fn, user_data, true);
}

/* The mode says how the caller of a synchronisation waits for the function: nothing here. */
CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn fn, void *user_data, unsigned int mode) {
    NEED(mode <= 1, CUDA_ERROR_INVALID_VALUE);
    return launch_host(stream, fn, user_data, false);
}

CUresult cuLaunchHostFunc_v2_ptsz(CUstream stream, CUhostFn fn, void *user_data, unsigned int mode) {
    NEED(mode <= 1, CUDA_ERROR_INVALID_VALUE);
    return launch_host(stream, fn, user_data, true);
}

static CUresult add_callback(CUstream handle, CUstreamCallback callback, void *data, unsigned int flags, bool own) {
    struct CUstream_st *stream;
    NEED(callback && !flags, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, own, &stream));
    if (stream_capturing(stream))
        return capture_check_sync(stream); /* callbacks cannot be captured */
    TRY(capture_check_legacy(stream));
    return push_call(stream, &(struct call){.callback = callback, .stream = handle, .data = data});
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *user_data, unsigned int flags) {
    return add_callback(stream, callback, user_data, flags, false);
}

CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void *user_data, unsigned int flags) {
    return add_callback(stream, callback, user_data, flags, true);
}
