/* What the simulated cards say of themselves: those of an H200 (and what its profile says), in so far as a program could act on it. */
#include <stdio.h>

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/queue.h"
#include "libhook/sim/model/roofline.h"

static const struct {
    int attribute, value;
} attributes[] = {
    {1, 1024}, /* threads per block */
    {2, 1024}, /* block x, y, z */
    {3, 1024},
    {4, 64},
    {5, 2147483647}, /* grid x, y, z */
    {6, 65535},
    {7, 65535},
    {8, 49152}, /* shared memory per block */
    {9, 65536}, /* constant memory */
    {10, 32}, /* warp */
    {11, 2147483647}, /* pitch */
    {12, 65536}, /* registers per block */
    {13, 1980000}, /* clock in kHz */
    {14, 512}, /* texture alignment */
    {15, 1}, /* copies overlap with kernels */
    {16, 132}, /* multiprocessors */
    {19, 1}, /* can map host memory */
    {21, 131072},
    {22, 131072},
    {23, 65536},
    {24, 16384},
    {25, 16384},
    {26, 16384},
    {30, 512},
    {31, 1}, /* concurrent kernels: contexts say so, the model runs one at a time */
    {32, 1}, /* ECC */
    {36, 3201000}, /* memory clock in kHz */
    {37, 6144}, /* bus width */
    {38, 62914560}, /* L2 */
    {39, 2048}, /* threads per multiprocessor */
    {40, 2}, /* copy engines: one each way */
    {41, 1}, /* unified addressing */
    {51, 32},
    {75, 9}, /* compute capability */
    {76, 0},
    {78, 1}, /* stream priorities */
    {79, 1},
    {80, 1},
    {81, 233472}, /* shared memory per multiprocessor */
    {82, 65536},
    {83, 1}, /* managed memory */
    {87, 2},
    {88, 0}, /* pageable memory access */
    {89, 1},
    {90, 1}, /* compute preemption */
    {91, 1},
    {92, 1}, /* stream memory operations, old and new */
    {93, 1},
    {94, 1},
    {95, 1}, /* cooperative launch */
    {97, 232448}, /* shared memory per block, opt-in */
    {98, 1},
    {99, 1}, /* host register */
    {102, 1}, /* virtual memory management */
    {103, 1}, /* POSIX file descriptors as handles */
    {106, 32}, /* blocks per multiprocessor */
    {108, 39321600},
    {109, 134217728},
    {111, 1024},
    {113, 1},
    {115, 1}, /* memory pools */
    {119, 1}, /* handle types of pools: file descriptors */
    {120, 1}, /* clusters */
    {121, 1},
    {122, 1},
    {123, 1},
    {126, 4},
    {129, 1}, /* unified function pointers */
    {131, -1}, /* NUMA node of its memory: none */
    {134, 0}, /* NUMA node of its host side */
};

CUresult cuDeviceGetCount(int *count) {
    INIT();
    NEED(count, CUDA_ERROR_INVALID_VALUE);
    *count = driver.devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    INIT();
    NEED(device, CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(ordinal), CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    INIT();
    NEED(name && length > 0, CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)length, "%s", spec()->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    INIT();
    NEED(uuid, CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    machine_uuid(driver.seat.machine, driver.physical[device], (uint8_t *)uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    return cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    INIT();
    NEED(bytes, CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    *bytes = spec()->memory_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    INIT();
    NEED(value && attribute > 0 && attribute < 160, CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    *value = 0;
    if (attribute == 33) /* PCI bus; domain and device are 0 */
        *value = (int)driver.physical[device] + 1;
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
        if (attributes[i].attribute == attribute)
            *value = attributes[i].value;
    const struct roofline *card = roofline_of(spec()->profile);
    if (attribute == 16)
        *value = card->multiprocessors;
    else if (attribute == 75)
        *value = card->major;
    else if (attribute == 76)
        *value = card->minor;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *properties, CUdevice device) {
    INIT();
    NEED(properties, CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    *properties = (CUdevprop){
        1024, {1024, 1024, 64}, {2147483647, 65535, 65535}, 49152, 65536, 32, 2147483647, 65536, 1980000, 512};
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    INIT();
    NEED(major && minor, CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    *major = roofline_of(spec()->profile)->major;
    *minor = roofline_of(spec()->profile)->minor;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device) {
    INIT();
    NEED(id && length > 0, CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    snprintf(id, (size_t)length, "0000:%02X:00.0", driver.physical[device] + 1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id) {
    unsigned domain = 0, bus;
    INIT();
    NEED(device && id, CUDA_ERROR_INVALID_VALUE);
    NEED(sscanf(id, "%x:%x:", &domain, &bus) == 2 || sscanf(id, "%x:", &bus) == 1, CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; domain == 0 && i < driver.devices; i++)
        if (driver.physical[i] + 1 == bus) {
            *device = i;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    INIT();
    NEED(can, CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(device) && device_exists(peer), CUDA_ERROR_INVALID_DEVICE);
    *can = device != peer;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) {
    INIT();
    NEED(value && attribute >= 1 && attribute <= 5, CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(from) && device_exists(to) && from != to, CUDA_ERROR_INVALID_DEVICE);
    *value = attribute == 1 ? 0 : attribute != 5;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    struct CUctx_st *ctx;
    TRY(context_current(&ctx));
    NEED(!flags, CUDA_ERROR_INVALID_VALUE);
    NEED(slab_has(SLAB_CONTEXT, peer) && peer != ctx, CUDA_ERROR_INVALID_CONTEXT);
    NEED(peer->device != ctx->device, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    uint32_t bit = 1u << peer->device;
    NEED(!(__atomic_fetch_or(&ctx->peers, bit, __ATOMIC_RELAXED) & bit), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    struct CUctx_st *ctx;
    TRY(context_current(&ctx));
    NEED(slab_has(SLAB_CONTEXT, peer), CUDA_ERROR_INVALID_CONTEXT);
    uint32_t bit = 1u << peer->device;
    NEED(__atomic_fetch_and(&ctx->peers, ~bit, __ATOMIC_RELAXED) & bit, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    return CUDA_SUCCESS;
}
