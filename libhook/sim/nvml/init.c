/* Starting, stopping, errors, and what concerns the system and no card. */
#include "libhook/sim/nvml/nvml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libhook/sim/model/machine.h"

struct nvml nvml = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* The driver that came with each CUDA version: what such a machine would say. */
static const struct {
    uint32_t cuda;
    const char *driver;
} drivers[] = {
    {13000, "580.65.06"},
    {12090, "575.51.03"},
    {12080, "570.86.10"},
    {12060, "560.28.03"},
    {12050, "555.42.02"},
    {12040, "550.54.14"},
    {12030, "545.23.06"},
    {12020, "535.54.03"},
    {12010, "530.30.02"},
    {12000, "525.60.13"},
    {11080, "520.61.05"},
    {11070, "515.43.04"},
    {11060, "510.39.01"},
    {11050, "495.29.05"},
    {11040, "470.42.01"},
    {0, "450.36.06"},
};

/* In a forked child, where another thread of the parent may have held the lock. */
static void forget(void) {
    pthread_rwlock_init(&nvml.lock, NULL);
    if (nvml.seated)
        sim_forget(&nvml.seat);
    nvml.seated = false;
}

static void copy_constants(const struct sim_machine *machine) {
    nvml.spec = machine->spec;
    nvml.began_ns = machine->first.now_ns;
    for (uint32_t d = 0; d < SIM_DEVICES; d++) {
        uint8_t bytes[16];
        uint64_t number = 0;
        machine_uuid(machine, d, bytes);
        for (int i = 0; i < 8; i++)
            number = number << 8 | bytes[i];
        machine_uuid_text(machine, d, nvml.uuid[d]);
        snprintf(nvml.serial[d], sizeof(nvml.serial[d]), "165%010llu", (unsigned long long)(number % 10000000000u));
    }
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    static bool watching_forks;
    char why[256];
    NEED(!(flags & ~3u), NVML_ERROR_INVALID_ARGUMENT); /* no GPUs is no error; do not attach GPUs */
    nvmlReturn_t result = NVML_SUCCESS;
    pthread_rwlock_wrlock(&nvml.lock);
    if (!nvml.users) {
        const char *text = getenv("GEMINI_SIM");
        nvml.text = strdup(text ? text : "");
        int error = nvml.text ? sim_sit(&nvml.seat, nvml.text, true, why, sizeof(why)) : -ENOMEM;
        if (error) {
            fprintf(stderr, "simulated NVML: %s\n", nvml.text ? why : "no memory");
            free(nvml.text);
            nvml.text = NULL;
            result = NVML_ERROR_DRIVER_NOT_LOADED;
            goto out;
        }
        nvml.seated = true;
        copy_constants(nvml.seat.machine);
        if (!watching_forks)
            watching_forks = pthread_atfork(NULL, NULL, forget) == 0;
    }
    __atomic_store_n(&nvml.users, nvml.users + 1, __ATOMIC_RELEASE);
out:
    pthread_rwlock_unlock(&nvml.lock);
    return result;
}

nvmlReturn_t nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void) {
    nvmlReturn_t result = NVML_SUCCESS;
    pthread_rwlock_wrlock(&nvml.lock);
    if (!nvml.users)
        result = NVML_ERROR_UNINITIALIZED;
    else
        __atomic_store_n(&nvml.users, nvml.users - 1, __ATOMIC_RELEASE);
    if (!result && !nvml.users) {
        if (nvml.seated)
            sim_rise(&nvml.seat);
        nvml.seated = false;
        free(nvml.text);
        nvml.text = NULL;
        nvml_free_events();
    }
    pthread_rwlock_unlock(&nvml.lock);
    return result;
}

nvmlReturn_t nvml_started(void) {
    return __atomic_load_n(&nvml.users, __ATOMIC_ACQUIRE) ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvml_text(char *out, unsigned int length, const char *text) {
    NEED(out, NVML_ERROR_INVALID_ARGUMENT);
    NEED(strlen(text) < length, NVML_ERROR_INSUFFICIENT_SIZE);
    memcpy(out, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    static const char *const words[] = {
        "Success",
        "Uninitialized",
        "Invalid Argument",
        "Not Supported",
        "Insufficient Permissions",
        "Already Initialized",
        "Not Found",
        "Insufficient Size",
        "Insufficient External Power",
        "Driver Not Loaded",
        "Timeout",
        "Interrupt Request Issue",
        "NVML Shared Library Not Found",
        "Function Not Found",
        "Corrupted infoROM",
        "GPU is lost",
        "GPU requires reset",
        "GPU access blocked by the operating system",
        "Driver/library version mismatch",
        "In use by another client",
        "Insufficient Memory",
        "No data",
        "ECC not supported with vGPU",
        "Insufficient resources",
        "Frequency not supported",
        "Argument version mismatch",
        "Deprecated",
        "Not ready",
        "GPU not found",
        "Invalid state",
        "Reset type not supported",
    };
    return (unsigned int)result < sizeof(words) / sizeof(words[0]) ? words[result] : "Unknown Error";
}

static const char *driver_version(void) {
    int i = 0;
    while (drivers[i].cuda > nvml.spec.driver_version)
        i++;
    return drivers[i].driver;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    TRY(nvml_started());
    return nvml_text(version, length, driver_version());
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    char text[48];
    TRY(nvml_started());
    snprintf(text, sizeof(text), "%u.%s", nvml.spec.driver_version / 1000, driver_version());
    return nvml_text(version, length, text);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    TRY(nvml_started());
    NEED(version, NVML_ERROR_INVALID_ARGUMENT);
    *version = (int)nvml.spec.driver_version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* The first word of the command line, cut to the buffer. */
nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    char path[40], line[4096];
    TRY(nvml_started());
    NEED(name && length, NVML_ERROR_INVALID_ARGUMENT);
    snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0, NVML_ERROR_NOT_FOUND);
    ssize_t got = read(fd, line, sizeof(line) - 1);
    close(fd);
    NEED(got > 0, NVML_ERROR_NOT_FOUND); /* a zombie or a kernel thread: not ours */
    line[got] = 0;
    snprintf(name, length, "%s", line);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlUnitGetCount(unsigned int *count) {
    TRY(nvml_started());
    NEED(count, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0; /* S-class units are long gone */
    return NVML_SUCCESS;
}
