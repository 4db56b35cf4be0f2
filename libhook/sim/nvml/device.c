/* What a card is: names and numbers, and the constants of a card at ease. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libhook/sim/nvml/nvml.h"

/* One number of the card. */
#define NUMBER(name, type, value)                    \
    nvmlReturn_t name(nvmlDevice_t device, type *out) \
    {                                                \
        NVML_GIVEN(out);                             \
        NVML_TRY(nvml_check(device));                \
        *out = (value);                              \
        return NVML_SUCCESS;                         \
    }

NUMBER(nvmlDeviceGetIndex, unsigned int, device->index)
NUMBER(nvmlDeviceGetMinorNumber, unsigned int, device->index)
NUMBER(nvmlDeviceGetBrand, nvmlBrandType_t, 14) /* "NVIDIA" */
NUMBER(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, NVML_DEVICE_ARCH_HOPPER)
NUMBER(nvmlDeviceGetBoardId, unsigned int, (device->index + 1) << 8)
NUMBER(nvmlDeviceGetMultiGpuBoard, unsigned int, 0)
NUMBER(nvmlDeviceGetNumGpuCores, unsigned int, 16896)
NUMBER(nvmlDeviceGetMemoryBusWidth, unsigned int, 6144)
NUMBER(nvmlDeviceGetPowerUsage, unsigned int, 120000)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned int, 700000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, 700000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, 700000)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, sim_now() / 1000000 * 120 / 1000)
NUMBER(nvmlDeviceGetPowerState, nvmlPstates_t, 0)
NUMBER(nvmlDeviceGetPerformanceState, nvmlPstates_t, 0)
NUMBER(nvmlDeviceGetNumFans, unsigned int, 0)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, 0)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, 0)
NUMBER(nvmlDeviceGetComputeMode, nvmlComputeMode_t, 0)
NUMBER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, 1)
NUMBER(nvmlDeviceGetDisplayActive, nvmlEnableState_t, 0)
NUMBER(nvmlDeviceGetDisplayMode, nvmlEnableState_t, 0)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned int, 0)
NUMBER(nvmlDeviceIsMigDeviceHandle, unsigned int, 0)
NUMBER(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, 0)
NUMBER(nvmlDeviceGetAccountingMode, nvmlEnableState_t, 0)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, 5)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, 16)
NUMBER(nvmlDeviceGetNumaNodeId, unsigned int, 0)
NUMBER(nvmlDeviceGetSupportedEventTypes, unsigned long long, nvmlEventTypeXidCriticalError)

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    NVML_TRY(nvml_check(device));
    return nvml_text(name, length, nvml_seat.machine->spec.name);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    char text[48];
    NVML_TRY(nvml_check(device));
    nvml_uuid(device->index, text);
    return nvml_text(uuid, length, text);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    char text[16];
    NVML_TRY(nvml_check(device));
    snprintf(text, sizeof(text), "165%07u", device->index);
    return nvml_text(serial, length, text);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
    NVML_TRY(nvml_check(device));
    return nvml_text(version, length, "96.00.00.00.01");
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    NVML_GIVEN(major && minor);
    NVML_TRY(nvml_check(device));
    *major = 9;
    *minor = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    NVML_GIVEN(pci);
    NVML_TRY(nvml_check(device));
    memset(pci, 0, sizeof(*pci));
    pci->bus = device->index + 1;
    pci->pciDeviceId = 0x233510de;
    pci->pciSubSystemId = 0x18be10de;
    nvml_bus_id(device->index, pci->busId);
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0", (device->index + 1) & 0xff);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

static nvmlReturn_t idle_engine(nvmlDevice_t device, unsigned int *utilization, unsigned int *period_us)
{
    NVML_GIVEN(utilization && period_us);
    NVML_TRY(nvml_check(device));
    *utilization = 0;
    *period_us = 1000000;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *period_us)
{
    return idle_engine(device, utilization, period_us);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *period_us)
{
    return idle_engine(device, utilization, period_us);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius)
{
    NVML_GIVEN(celsius && sensor == NVML_TEMPERATURE_GPU);
    NVML_TRY(nvml_check(device));
    *celsius = 35;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t threshold,
                                               unsigned int *celsius)
{
    NVML_GIVEN(celsius && threshold >= 0);
    NVML_TRY(nvml_check(device));
    *celsius = threshold == 0 ? 95 : 90;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *least, unsigned int *most)
{
    NVML_GIVEN(least && most);
    NVML_TRY(nvml_check(device));
    *least = 200000;
    *most = 700000;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *percent)
{
    NVML_GIVEN(percent);
    NVML_TRY(nvml_check(device));
    return NVML_ERROR_NOT_SUPPORTED; /* cooled by the case, like the card it resembles */
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *percent)
{
    (void)fan;
    return nvmlDeviceGetFanSpeed(device, percent);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
    static const unsigned int clocks[NVML_CLOCK_COUNT] = {1980, 1980, 3201, 1545};
    NVML_GIVEN(mhz && type >= 0 && type < NVML_CLOCK_COUNT);
    NVML_TRY(nvml_check(device));
    *mhz = clocks[type];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
    return nvmlDeviceGetMaxClockInfo(device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id, unsigned int *mhz)
{
    (void)id;
    return nvmlDeviceGetMaxClockInfo(device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
    NVML_GIVEN(current && pending);
    NVML_TRY(nvml_check(device));
    *current = *pending = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
                                         unsigned long long *count)
{
    (void)type, (void)counter;
    NVML_GIVEN(count);
    NVML_TRY(nvml_check(device));
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    NVML_GIVEN(current && pending);
    NVML_TRY(nvml_check(device));
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
    (void)index;
    NVML_GIVEN(mig);
    NVML_TRY(nvml_check(device));
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int *kilobytes)
{
    (void)counter;
    NVML_GIVEN(kilobytes);
    NVML_TRY(nvml_check(device));
    *kilobytes = 0;
    return NVML_SUCCESS;
}

/* ---- where it sits: all cards on one NUMA node, next to all processors ---- */

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int size, unsigned long *set)
{
    NVML_GIVEN(set && size);
    NVML_TRY(nvml_check(device));
    long processors = sysconf(_SC_NPROCESSORS_CONF);
    memset(set, 0, size * sizeof(*set));
    for (long i = 0; i < processors && i < (long)size * 64; i++)
        set[i / 64] |= 1ul << i % 64;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int size, unsigned long *set,
                                                 nvmlAffinityScope_t scope)
{
    (void)scope;
    return nvmlDeviceGetCpuAffinity(device, size, set);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int size, unsigned long *set,
                                         nvmlAffinityScope_t scope)
{
    (void)scope;
    NVML_GIVEN(set && size);
    NVML_TRY(nvml_check(device));
    memset(set, 0, size * sizeof(*set));
    set[0] = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *level)
{
    NVML_GIVEN(level);
    NVML_TRY(nvml_check(a));
    NVML_TRY(nvml_check(b));
    *level = a == b ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_NODE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level, unsigned int *count,
                                              nvmlDevice_t *devices)
{
    unsigned int found = 0;
    NVML_GIVEN(count);
    NVML_TRY(nvml_check(device));
    for (uint32_t i = 0; level == NVML_TOPOLOGY_NODE && i < nvml_seat.machine->spec.gpus; i++)
        if (i != device->index) {
            if (devices && found < *count)
                devices[found] = &nvml_device[i];
            found++;
        }
    *count = devices && *count < found ? *count : found;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t a, nvmlDevice_t b, int *same)
{
    NVML_GIVEN(same);
    NVML_TRY(nvml_check(a));
    NVML_TRY(nvml_check(b));
    *same = a == b;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t index,
                                    nvmlGpuP2PStatus_t *status)
{
    (void)index;
    NVML_GIVEN(status && a != b);
    NVML_TRY(nvml_check(a));
    NVML_TRY(nvml_check(b));
    *status = 0;
    return NVML_SUCCESS;
}

/* No NVLink. */
static nvmlReturn_t no_link(nvmlDevice_t device, const void *out)
{
    NVML_GIVEN(out);
    NVML_TRY(nvml_check(device));
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active)
{
    (void)link;
    return no_link(device, active);
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, nvmlNvLinkCapability_t capability,
                                           unsigned int *result)
{
    (void)link, (void)capability;
    return no_link(device, result);
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version)
{
    (void)link;
    return no_link(device, version);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
    (void)link;
    return no_link(device, pci);
}

/* ---- events: nothing ever breaks ---- */

struct nvmlEventSet_st {
    unsigned long long types;
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    NVML_GIVEN(set);
    NVML_NEED(nvml_seat.machine, NVML_ERROR_UNINITIALIZED);
    *set = calloc(1, sizeof(**set));
    return *set ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    NVML_GIVEN(set);
    NVML_TRY(nvml_check(device));
    NVML_NEED(!(types & ~nvmlEventTypeXidCriticalError), NVML_ERROR_NOT_SUPPORTED);
    set->types |= types;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *event, unsigned int timeout_ms)
{
    NVML_GIVEN(set && event);
    poll(NULL, 0, (int)timeout_ms);
    return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *event, unsigned int timeout_ms)
{
    return nvmlEventSetWait_v2(set, event, timeout_ms);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    NVML_GIVEN(set);
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    NVML_GIVEN(values && count > 0);
    NVML_TRY(nvml_check(device));
    for (int i = 0; i < count; i++)
        values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    return NVML_SUCCESS;
}
