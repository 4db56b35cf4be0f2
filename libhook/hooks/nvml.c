/*
 * nvml.c - what the tenant is told through NVML: the memory of its share, its own processes, and the time that they take
 * of the card.
 *
 * Monitors and frameworks reach these by exported symbol or by dlsym (pynvml does the latter, by ctypes); the table and
 * entry.c serve both. The card is found by UUID, for NVML's order is not CUDA's. A card that the daemon does not share,
 * and a process that is no tenant, see the real figures.
 *
 * A process belongs to the tenant if it is this one or if its environment names the same socket; who may not look into
 * its environment is not shown it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libhook/driver/real_nvml.h"
#include "libhook/hooks/memory.h"
#include "libhook/runtime/agent.h"
#include "libhook/runtime/devices.h"

enum { MOST_PROCESSES = 256 };

/* The index of the card in the Hello; -1: not known. Attaches, for here may be the first we hear of the process. */
static int device_of(const struct real_nvml *nvml, nvmlDevice_t handle) {
    char text[96];
    uint8_t uuid[16];
    if (!agent_is_tenant() || nvml->nvmlDeviceGetUUID == NULL ||
        nvml->nvmlDeviceGetUUID(handle, text, sizeof(text)) != NVML_SUCCESS || !devices_parse_uuid(text, uuid))
        return -1;
    int device = devices_of_uuid(uuid);
    if (device >= 0)
        agent_attach();
    return device;
}

/* The tenant's own figures in the place of the card's. */
static void tell(int device, unsigned long long *total, unsigned long long *free, unsigned long long *used) {
    uint64_t limit;
    uint64_t own;
    if (!memory_figures(device, &limit, &own))
        return;
    if (*total > limit)
        *total = limit;
    *used = own < *total ? own : *total;
    *free = *total - *used < *free ? *total - *used : *free;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    const struct real_nvml *nvml = real_nvml(false);
    if (nvml == NULL || nvml->nvmlDeviceGetMemoryInfo == NULL)
        return NVML_ERROR_UNINITIALIZED;
    nvmlReturn_t result = nvml->nvmlDeviceGetMemoryInfo(device, memory);
    if (result == NVML_SUCCESS)
        tell(device_of(nvml, device), &memory->total, &memory->free, &memory->used);
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    const struct real_nvml *nvml = real_nvml(false);
    if (nvml == NULL || nvml->nvmlDeviceGetMemoryInfo_v2 == NULL)
        return NVML_ERROR_UNINITIALIZED;
    nvmlReturn_t result = nvml->nvmlDeviceGetMemoryInfo_v2(device, memory);
    if (result == NVML_SUCCESS) {
        unsigned long long whole = memory->total;
        tell(device_of(nvml, device), &memory->total, &memory->free, &memory->used);
        if (memory->total < whole)
            memory->reserved = 0; /* the card's own part is not the tenant's */
    }
    return result;
}

/* Does `text` (a /proc/PID/environ, `length` bytes) hold this variable? */
static bool has_variable(const char *text, size_t length, const char *variable) {
    size_t wanted = strlen(variable) + 1;
    for (const char *at = text; at < text + length;) {
        const char *end = memchr(at, '\0', (size_t)(text + length - at));
        if (end == NULL)
            return false;
        if ((size_t)(end - at) + 1 == wanted && memcmp(at, variable, wanted) == 0)
            return true;
        at = end + 1;
    }
    return false;
}

static bool is_own_process(unsigned int pid, const char *variable) {
    static const size_t LARGEST = 1 << 17;
    char path[32];
    bool own = false;
    if (pid == (unsigned int)getpid())
        return true;
    char *text = variable[0] == '\0' ? NULL : malloc(LARGEST);
    if (text == NULL)
        return false;
    snprintf(path, sizeof(path), "/proc/%u/environ", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        size_t length = 0;
        for (ssize_t got; length < LARGEST && (got = read(file, text + length, LARGEST - length)) > 0;)
            length += (size_t)got;
        close(file);
        own = has_variable(text, length, variable);
    }
    free(text);
    return own;
}

/* Keep the tenant's own of `count` records of `size` bytes, each of which has its pid at `pid_at`. */
static unsigned int keep_own(char *records, unsigned int count, size_t size, size_t pid_at) {
    char variable[256] = "";
    const char *socket = getenv("GEMINI_SOCKET");
    if (socket != NULL && snprintf(variable, sizeof(variable), "GEMINI_SOCKET=%s", socket) >= (int)sizeof(variable))
        variable[0] = '\0';
    int saved_errno = errno;
    unsigned int kept = 0;
    for (unsigned int i = 0; i < count; i++) {
        unsigned int pid;
        memcpy(&pid, records + i * size + pid_at, sizeof(pid));
        if (is_own_process(pid, variable))
            memmove(records + kept++ * size, records + i * size, size);
    }
    errno = saved_errno;
    return kept;
}

/* NVML's way to return a list: too small a place is an error that says how much there is. */
static nvmlReturn_t hand_out(const char *records, unsigned int kept, size_t size, unsigned int *count, void *infos) {
    unsigned int place = *count;
    *count = kept;
    if (place < kept)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (kept > 0)
        memcpy(infos, records, kept * size);
    return NVML_SUCCESS;
}

/* The whole list, the tenant's own of it, and out: the same for each version of each list. */
#define PROCESS_LIST(function, record)                                                                                 \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, record *infos) {                                   \
        const struct real_nvml *nvml = real_nvml(false);                                                               \
        if (nvml == NULL || nvml->function == NULL)                                                                    \
            return NVML_ERROR_UNINITIALIZED;                                                                           \
        if (count == NULL || (*count > 0 && infos == NULL) || device_of(nvml, device) < 0)                             \
            return nvml->function(device, count, infos);                                                               \
        record all[MOST_PROCESSES];                                                                                    \
        unsigned int there = MOST_PROCESSES;                                                                           \
        nvmlReturn_t result = nvml->function(device, &there, all);                                                     \
        if (result != NVML_SUCCESS)                                                                                    \
            return result;                                                                                             \
        return hand_out(                                                                                               \
            (const char *)all, keep_own((char *)all, there, sizeof(all[0]), 0), sizeof(all[0]), count, infos);         \
    }

PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

/* ---- time of the card ---- */

/* The samples of the tenant's own processes since then; `all` has room for MOST_PROCESSES. */
static nvmlReturn_t own_samples(const struct real_nvml *nvml, nvmlDevice_t device, unsigned long long last_seen,
    nvmlProcessUtilizationSample_t *all, unsigned int *kept) {
    unsigned int there = MOST_PROCESSES;
    *kept = 0;
    nvmlReturn_t result = nvml->nvmlDeviceGetProcessUtilization(device, all, &there, last_seen);
    if (result == NVML_SUCCESS)
        *kept = keep_own((char *)all, there, sizeof(all[0]), 0);
    return result;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(
    nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count, unsigned long long last_seen) {
    const struct real_nvml *nvml = real_nvml(false);
    nvmlProcessUtilizationSample_t all[MOST_PROCESSES];
    unsigned int kept;
    if (nvml == NULL || nvml->nvmlDeviceGetProcessUtilization == NULL)
        return NVML_ERROR_UNINITIALIZED;
    if (count == NULL || device_of(nvml, device) < 0)
        return nvml->nvmlDeviceGetProcessUtilization(device, samples, count, last_seen);
    if (samples == NULL)
        *count = 0;
    nvmlReturn_t result = own_samples(nvml, device, last_seen, all, &kept);
    return result == NVML_SUCCESS ? hand_out((const char *)all, kept, sizeof(all[0]), count, samples) : result;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info) {
    const struct real_nvml *nvml = real_nvml(false);
    if (nvml == NULL || nvml->nvmlDeviceGetProcessesUtilizationInfo == NULL)
        return NVML_ERROR_UNINITIALIZED;
    nvmlReturn_t result = nvml->nvmlDeviceGetProcessesUtilizationInfo(device, info);
    if (result == NVML_SUCCESS && info->procUtilArray != NULL && device_of(nvml, device) >= 0)
        info->processSamplesCount = keep_own((char *)info->procUtilArray, info->processSamplesCount,
            sizeof(info->procUtilArray[0]), offsetof(nvmlProcessUtilizationInfo_v1_t, pid));
    return result;
}

/* Of the last second, as the card's own figure is. Where NVML keeps no record of processes, the card's figure stays. */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    const struct real_nvml *nvml = real_nvml(false);
    nvmlProcessUtilizationSample_t all[MOST_PROCESSES];
    nvmlUtilization_t own = {0, 0};
    struct timespec now;
    unsigned int kept;
    if (nvml == NULL || nvml->nvmlDeviceGetUtilizationRates == NULL)
        return NVML_ERROR_UNINITIALIZED;
    nvmlReturn_t result = nvml->nvmlDeviceGetUtilizationRates(device, rates);
    if (result != NVML_SUCCESS || nvml->nvmlDeviceGetProcessUtilization == NULL || device_of(nvml, device) < 0)
        return result;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long second_ago =
        (unsigned long long)(now.tv_sec - 1) * 1000000 + (unsigned long long)now.tv_nsec / 1000;
    nvmlReturn_t asked = own_samples(nvml, device, second_ago, all, &kept);
    if (asked != NVML_SUCCESS && asked != NVML_ERROR_NOT_FOUND) /* not found: nobody has worked since */
        return result;
    for (unsigned int i = 0; i < kept; i++) {
        own.gpu += all[i].smUtil;
        own.memory += all[i].memUtil;
    }
    rates->gpu = own.gpu < rates->gpu ? own.gpu : rates->gpu;
    rates->memory = own.memory < rates->memory ? own.memory : rates->memory;
    return result;
}
