/*
 * launch.c - kernel launches of every kind. A wrapper is: through the gate, the driver's own call, out again.
 *
 * A launch is told apart by its function and the shape of its grid; arguments are not looked at.
 */
#include "libhook/driver/cuda_abi.h"
#include "libhook/driver/real.h"
#include "libhook/hooks/streams.h"
#include "libhook/runtime/gate.h"

static inline uint64_t pair(unsigned int low, unsigned int high) {
    return (uint64_t)high << 32 | low;
}

#define FAMILY(function) ((uint64_t)(uintptr_t)(function) | 1ull << 62)
#define KEY(function, gx, gy, gz, bx, by, bz)                                                                          \
    estimate_mix((uint64_t)(uintptr_t)(function), pair(gx, gy), pair(gz, bx), pair(by, bz))

/* `stream` as the driver understands it, the key's parts in parentheses, then the call. */
#define GATED(stream, function, key, call)                                                                             \
    do {                                                                                                               \
        bool gated = gate_begin(stream, key, FAMILY(function), 0);                                                     \
        CUresult result = call;                                                                                        \
        if (gated)                                                                                                     \
            gate_end();                                                                                                \
        return result;                                                                                                 \
    } while (0)

#define KERNEL_PARAMETERS                                                                                              \
    CUfunction function, unsigned int grid_dim_x, unsigned int grid_dim_y, unsigned int grid_dim_z,                    \
        unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z, unsigned int shared_mem_bytes,   \
        CUstream stream, void **kernel_params
#define KERNEL_ARGUMENTS                                                                                               \
    function, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z, shared_mem_bytes, stream,     \
        kernel_params
#define KERNEL_KEY KEY(function, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z)

CUresult cuLaunchKernel(KERNEL_PARAMETERS, void **extra) {
    GATED(stream_legacy(stream), function, KERNEL_KEY, real.cuLaunchKernel(KERNEL_ARGUMENTS, extra));
}

CUresult cuLaunchKernel_ptsz(KERNEL_PARAMETERS, void **extra) {
    GATED(stream_per_thread(stream), function, KERNEL_KEY, real.cuLaunchKernel_ptsz(KERNEL_ARGUMENTS, extra));
}

CUresult cuLaunchCooperativeKernel(KERNEL_PARAMETERS) {
    GATED(stream_legacy(stream), function, KERNEL_KEY, real.cuLaunchCooperativeKernel(KERNEL_ARGUMENTS));
}

CUresult cuLaunchCooperativeKernel_ptsz(KERNEL_PARAMETERS) {
    GATED(stream_per_thread(stream), function, KERNEL_KEY, real.cuLaunchCooperativeKernel_ptsz(KERNEL_ARGUMENTS));
}

static inline uint64_t config_key(const CUlaunchConfig *config, CUfunction function) {
    return KEY(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
        config->blockDimZ);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **kernel_params, void **extra) {
    if (!config)
        return real.cuLaunchKernelEx(config, function, kernel_params, extra);
    GATED(stream_legacy(config->hStream), function, config_key(config, function),
        real.cuLaunchKernelEx(config, function, kernel_params, extra));
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **kernel_params, void **extra) {
    if (!config)
        return real.cuLaunchKernelEx_ptsz(config, function, kernel_params, extra);
    GATED(stream_per_thread(config->hStream), function, config_key(config, function),
        real.cuLaunchKernelEx_ptsz(config, function, kernel_params, extra));
}

/* One call launches on several devices, each on a stream of its own context; the gate passed is that of the current
 * context (removed from the driver in CUDA 13; kept for older ones). */
CUresult cuLaunchCooperativeKernelMultiDevice(
    CUDA_LAUNCH_PARAMS *launch_params_list, unsigned int num_devices, unsigned int flags) {
    if (!launch_params_list || !num_devices)
        return real.cuLaunchCooperativeKernelMultiDevice(launch_params_list, num_devices, flags);
    const CUDA_LAUNCH_PARAMS *first = launch_params_list;
    GATED(stream_legacy(first->hStream), first->function,
        KEY(first->function, first->gridDimX, first->gridDimY, first->gridDimZ, first->blockDimX, first->blockDimY,
            first->blockDimZ),
        real.cuLaunchCooperativeKernelMultiDevice(launch_params_list, num_devices, flags));
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
