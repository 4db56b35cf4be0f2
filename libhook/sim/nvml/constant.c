/*
 * What is the same for every card at any time, and what such a card does not do. The values are those of an H200 where
 * they are not those of the model; a test compares them with the attributes that the simulated driver gives.
 */
#include "libhook/sim/nvml/nvml.h"

/* Functions of (device, type *out). */
#define ANSWER(function, type, value)                                                                                  \
    nvmlReturn_t function(nvmlDevice_t device, type *out) {                                                            \
        unsigned int index;                                                                                            \
        TRY(nvml_index(device, &index));                                                                               \
        NEED(out, NVML_ERROR_INVALID_ARGUMENT);                                                                        \
        *out = (value);                                                                                                \
        return NVML_SUCCESS;                                                                                           \
    }

/* Functions of (device, type *a, type *b). */
#define ANSWERS(function, type, first, second)                                                                         \
    nvmlReturn_t function(nvmlDevice_t device, type *a, type *b) {                                                     \
        unsigned int index;                                                                                            \
        TRY(nvml_index(device, &index));                                                                               \
        NEED(a && b, NVML_ERROR_INVALID_ARGUMENT);                                                                     \
        *a = (first);                                                                                                  \
        *b = (second);                                                                                                 \
        return NVML_SUCCESS;                                                                                           \
    }

/* Functions of a device that are there and say no. `out` is the last parameter, which must not be NULL. */
#define REFUSAL(function, out, ...)                                                                                    \
    nvmlReturn_t function(nvmlDevice_t device, __VA_ARGS__) {                                                          \
        unsigned int index;                                                                                            \
        TRY(nvml_index(device, &index));                                                                               \
        NEED(out, NVML_ERROR_INVALID_ARGUMENT);                                                                        \
        return NVML_ERROR_NOT_SUPPORTED;                                                                               \
    }

/* The card. */
ANSWER(nvmlDeviceGetBrand, nvmlBrandType_t, 14) /* NVML_BRAND_NVIDIA: data-centre cards since Ampere */
ANSWER(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, NVML_DEVICE_ARCH_HOPPER)
ANSWER(nvmlDeviceGetMultiGpuBoard, unsigned int, 0)
ANSWER(nvmlDeviceGetNumGpuCores, unsigned int, 132 * 128)
ANSWER(nvmlDeviceGetMemoryBusWidth, unsigned int, 6144)
ANSWER(nvmlDeviceGetNumFans, unsigned int, 0)
REFUSAL(nvmlDeviceGetFanSpeed, percent, unsigned int *percent)
REFUSAL(nvmlDeviceGetFanSpeed_v2, percent, __attribute__((unused)) unsigned int fan, unsigned int *percent)

/* Power limits, in mW. */
ANSWER(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, 1)
ANSWER(nvmlDeviceGetPowerManagementLimit, unsigned int, 700000)
ANSWER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, 700000)
ANSWER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, 700000)
ANSWERS(nvmlDeviceGetPowerManagementLimitConstraints, unsigned int, 200000, 700000)
ANSWER(nvmlDeviceGetPowerState, nvmlPstates_t, 0)
ANSWER(nvmlDeviceGetPerformanceState, nvmlPstates_t, 0)

/* Modes. */
ANSWER(nvmlDeviceGetComputeMode, nvmlComputeMode_t, 0) /* default: any number of processes */
ANSWER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, 1)
ANSWER(nvmlDeviceGetDisplayActive, nvmlEnableState_t, 0)
ANSWER(nvmlDeviceGetDisplayMode, nvmlEnableState_t, 0)
ANSWER(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, 0)
#define MODELS nvmlDriverModel_t *current, nvmlDriverModel_t *pending
REFUSAL(nvmlDeviceGetDriverModel, current &&pending, MODELS) /* Windows only */
REFUSAL(nvmlDeviceGetDriverModel_v2, current &&pending, MODELS)
ANSWERS(nvmlDeviceGetEccMode, nvmlEnableState_t, 1, 1)
REFUSAL(nvmlDeviceGetMigMode, current &&pending, unsigned int *current, unsigned int *pending)
ANSWER(nvmlDeviceGetMaxMigDeviceCount, unsigned int, 0)
ANSWER(nvmlDeviceIsMigDeviceHandle, unsigned int, 0)
REFUSAL(nvmlDeviceGetMigDeviceHandleByIndex, mig, __attribute__((unused)) unsigned int number, nvmlDevice_t *mig)

/* What is not kept: accounting, and work of the video engines. */
REFUSAL(nvmlDeviceGetAccountingMode, mode, nvmlEnableState_t *mode)
REFUSAL(nvmlDeviceGetAccountingStats, stats, __attribute__((unused)) unsigned int pid, nvmlAccountingStats_t *stats)
REFUSAL(nvmlDeviceGetAccountingPids, count, unsigned int *count, __attribute__((unused)) unsigned int *pids)
REFUSAL(nvmlDeviceGetAccountingBufferSize, size, unsigned int *size)
ANSWERS(nvmlDeviceGetEncoderUtilization, unsigned int, 0, NVML_PERIOD_NS / 1000)
ANSWERS(nvmlDeviceGetDecoderUtilization, unsigned int, 0, NVML_PERIOD_NS / 1000)

/* PCIe 5.0 x16, and no NVLink. */
ANSWER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, 5)
ANSWER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, 5)
ANSWER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int, 5)
ANSWER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, 16)
ANSWER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, 16)
ANSWER(nvmlDeviceGetPcieReplayCounter, unsigned int, 0)
#define LINK __attribute__((unused)) unsigned int link
REFUSAL(nvmlDeviceGetNvLinkState, active, LINK, nvmlEnableState_t *active)
REFUSAL(nvmlDeviceGetNvLinkVersion, version, LINK, unsigned int *version)
REFUSAL(nvmlDeviceGetNvLinkRemotePciInfo_v2, pci, LINK, nvmlPciInfo_t *pci)
REFUSAL(nvmlDeviceGetNvLinkRemoteDeviceType, type, LINK, nvmlIntNvLinkDeviceType_t *type)
REFUSAL(nvmlDeviceGetGpuFabricInfoV, info, nvmlGpuFabricInfoV_t *info)
REFUSAL(nvmlDeviceGetNvLinkCapability, result, LINK, __attribute__((unused)) nvmlNvLinkCapability_t capability,
    unsigned int *result)

/* "Only on platforms where the GPUs are NUMA nodes", says NVIDIA. What is near is in the affinities (near.c). */
REFUSAL(nvmlDeviceGetNumaNodeId, node, unsigned int *node)

nvmlReturn_t nvmlDeviceGetTotalEccErrors(
    nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, unsigned long long *count) {
    unsigned int index;
    TRY(nvml_index(device, &index));
    NEED(count && type >= 0 && type < 2 && counter >= 0 && counter < 2, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type,
    nvmlEccCounterType_t counter, nvmlMemoryLocation_t location, unsigned long long *count) {
    NEED(location >= 0 && location < 8, NVML_ERROR_INVALID_ARGUMENT);
    return nvmlDeviceGetTotalEccErrors(device, type, counter, count);
}
