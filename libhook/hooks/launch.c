/*
 * launch.c - kernel launches of every kind. A wrapper is: through the gate, the driver's own call, out again.
 *
 * A launch is told apart by its function and the shape of its grid; arguments are not looked at.
 */
#include <stddef.h>

#include "libhook/driver/cuda_abi.h"
#include "libhook/driver/real.h"
#include "libhook/hooks/load.h"
#include "libhook/hooks/streams.h"
#include "libhook/runtime/context.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_begin.h"

static inline uint64_t pair(unsigned int low, unsigned int high) {
    return (uint64_t)high << 32 | low;
}

#define FAMILY(function) estimate_mix((uint64_t)(uintptr_t)(function), 0, 0, 0)
#define KEY(function, gx, gy, gz, bx, by, bz)                                                                          \
    estimate_mix((uint64_t)(uintptr_t)(function), pair(gx, gy), pair(gz, bx), pair(by, bz))

/* `stream` as the driver understands it, the key's parts in parentheses, then the call. */
#define GATED(stream, function, key, call)                                                                             \
    do {                                                                                                               \
        enum gate_answer answer = gate_begin(stream, key, FAMILY(function), 0);                                        \
        if (answer == GATE_REFUSED)                                                                                    \
            return GATE_REFUSAL;                                                                                       \
        CUresult result = call;                                                                                        \
        if (answer == GATE_PASSED)                                                                                     \
            gate_end();                                                                                                \
        return result;                                                                                                 \
    } while (0)

/* The same as a whole wrapper, in two functions: the first calls nothing but the driver, so that the arguments stay
 * where they came; whatever is not to be had so is a jump to the second, which finds them there. A call that is not
 * `sane` is the driver's to refuse. */
#define LAUNCH(name, parameters, arguments, sane, stream, function, key)                                               \
    static __attribute__((noinline)) CUresult slow_##name parameters {                                                 \
        load_before_launch((sane) ? function : NULL);                                                                  \
        enum gate_answer answer = (sane) ? gate_begin_slow(stream, key, FAMILY(function), 0) : GATE_NOT_OURS;          \
        if (answer == GATE_REFUSED)                                                                                    \
            return GATE_REFUSAL;                                                                                       \
        CUresult result = real.name arguments;                                                                         \
        if (answer == GATE_PASSED)                                                                                     \
            gate_end();                                                                                                \
        return result;                                                                                                 \
    }                                                                                                                  \
    CUresult name parameters {                                                                                         \
        struct gate_thread *inside = (sane) ? gate_pass(stream, key) : NULL;                                           \
        if (__builtin_expect(!inside, 0))                                                                              \
            return slow_##name arguments;                                                                              \
        CUresult result = real.name arguments;                                                                         \
        gate_leave(inside);                                                                                            \
        return result;                                                                                                 \
    }

#define KERNEL_PARAMETERS                                                                                              \
    CUfunction function, unsigned int grid_dim_x, unsigned int grid_dim_y, unsigned int grid_dim_z,                    \
        unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z, unsigned int shared_mem_bytes,   \
        CUstream stream, void **kernel_params
#define KERNEL_ARGUMENTS                                                                                               \
    function, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z, shared_mem_bytes, stream,     \
        kernel_params
#define KERNEL_KEY KEY(function, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z)

LAUNCH(cuLaunchKernel, (KERNEL_PARAMETERS, void **extra), (KERNEL_ARGUMENTS, extra), true, stream_legacy(stream),
    function, KERNEL_KEY)
LAUNCH(cuLaunchKernel_ptsz, (KERNEL_PARAMETERS, void **extra), (KERNEL_ARGUMENTS, extra), true,
    stream_per_thread(stream), function, KERNEL_KEY)
LAUNCH(cuLaunchCooperativeKernel, (KERNEL_PARAMETERS), (KERNEL_ARGUMENTS), true, stream_legacy(stream), function,
    KERNEL_KEY)
LAUNCH(cuLaunchCooperativeKernel_ptsz, (KERNEL_PARAMETERS), (KERNEL_ARGUMENTS), true, stream_per_thread(stream),
    function, KERNEL_KEY)

#define CONFIG_PARAMETERS (const CUlaunchConfig *config, CUfunction function, void **kernel_params, void **extra)
#define CONFIG_ARGUMENTS (config, function, kernel_params, extra)
#define CONFIG_KEY                                                                                                     \
    KEY(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,          \
        config->blockDimZ)

LAUNCH(
    cuLaunchKernelEx, CONFIG_PARAMETERS, CONFIG_ARGUMENTS, config, stream_legacy(config->hStream), function, CONFIG_KEY)
LAUNCH(cuLaunchKernelEx_ptsz, CONFIG_PARAMETERS, CONFIG_ARGUMENTS, config, stream_per_thread(config->hStream), function,
    CONFIG_KEY)

/* Wait for the gate of one device of several, and account for the launch there. */
static enum gate_answer pass_gate_of(const CUDA_LAUNCH_PARAMS *one) {
    CUcontext context, popped;

    if (real.cuStreamGetCtx(one->hStream, &context) != CUDA_SUCCESS ||
        real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return GATE_NOT_OURS; /* the driver will say what is wrong with it */
    context_changed();
    /* Of no family, so nothing of it is held: the next device's token is waited for with this one's work in the stream. */
    enum gate_answer answer = gate_begin(one->hStream,
        KEY(one->function, one->gridDimX, one->gridDimY, one->gridDimZ, one->blockDimX, one->blockDimY, one->blockDimZ),
        0, 0);
    if (answer == GATE_PASSED)
        gate_end();
    real.cuCtxPopCurrent_v2(&popped);
    context_changed();
    return answer;
}

/* One call launches on several devices, each on a stream of its own context, and so needs all of their tokens (removed
 * from the driver in CUDA 13; kept for older ones). A thread is inside of one gate at a time: those passed before may
 * close until the call, which is then the one launch that they let through too late. */
CUresult cuLaunchCooperativeKernelMultiDevice(
    CUDA_LAUNCH_PARAMS *launch_params_list, unsigned int num_devices, unsigned int flags) {
    for (unsigned int i = 0; launch_params_list && i < num_devices; i++)
        if (pass_gate_of(&launch_params_list[i]) == GATE_REFUSED)
            return GATE_REFUSAL;
    return real.cuLaunchCooperativeKernelMultiDevice(launch_params_list, num_devices, flags);
}

/* The launches of CUDA 3: the block's shape was set on the function before. */
CUresult cuLaunch(CUfunction function) {
    GATED(CU_STREAM_LEGACY, function, KEY(function, 1, 1, 1, 0, 0, 0), real.cuLaunch(function));
}

CUresult cuLaunchGrid(CUfunction function, int grid_width, int grid_height) {
    GATED(CU_STREAM_LEGACY, function, KEY(function, (unsigned)grid_width, (unsigned)grid_height, 1, 0, 0, 0),
        real.cuLaunchGrid(function, grid_width, grid_height));
}

CUresult cuLaunchGridAsync(CUfunction function, int grid_width, int grid_height, CUstream stream) {
    GATED(stream_legacy(stream), function, KEY(function, (unsigned)grid_width, (unsigned)grid_height, 1, 0, 0, 0),
        real.cuLaunchGridAsync(function, grid_width, grid_height, stream));
}
