/* Devices: which is current, what it says of itself, and what a pointer is. */
#include "libhook/sim/runtime/runtime.h"

#include <pthread.h>

enum { DEVICES = 64 };
static CUcontext primary[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

cudaError_t runtime_primary(int device, CUcontext *context) {
    int count = 0;
    cudaError_t result = (cudaError_t)cu.cuDeviceGetCount(&count);
    if (result)
        return result;
    if (device < 0 || device >= count || device >= DEVICES)
        return cudaErrorInvalidDevice;
    pthread_mutex_lock(&lock);
    if (!primary[device])
        result = (cudaError_t)cu.cuDevicePrimaryCtxRetain(&primary[device], device);
    *context = primary[device];
    pthread_mutex_unlock(&lock);
    return result;
}

static cudaError_t count(int *out) {
    cudaError_t result = runtime_start();
    *out = 0;
    return result ? result : (cudaError_t)cu.cuDeviceGetCount(out);
}

EXPORT cudaError_t cudaGetDeviceCount(int *out);
cudaError_t cudaGetDeviceCount(int *out) {
    NEED(out, cudaErrorInvalidValue);
    return runtime_end(count(out));
}

static cudaError_t set_device(int device) {
    CUcontext context;
    TRY(runtime_primary(device, &context));
    runtime_thread.device = device;
    return (cudaError_t)cu.cuCtxSetCurrent(context);
}
START(cudaSetDevice, (int device), set_device(device))
START(cudaInitDevice, (int device, unsigned int device_flags, unsigned int flags),
    ((void)device_flags, (void)flags, runtime_primary(device, &(CUcontext){NULL})))

static cudaError_t get_device(int *device) {
    CUcontext context;
    NEED(device, cudaErrorInvalidValue);
    *device = runtime_thread.device;
    if (cu.cuCtxGetCurrent(&context) == 0 && context)
        return (cudaError_t)cu.cuCtxGetDevice(device);
    return cudaSuccess;
}
START(cudaGetDevice, (int *device), get_device(device))

static cudaError_t reset(void) {
    int device;
    TRY(get_device(&device));
    pthread_mutex_lock(&lock);
    primary[device] = NULL;
    pthread_mutex_unlock(&lock);
    TRY(cu.cuDevicePrimaryCtxReset_v2(device));
    return (cudaError_t)cu.cuCtxSetCurrent(NULL);
}
START(cudaDeviceReset, (void), reset())

static cudaError_t device_flags(unsigned int *flags) {
    int active, device;
    TRY(get_device(&device));
    return (cudaError_t)cu.cuDevicePrimaryCtxGetState(device, flags, &active);
}
START(cudaGetDeviceFlags, (unsigned int *flags), device_flags(flags))

static cudaError_t set_flags(unsigned int flags) {
    int device;
    TRY(get_device(&device));
    return (cudaError_t)cu.cuDevicePrimaryCtxSetFlags_v2(device, flags);
}
START(cudaSetDeviceFlags, (unsigned int flags), set_flags(flags))

START(
    cudaDeviceGetAttribute, (int *value, int attribute, int device), cu.cuDeviceGetAttribute(value, attribute, device))
START(cudaDeviceGetPCIBusId, (char *id, int length, int device), cu.cuDeviceGetPCIBusId(id, length, device))
START(cudaDeviceGetByPCIBusId, (int *device, const char *id), cu.cuDeviceGetByPCIBusId(device, id))
START(cudaDeviceCanAccessPeer, (int *can, int device, int peer), cu.cuDeviceCanAccessPeer(can, device, peer))
START(cudaDeviceGetP2PAttribute, (int *value, int attribute, int from, int to),
    cu.cuDeviceGetP2PAttribute(value, attribute, from, to))
START(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * pool, int device), cu.cuDeviceGetDefaultMemPool(pool, device))
START(cudaDeviceGetMemPool, (cudaMemPool_t * pool, int device), cu.cuDeviceGetMemPool(pool, device))
START(cudaDeviceSetMemPool, (int device, cudaMemPool_t pool), cu.cuDeviceSetMemPool(device, pool))
START(cudaDeviceGraphMemTrim, (int device), cu.cuDeviceGraphMemTrim(device))
START(cudaDeviceGetGraphMemAttribute, (int device, int attribute, void *value),
    cu.cuDeviceGetGraphMemAttribute(device, (CUgraphMem_attribute)attribute, value))
START(cudaDeviceSetGraphMemAttribute, (int device, int attribute, void *value),
    cu.cuDeviceSetGraphMemAttribute(device, (CUgraphMem_attribute)attribute, value))

static cudaError_t peer(int device, bool open) {
    CUcontext context;
    TRY(runtime_primary(device, &context));
    return (cudaError_t)(open ? cu.cuCtxEnablePeerAccess(context, 0) : cu.cuCtxDisablePeerAccess(context));
}
CALL(cudaDeviceEnablePeerAccess, (int device, unsigned int flags), flags ? cudaErrorInvalidValue : peer(device, true))
CALL(cudaDeviceDisablePeerAccess, (int device), peer(device, false))

/* ---- versions ---- */

START(cudaDriverGetVersion, (int *version), cu.cuDriverGetVersion(version))

EXPORT cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version) {
    NEED(version, cudaErrorInvalidValue);
    *version = CUDA_MAJOR == 13 ? 13000 : 12090;
    return cudaSuccess;
}

/* ---- properties: most are attributes of the driver by another name ---- */

#define ATTRIBUTES(INT, SIZE)                                                                                          \
    SIZE(sharedMemPerBlock, 8)                                                                                         \
    INT(regsPerBlock, 12)                                                                                              \
    INT(warpSize, 10)                                                                                                  \
    SIZE(memPitch, 11)                                                                                                 \
    INT(maxThreadsPerBlock, 1)                                                                                         \
    INT(maxThreadsDim[0], 2)                                                                                           \
    INT(maxThreadsDim[1], 3)                                                                                           \
    INT(maxThreadsDim[2], 4)                                                                                           \
    INT(maxGridSize[0], 5)                                                                                             \
    INT(maxGridSize[1], 6)                                                                                             \
    INT(maxGridSize[2], 7)                                                                                             \
    SIZE(totalConstMem, 9)                                                                                             \
    INT(major, 75)                                                                                                     \
    INT(minor, 76)                                                                                                     \
    SIZE(textureAlignment, 14)                                                                                         \
    SIZE(texturePitchAlignment, 51)                                                                                    \
    INT(multiProcessorCount, 16)                                                                                       \
    INT(integrated, 18)                                                                                                \
    INT(canMapHostMemory, 19)                                                                                          \
    SIZE(surfaceAlignment, 30)                                                                                         \
    INT(concurrentKernels, 31)                                                                                         \
    INT(ECCEnabled, 32)                                                                                                \
    INT(pciBusID, 33)                                                                                                  \
    INT(pciDeviceID, 34)                                                                                               \
    INT(pciDomainID, 50)                                                                                               \
    INT(tccDriver, 35)                                                                                                 \
    INT(asyncEngineCount, 40)                                                                                          \
    INT(unifiedAddressing, 41)                                                                                         \
    INT(memoryBusWidth, 37)                                                                                            \
    INT(l2CacheSize, 38)                                                                                               \
    INT(persistingL2CacheMaxSize, 108)                                                                                 \
    INT(maxThreadsPerMultiProcessor, 39)                                                                               \
    INT(streamPrioritiesSupported, 78)                                                                                 \
    INT(globalL1CacheSupported, 79)                                                                                    \
    INT(localL1CacheSupported, 80)                                                                                     \
    SIZE(sharedMemPerMultiprocessor, 81)                                                                               \
    INT(regsPerMultiprocessor, 82)                                                                                     \
    INT(managedMemory, 83)                                                                                             \
    INT(isMultiGpuBoard, 84)                                                                                           \
    INT(multiGpuBoardGroupID, 85)                                                                                      \
    INT(hostNativeAtomicSupported, 86)                                                                                 \
    INT(pageableMemoryAccess, 88)                                                                                      \
    INT(concurrentManagedAccess, 89)                                                                                   \
    INT(computePreemptionSupported, 90)                                                                                \
    INT(canUseHostPointerForRegisteredMem, 91)                                                                         \
    INT(cooperativeLaunch, 95)                                                                                         \
    SIZE(sharedMemPerBlockOptin, 97)                                                                                   \
    INT(pageableMemoryAccessUsesHostPageTables, 100)                                                                   \
    INT(directManagedMemAccessFromHost, 101)                                                                           \
    INT(maxBlocksPerMultiProcessor, 106)                                                                               \
    INT(accessPolicyMaxWindowSize, 109)                                                                                \
    SIZE(reservedSharedMemPerBlock, 111)                                                                               \
    INT(hostRegisterSupported, 99)                                                                                     \
    INT(sparseCudaArraySupported, 112)                                                                                 \
    INT(hostRegisterReadOnlySupported, 113)                                                                            \
    INT(timelineSemaphoreInteropSupported, 114)                                                                        \
    INT(memoryPoolsSupported, 115)                                                                                     \
    INT(gpuDirectRDMASupported, 116)                                                                                   \
    INT(memoryPoolSupportedHandleTypes, 119)                                                                           \
    INT(deferredMappingCudaArraySupported, 121)                                                                        \
    INT(ipcEventSupported, 125)                                                                                        \
    INT(clusterLaunch, 120)                                                                                            \
    INT(unifiedFunctionPointers, 129)

static cudaError_t properties(struct cudaDeviceProp *out, int device) {
    int value;
    NEED(out, cudaErrorInvalidValue);
    memset(out, 0, sizeof(*out));
    TRY(cu.cuDeviceGetName(out->name, sizeof(out->name), device));
    TRY(cu.cuDeviceGetUuid_v2(&out->uuid, device));
    TRY(cu.cuDeviceTotalMem_v2(&out->totalGlobalMem, device));
#define FILL(field, attribute)                                                                                         \
    TRY(cu.cuDeviceGetAttribute(&value, attribute, device));                                                           \
    out->field = (__typeof__(out->field))value;
    ATTRIBUTES(FILL, FILL)
#if CUDA_MAJOR < 13
    FILL(clockRate, 13)
    FILL(deviceOverlap, 15)
    FILL(kernelExecTimeoutEnabled, 17)
    FILL(computeMode, 20)
    FILL(memoryClockRate, 36)
    FILL(singleToDoublePrecisionPerfRatio, 87)
    FILL(cooperativeMultiDeviceLaunch, 96)
#endif
    return cudaSuccess;
}

#if CUDA_MAJOR >= 13
START(cudaGetDeviceProperties, (struct cudaDeviceProp * out, int device), properties(out, device))
#else
START(cudaGetDeviceProperties_v2, (struct cudaDeviceProp * out, int device), properties(out, device))
#endif

/* ---- what a pointer is ---- */

static cudaError_t pointer(struct cudaPointerAttributes *out, const void *pointer) {
    unsigned int type = 0, managed = 0;
    int device = 0;
    CUdeviceptr on_device = 0;
    void *on_host = NULL;
    NEED(out, cudaErrorInvalidValue);
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *answers[] = {&type, &managed, &device, &on_device, &on_host};
    TRY(cu.cuPointerGetAttributes(5, wanted, answers, (CUdeviceptr)pointer));
    memset(out, 0, sizeof(*out));
    out->type = managed                        ? cudaMemoryTypeManaged
                : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                                               : cudaMemoryTypeUnregistered;
    out->device = type ? device : CU_DEVICE_INVALID;
    out->devicePointer = (void *)on_device;
    out->hostPointer = type ? on_host : (void *)pointer;
    return cudaSuccess;
}
CALL(cudaPointerGetAttributes, (struct cudaPointerAttributes * out, const void *address), pointer(out, address))

/* ---- the driver's own entries ---- */

static cudaError_t entry(
    const char *name, void **function, int version, unsigned long long flags, CUdriverProcAddressQueryResult *status) {
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    NEED(name && function, cudaErrorInvalidValue);
    *function = NULL;
    cudaError_t result = (cudaError_t)cu.cuGetProcAddress_v2(name, function, version, flags, &found);
    if (status)
        *status = found;
    return result;
}
START(cudaGetDriverEntryPointByVersion,
    (const char *name, void **function, unsigned int version, unsigned long long flags,
        CUdriverProcAddressQueryResult *status),
    entry(name, function, (int)version, flags, status))
START(cudaGetDriverEntryPoint,
    (const char *name, void **function, unsigned long long flags, CUdriverProcAddressQueryResult *status),
    entry(name, function, CUDA_MAJOR == 13 ? 13000 : 12090, flags, status))
