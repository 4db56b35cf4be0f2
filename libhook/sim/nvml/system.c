/* Start and end, the system, and finding devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libhook/sim/nvml/nvml.h"

struct sim_seat nvml_seat;
struct nvmlDevice_st nvml_device[SIM_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users;

static void forget(void)
{
    if (users)
        sim_forget(&nvml_seat);
    users = 0;
    pthread_mutex_init(&lock, NULL);
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    static int watching_forks;
    nvmlReturn_t result = NVML_SUCCESS;
    char why[256];
    (void)flags;
    pthread_mutex_lock(&lock);
    if (users == 0 && sim_sit(&nvml_seat, getenv("GEMINI_SIM"), true, why, sizeof(why))) {
        fprintf(stderr, "simulated NVML: %s\n", why);
        result = NVML_ERROR_DRIVER_NOT_LOADED;
    } else {
        for (uint32_t i = 0; i < SIM_DEVICES; i++)
            nvml_device[i].index = i;
        if (!watching_forks)
            pthread_atfork(NULL, NULL, forget);
        watching_forks = 1;
        users++;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result = NVML_SUCCESS;
    pthread_mutex_lock(&lock);
    if (users == 0)
        result = NVML_ERROR_UNINITIALIZED;
    else if (--users == 0)
        sim_rise(&nvml_seat);
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t nvml_check(nvmlDevice_t device)
{
    NVML_NEED(users, NVML_ERROR_UNINITIALIZED);
    NVML_NEED(device >= nvml_device && device < nvml_device + nvml_seat.machine->spec.gpus,
              NVML_ERROR_INVALID_ARGUMENT);
    return NVML_SUCCESS;
}

nvmlReturn_t nvml_text(char *to, unsigned int length, const char *text)
{
    NVML_GIVEN(to);
    NVML_NEED(strlen(text) < length, NVML_ERROR_INSUFFICIENT_SIZE);
    memcpy(to, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

void nvml_uuid(uint32_t index, char text[48])
{
    machine_uuid_text(nvml_seat.machine, index, text);
}

void nvml_bus_id(uint32_t index, char text[32])
{
    snprintf(text, 32, "00000000:%02X:00.0", index + 1);
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
        return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT:
        return "Timeout";
    case NVML_ERROR_FUNCTION_NOT_FOUND:
        return "Function Not Found";
    case NVML_ERROR_GPU_IS_LOST:
        return "GPU is lost";
    case NVML_ERROR_NO_DATA:
        return "No data";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
        return "Argument Version Mismatch";
    case NVML_ERROR_UNKNOWN:
        break;
    }
    return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    NVML_NEED(users, NVML_ERROR_UNINITIALIZED);
    return nvml_text(version, length, "580.65.06");
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    NVML_NEED(users, NVML_ERROR_UNINITIALIZED);
    return nvml_text(version, length, "13.580.65.06");
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    NVML_GIVEN(version);
    NVML_NEED(users, NVML_ERROR_UNINITIALIZED);
    *version = (int)nvml_seat.machine->spec.driver_version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    char path[32], line[512] = "";
    NVML_NEED(users, NVML_ERROR_UNINITIALIZED);
    snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    NVML_NEED(file, NVML_ERROR_NOT_FOUND);
    size_t got = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[got] = 0;
    return nvml_text(name, length, line);
}

nvmlReturn_t nvmlUnitGetCount(unsigned int *count)
{
    NVML_GIVEN(count);
    NVML_NEED(users, NVML_ERROR_UNINITIALIZED);
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    NVML_GIVEN(count);
    NVML_NEED(users, NVML_ERROR_UNINITIALIZED);
    *count = nvml_seat.machine->spec.gpus;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    NVML_GIVEN(device);
    NVML_NEED(users, NVML_ERROR_UNINITIALIZED);
    NVML_NEED(index < nvml_seat.machine->spec.gpus, NVML_ERROR_INVALID_ARGUMENT);
    *device = &nvml_device[index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    char text[48];
    NVML_GIVEN(uuid && device);
    NVML_NEED(users, NVML_ERROR_UNINITIALIZED);
    for (uint32_t i = 0; i < nvml_seat.machine->spec.gpus; i++) {
        nvml_uuid(i, text);
        if (strcmp(text, uuid) == 0)
            return nvmlDeviceGetHandleByIndex_v2(i, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    unsigned int index;
    NVML_GIVEN(serial && device);
    NVML_NEED(users, NVML_ERROR_UNINITIALIZED);
    NVML_NEED(sscanf(serial, "165%07u", &index) == 1, NVML_ERROR_NOT_FOUND);
    return nvmlDeviceGetHandleByIndex_v2(index, device) ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    unsigned int domain, bus;
    NVML_GIVEN(bus_id && device);
    NVML_NEED(users, NVML_ERROR_UNINITIALIZED);
    NVML_NEED(sscanf(bus_id, "%x:%x:", &domain, &bus) == 2 && domain == 0 && bus > 0, NVML_ERROR_NOT_FOUND);
    return nvmlDeviceGetHandleByIndex_v2(bus - 1, device) ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}
