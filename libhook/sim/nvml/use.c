/*
 * How the card is used: memory, processes, utilisation, and what follows from utilisation.
 *
 * Utilisation is what NVML defines: the part of the last period in which a kernel ran. (Time lost to switching between
 * contexts is not in it.) Power, temperature and clocks are functions of it, so that a dashboard moves as it would with
 * a real card; they claim nothing about one. The traffic on the card's own memory is not modelled: its utilisation is 0.
 */
#include "libhook/sim/nvml/nvml.h"

#include <stddef.h>
#include <string.h>
#include <time.h>

enum {
    IDLE_MW = 72000,
    BUSY_MW = 650000,
    IDLE_CELSIUS = 31,
    BUSY_CELSIUS = 66,
    IDLE_MHZ = 345,
    BUSY_MHZ = 1980,
    VIDEO_MHZ = 1545,
    MEMORY_MHZ = 3201,
    THROTTLE_IDLE = 1,       /* nvmlClocksEventReasonGpuIdle */
    NO_INSTANCE = -1,        /* GPU and compute instance of a process without MIG */
    PCIE_SAMPLE_NS = 20000000, /* "querying a byte counter over a 20 ms interval", says NVIDIA of its own */
};
#define LONGEST_WINDOW_NS 1000000000ull /* of samples per process: what a real driver keeps is a few seconds */

static uint64_t realtime_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    unsigned int index;
    struct look look;
    TRY(nvml_index(device, &index));
    NEED(memory, NVML_ERROR_INVALID_ARGUMENT);
    NEED(memory->version == nvmlMemory_v2, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    TRY(nvml_look(index, 0, &look));
    memory->total = nvml.spec.memory_bytes;
    memory->reserved = 0; /* what cuMemGetInfo calls free on an idle card is all of it, too */
    memory->used = look.used_bytes;
    memory->free = memory->total - look.used_bytes;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    nvmlMemory_v2_t all = {.version = nvmlMemory_v2};
    unsigned int index;
    TRY(nvml_index(device, &index));
    NEED(memory, NVML_ERROR_INVALID_ARGUMENT);
    TRY(nvmlDeviceGetMemoryInfo_v2(device, &all));
    *memory = (nvmlMemory_t){.total = all.total, .free = all.free, .used = all.used + all.reserved};
    return NVML_SUCCESS;
}

/* The window onto the card's memory is as large as the next power of two, and nobody maps through it. */
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    unsigned int index;
    TRY(nvml_index(device, &index));
    NEED(memory, NVML_ERROR_INVALID_ARGUMENT);
    unsigned long long total = 1;
    while (total < nvml.spec.memory_bytes)
        total <<= 1;
    *memory = (nvmlBAR1Memory_t){.bar1Total = total, .bar1Free = total};
    return NVML_SUCCESS;
}

/* The two shapes of a process list differ in their elements only. */
static nvmlReturn_t processes(nvmlDevice_t device, unsigned int *count, void *infos, size_t element) {
    unsigned int index, room;
    struct look look;
    TRY(nvml_index(device, &index));
    NEED(count && (infos || !*count), NVML_ERROR_INVALID_ARGUMENT);
    TRY(nvml_look(index, 0, &look));
    room = *count;
    *count = look.processes;
    NEED(look.processes <= room, NVML_ERROR_INSUFFICIENT_SIZE);
    for (uint32_t i = 0; i < look.processes; i++) {
        nvmlProcessInfo_t info = {
            look.process[i].pid, look.process[i].bytes, (unsigned)NO_INSTANCE, (unsigned)NO_INSTANCE};
        memcpy((char *)infos + i * element, &info, element);
    }
    return NVML_SUCCESS;
}
_Static_assert(
    offsetof(nvmlProcessInfo_t, gpuInstanceId) == sizeof(nvmlProcessInfo_v1_t), "v1 is how the others begin");

static nvmlReturn_t no_processes(nvmlDevice_t device, unsigned int *count) {
    unsigned int index;
    TRY(nvml_index(device, &index));
    NEED(count, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    return NVML_SUCCESS;
}

#define PROCESSES(function, type)                                                                                      \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, type *infos) {                                     \
        return processes(device, count, infos, sizeof(*infos));                                                        \
    }
#define NO_PROCESSES(function, type)                                                                                   \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, type *infos) {                                     \
        (void)infos;                                                                                                   \
        return no_processes(device, count);                                                                            \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

static nvmlReturn_t utilization(nvmlDevice_t device, unsigned int *percent) {
    unsigned int index;
    struct look look;
    TRY(nvml_index(device, &index));
    TRY(nvml_look(index, NVML_PERIOD_NS, &look));
    *percent = nvml_percent(look.window_busy_ns, look.window_ns);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    unsigned int percent;
    TRY(utilization(device, &percent));
    NEED(rates, NVML_ERROR_INVALID_ARGUMENT);
    *rates = (nvmlUtilization_t){.gpu = percent};
    return NVML_SUCCESS;
}

/* The window from `last_seen` (0: as long as is kept) to now. One sample for each process that worked in it. */
static nvmlReturn_t samples(nvmlDevice_t device, unsigned long long last_seen, uint64_t *now_us, struct look *look) {
    unsigned int index;
    TRY(nvml_index(device, &index));
    *now_us = realtime_us();
    NEED(last_seen < *now_us, NVML_ERROR_NOT_FOUND);
    uint64_t window_us = *now_us - last_seen;
    TRY(nvml_look(index, window_us < LONGEST_WINDOW_NS / 1000 ? window_us * 1000 : LONGEST_WINDOW_NS, look));
    return look->sharers ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(
    nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned int *count, unsigned long long last_seen) {
    struct look look;
    uint64_t now_us;
    TRY(nvml_started());
    NEED(count, NVML_ERROR_INVALID_ARGUMENT);
    TRY(samples(device, last_seen, &now_us, &look));
    unsigned int room = out ? *count : 0;
    look.sharers = nvml.spec.hidden_pids ? 0 : look.sharers;
    *count = look.sharers;
    NEED(look.sharers <= room, NVML_ERROR_INSUFFICIENT_SIZE);
    for (uint32_t i = 0; i < look.sharers; i++)
        out[i] = (nvmlProcessUtilizationSample_t){
            .pid = look.sharer[i].pid,
            .timeStamp = now_us,
            .smUtil = nvml_percent(look.sharer[i].busy_ns, look.window_ns),
        };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info) {
    struct look look;
    uint64_t now_us;
    TRY(nvml_started());
    NEED(info, NVML_ERROR_INVALID_ARGUMENT);
    NEED(info->version == nvmlProcessesUtilizationInfo_v1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    TRY(samples(device, info->lastSeenTimeStamp, &now_us, &look));
    unsigned int room = info->procUtilArray ? info->processSamplesCount : 0;
    look.sharers = nvml.spec.hidden_pids ? 0 : look.sharers;
    info->processSamplesCount = look.sharers;
    NEED(look.sharers <= room, NVML_ERROR_INSUFFICIENT_SIZE);
    for (uint32_t i = 0; i < look.sharers; i++)
        info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
            .timeStamp = now_us,
            .pid = look.sharer[i].pid,
            .smUtil = nvml_percent(look.sharer[i].busy_ns, look.window_ns),
        };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius) {
    unsigned int percent;
    TRY(utilization(device, &percent));
    NEED(celsius && sensor == NVML_TEMPERATURE_GPU, NVML_ERROR_INVALID_ARGUMENT);
    *celsius = IDLE_CELSIUS + (BUSY_CELSIUS - IDLE_CELSIUS) * percent / 100;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature) {
    unsigned int celsius;
    TRY(nvml_started());
    NEED(temperature, NVML_ERROR_INVALID_ARGUMENT);
    NEED(temperature->version == nvmlTemperature_v1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    TRY(nvmlDeviceGetTemperature(device, temperature->sensorType, &celsius));
    temperature->temperature = (int)celsius;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(
    nvmlDevice_t device, nvmlTemperatureThresholds_t threshold, unsigned int *celsius) {
    static const unsigned char limits[] = {92, 89, 95, 85}; /* shut down, slow down, memory, GPU */
    unsigned int index;
    TRY(nvml_index(device, &index));
    NEED(celsius && threshold >= 0 && threshold < 8, NVML_ERROR_INVALID_ARGUMENT);
    NEED((size_t)threshold < sizeof(limits), NVML_ERROR_NOT_SUPPORTED);
    *celsius = limits[threshold];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatt) {
    unsigned int percent;
    TRY(utilization(device, &percent));
    NEED(milliwatt, NVML_ERROR_INVALID_ARGUMENT);
    *milliwatt = IDLE_MW + (BUSY_MW - IDLE_MW) / 100 * percent;
    return NVML_SUCCESS;
}

/* A counter must not go back, though the model forgets those who died long ago: we remember the highest we said. */
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoule) {
    static unsigned long long highest[SIM_DEVICES];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    unsigned int index;
    struct look look;
    TRY(nvml_index(device, &index));
    NEED(millijoule, NVML_ERROR_INVALID_ARGUMENT);
    TRY(nvml_look(index, 0, &look));
    unsigned long long spent = (look.age_ns / 1000 * IDLE_MW + look.busy_ns / 1000 * (BUSY_MW - IDLE_MW)) / 1000000;
    pthread_mutex_lock(&lock);
    if (spent > highest[index])
        highest[index] = spent;
    *millijoule = highest[index];
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}

static unsigned int clock_mhz(nvmlClockType_t type, bool busy) {
    return type == NVML_CLOCK_MEM ? MEMORY_MHZ : !busy ? IDLE_MHZ : type == NVML_CLOCK_VIDEO ? VIDEO_MHZ : BUSY_MHZ;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    unsigned int percent;
    TRY(utilization(device, &percent));
    NEED(mhz && type >= 0 && type < NVML_CLOCK_COUNT, NVML_ERROR_INVALID_ARGUMENT);
    *mhz = clock_mhz(type, percent > 0);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    unsigned int index;
    TRY(nvml_index(device, &index));
    NEED(mhz && type >= 0 && type < NVML_CLOCK_COUNT, NVML_ERROR_INVALID_ARGUMENT);
    *mhz = clock_mhz(type, true);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id, unsigned int *mhz) {
    NEED(id >= 0 && id < 4, NVML_ERROR_INVALID_ARGUMENT);
    return id == 0 ? nvmlDeviceGetClockInfo(device, type, mhz) : nvmlDeviceGetMaxClockInfo(device, type, mhz);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
    unsigned int percent;
    TRY(utilization(device, &percent));
    NEED(reasons, NVML_ERROR_INVALID_ARGUMENT);
    *reasons = percent ? 0 : THROTTLE_IDLE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

/* KB/s between host and card, from the time the copy engines worked; it takes 20 ms, as the real one does. */
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int *kilobytes) {
    unsigned int index;
    struct look before, after;
    TRY(nvml_index(device, &index));
    NEED(kilobytes && (counter == 0 || counter == 1), NVML_ERROR_INVALID_ARGUMENT);
    TRY(nvml_look(index, 0, &before));
    struct timespec wait = {.tv_nsec = PCIE_SAMPLE_NS};
    while (nanosleep(&wait, &wait))
        ;
    TRY(nvml_look(index, 0, &after));
    uint64_t from = counter == 0 ? before.to_host_ns : before.to_device_ns; /* 0: the card transmits */
    uint64_t to = counter == 0 ? after.to_host_ns : after.to_device_ns;
    uint64_t passed_ns = after.now_ns - before.now_ns;
    double part = to > from && passed_ns ? (double)(to - from) / (double)passed_ns : 0;
    *kilobytes = (unsigned int)(part * (double)nvml.spec.host_bytes_per_s / 1000);
    return NVML_SUCCESS;
}
