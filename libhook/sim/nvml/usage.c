/* What the machine knows: memory, processes, utilisation. The latter is read from the log of the last second. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libhook/sim/nvml/nvml.h"

#define WINDOW_NS 1000000000ull

struct usage {
    uint32_t device;
    uint64_t now_ns, used, log_next;
    uint32_t count;
    struct {
        uint32_t pid;
        uint64_t bytes;
    } process[SIM_PROCESSES];
};

static int look(struct sim_state *state, void *argument)
{
    struct usage *usage = argument;
    engine_flush(state, usage->device);
    usage->now_ns = state->now_ns;
    usage->used = engine_memory_used(state, usage->device);
    usage->log_next = state->device[usage->device].log_next;
    usage->count = 0;
    for (uint32_t i = 0; i < state->clients && usage->count < SIM_PROCESSES; i++) {
        const struct sim_client *client = &state->client[i];
        if (client->device != usage->device || client->dead || !client->contexts)
            continue;
        usage->process[usage->count].pid = (uint32_t)client->owner;
        usage->process[usage->count++].bytes = client->memory_bytes;
    }
    return 0;
}

static nvmlReturn_t read_usage(nvmlDevice_t device, struct usage *usage)
{
    NVML_TRY(nvml_check(device));
    usage->device = device->index;
    sim_commit(&nvml_seat, look, usage);
    return NVML_SUCCESS;
}

/* Percent of the time since `since_ns` in which the compute engine worked for the process (0: for anyone). */
static unsigned int percent(const struct usage *usage, uint32_t pid, uint64_t since_ns)
{
    uint64_t busy = 0;
    for (uint64_t at = usage->log_next; at-- > 0 && usage->log_next - at < SIM_LOG;) {
        const struct sim_record *record = &nvml_seat.machine->log[usage->device][at % SIM_LOG];
        uint64_t start = record->start_ns, end = record->end_ns;
        if (atomic_load(&record->sequence) != at + 1 || end <= since_ns)
            break;
        if (!pid || (uint32_t)record->owner == pid)
            busy += end - (start > since_ns ? start : since_ns);
    }
    return usage->now_ns > since_ns ? (unsigned int)((busy * 100 + 50) / (usage->now_ns - since_ns)) : 0;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct usage usage;
    NVML_GIVEN(memory);
    NVML_TRY(read_usage(device, &usage));
    memory->total = nvml_seat.machine->spec.memory_bytes;
    memory->used = usage.used;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t plain;
    NVML_GIVEN(memory);
    NVML_NEED(memory->version == nvmlMemory_v2, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    NVML_TRY(nvmlDeviceGetMemoryInfo(device, &plain));
    memory->total = plain.total;
    memory->free = plain.free;
    memory->used = plain.used;
    memory->reserved = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    NVML_GIVEN(memory);
    NVML_TRY(nvml_check(device));
    *memory = (nvmlBAR1Memory_t){.bar1Total = 128ull << 30, .bar1Free = (128ull << 30) - (1 << 20), .bar1Used = 1 << 20};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    struct usage usage;
    NVML_GIVEN(utilization);
    NVML_TRY(read_usage(device, &usage));
    utilization->gpu = percent(&usage, 0, usage.now_ns > WINDOW_NS ? usage.now_ns - WINDOW_NS : 0);
    utilization->memory = utilization->gpu / 2;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long last_seen)
{
    struct usage usage;
    struct timespec wall;
    NVML_GIVEN(count);
    NVML_TRY(read_usage(device, &usage));
    unsigned int room = *count;
    *count = usage.count;
    NVML_NEED(usage.count, NVML_ERROR_NOT_FOUND);
    NVML_NEED(samples && room >= usage.count, NVML_ERROR_INSUFFICIENT_SIZE);
    clock_gettime(CLOCK_REALTIME, &wall);
    unsigned long long now_us = (unsigned long long)wall.tv_sec * 1000000 + (unsigned long long)wall.tv_nsec / 1000;
    uint64_t window_ns = WINDOW_NS;
    if (last_seen && last_seen < now_us && (now_us - last_seen) * 1000 < window_ns)
        window_ns = (now_us - last_seen) * 1000;
    for (uint32_t i = 0; i < usage.count; i++)
        samples[i] = (nvmlProcessUtilizationSample_t){
            .pid = usage.process[i].pid,
            .timeStamp = now_us,
            .smUtil = percent(&usage, usage.process[i].pid, usage.now_ns - window_ns),
        };
    return NVML_SUCCESS;
}

/* The lists: how many there are, and as many as there is room for, or INSUFFICIENT_SIZE. */
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    struct usage usage;
    NVML_GIVEN(count);
    NVML_TRY(read_usage(device, &usage));
    unsigned int room = *count;
    *count = usage.count;
    NVML_NEED(room >= usage.count, NVML_ERROR_INSUFFICIENT_SIZE);
    NVML_NEED(infos || !usage.count, NVML_ERROR_INVALID_ARGUMENT);
    for (uint32_t i = 0; i < usage.count; i++)
        infos[i] = (nvmlProcessInfo_t){usage.process[i].pid, usage.process[i].bytes, 0xffffffffu, 0xffffffffu};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                  nvmlProcessInfo_v1_t *infos)
{
    nvmlProcessInfo_t longer[SIM_PROCESSES];
    unsigned int room = 0;
    NVML_GIVEN(count);
    unsigned int have = *count < SIM_PROCESSES ? *count : SIM_PROCESSES;
    room = have;
    nvmlReturn_t result = nvmlDeviceGetComputeRunningProcesses_v3(device, &room, longer);
    *count = room;
    for (unsigned int i = 0; !result && i < room; i++)
        infos[i] = (nvmlProcessInfo_v1_t){longer[i].pid, longer[i].usedGpuMemory};
    return result;
}

static nvmlReturn_t nobody(nvmlDevice_t device, unsigned int *count)
{
    NVML_GIVEN(count);
    NVML_TRY(nvml_check(device));
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                   nvmlProcessInfo_v1_t *infos)
{
    (void)infos;
    return nobody(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_t *infos)
{
    (void)infos;
    return nobody(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_t *infos)
{
    (void)infos;
    return nobody(device, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                        nvmlProcessInfo_t *infos)
{
    (void)infos;
    return nobody(device, count);
}
