/* Cards: how many, their handles, and who they are. The names agree with what the simulated driver says. */
#include "libhook/sim/nvml/nvml.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Handles are the addresses of these and mean nothing else. */
struct nvmlDevice_st {
    char unused;
};
static struct nvmlDevice_st handles[SIM_DEVICES];

enum { PCI_DEVICE = 0x233510de, PCI_SUBSYSTEM = 0x18be10de }; /* an H200 */

nvmlReturn_t nvml_index(nvmlDevice_t device, unsigned int *index) {
    TRY(nvml_started());
    uintptr_t offset = (uintptr_t)device - (uintptr_t)handles;
    NEED(device && offset < nvml.spec.gpus * sizeof(handles[0]), NVML_ERROR_INVALID_ARGUMENT);
    *index = (unsigned int)(offset / sizeof(handles[0]));
    return NVML_SUCCESS;
}

nvmlDevice_t nvml_handle(unsigned int index) {
    return &handles[index];
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    TRY(nvml_started());
    NEED(count, NVML_ERROR_INVALID_ARGUMENT);
    *count = nvml.spec.gpus;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) {
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    TRY(nvml_started());
    NEED(device && index < nvml.spec.gpus, NVML_ERROR_INVALID_ARGUMENT);
    *device = nvml_handle(index);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    TRY(nvml_started());
    NEED(uuid && device, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned int i = 0; i < nvml.spec.gpus; i++)
        if (strcasecmp(uuid, nvml.uuid[i]) == 0)
            return nvmlDeviceGetHandleByIndex_v2(i, device);
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    TRY(nvml_started());
    NEED(serial && device, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned int i = 0; i < nvml.spec.gpus; i++)
        if (strcmp(serial, nvml.serial[i]) == 0)
            return nvmlDeviceGetHandleByIndex_v2(i, device);
    return NVML_ERROR_NOT_FOUND;
}

/* domain:bus:device.function, in hexadecimal; the domain and the function may be missing. */
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    unsigned int domain = 0, bus = 0, slot = 0, function = 0;
    TRY(nvml_started());
    NEED(bus_id && device, NVML_ERROR_INVALID_ARGUMENT);
    if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = function = 0;
        NEED(sscanf(bus_id, "%x:%x.%x", &bus, &slot, &function) >= 2, NVML_ERROR_INVALID_ARGUMENT);
    }
    NEED(!domain && !slot && !function && bus >= 1 && bus <= nvml.spec.gpus, NVML_ERROR_NOT_FOUND);
    return nvmlDeviceGetHandleByIndex_v2(bus - 1, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

/* Functions of (device, char *out, unsigned length), and of (device, unsigned *out), that depend on the card. */
#define TEXT(function, words)                                                                                          \
    nvmlReturn_t function(nvmlDevice_t device, char *out, unsigned int length) {                                       \
        unsigned int index;                                                                                            \
        TRY(nvml_index(device, &index));                                                                               \
        return nvml_text(out, length, (words));                                                                        \
    }
#define NUMBER(function, value)                                                                                        \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *out) {                                                    \
        unsigned int index;                                                                                            \
        TRY(nvml_index(device, &index));                                                                               \
        NEED(out, NVML_ERROR_INVALID_ARGUMENT);                                                                        \
        *out = (value);                                                                                                \
        return NVML_SUCCESS;                                                                                           \
    }

TEXT(nvmlDeviceGetName, nvml.spec.name)
TEXT(nvmlDeviceGetUUID, nvml.uuid[index])
TEXT(nvmlDeviceGetSerial, nvml.serial[index])
TEXT(nvmlDeviceGetVbiosVersion, "96.00.BC.00.01")
TEXT(nvmlDeviceGetBoardPartNumber, "692-2G520-0290-000")
NUMBER(nvmlDeviceGetIndex, index)
NUMBER(nvmlDeviceGetMinorNumber, index)
NUMBER(nvmlDeviceGetBoardId, (index + 1) << 8)

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    unsigned int index;
    TRY(nvml_index(device, &index));
    NEED(major && minor, NVML_ERROR_INVALID_ARGUMENT);
    *major = 9;
    *minor = 0;
    return NVML_SUCCESS;
}

/* The structure has grown; an old caller's is only so long. */
static nvmlReturn_t pci_info(nvmlDevice_t device, nvmlPciInfo_t *pci, size_t bytes) {
    unsigned int index;
    TRY(nvml_index(device, &index));
    NEED(pci, NVML_ERROR_INVALID_ARGUMENT);
    nvmlPciInfo_t all = {
        .bus = index + 1,
        .pciDeviceId = PCI_DEVICE,
        .pciSubSystemId = PCI_SUBSYSTEM,
    };
    snprintf(all.busIdLegacy, sizeof(all.busIdLegacy), "0000:%02X:00.0", (index + 1) & 0xff);
    snprintf(all.busId, sizeof(all.busId), "00000000:%02X:00.0", (index + 1) & 0xff);
    memcpy(pci, &all, bytes);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return pci_info(device, pci, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return pci_info(device, pci, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return pci_info(device, pci, sizeof(*pci));
}
