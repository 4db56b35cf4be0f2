/*
 * devices.c - see devices.h.
 */
#include "libhook/runtime/devices.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "libhook/core/wire.h"
#include "libhook/driver/real.h"
#include "libhook/driver/real_nvml.h"
#include "libhook/runtime/forks.h"

/* The list: written once under `lock`, then `count` with release. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t list[WIRE_MAX_DEVICES][16];
static int count; /* atomic; 0: not made yet */
static bool in_nvmls_order;

static int hex(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

bool devices_parse_uuid(const char *text, uint8_t uuid[16]) {
    int digits = 0;
    if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
        text += 4;
    for (; *text != '\0' && digits < 32; text++) {
        if (*text == '-')
            continue;
        int value = hex(*text);
        if (value < 0)
            return false;
        uuid[digits / 2] = (uint8_t)(digits % 2 == 0 ? value << 4 : uuid[digits / 2] | value);
        digits++;
    }
    return digits == 32;
}

static bool cuda_uuid(CUdevice device, uint8_t uuid[16]) {
    CUuuid answer;
    if (real.cuDeviceGetUuid_v2(&answer, device) != CUDA_SUCCESS &&
        real.cuDeviceGetUuid(&answer, device) != CUDA_SUCCESS)
        return false;
    memcpy(uuid, &answer, 16);
    return true;
}

static int list_of_cuda(uint8_t uuid[][16]) {
    int devices = 0;
    if (real.cuDeviceGetCount(&devices) != CUDA_SUCCESS)
        return 0;
    if (devices > WIRE_MAX_DEVICES)
        devices = WIRE_MAX_DEVICES;
    for (int i = 0; i < devices; i++) {
        CUdevice device;
        if (real.cuDeviceGet(&device, i) != CUDA_SUCCESS || !cuda_uuid(device, uuid[i]))
            memset(uuid[i], 0, 16); /* a card without a name: nobody manages it, but the others keep their index */
    }
    return devices;
}

static int list_of_nvml(uint8_t uuid[][16]) {
    const struct real_nvml *nvml = real_nvml(false);
    unsigned int devices = 0;
    if (nvml == NULL || nvml->nvmlDeviceGetCount_v2 == NULL || nvml->nvmlDeviceGetCount_v2(&devices) != NVML_SUCCESS)
        return 0;
    if (devices > WIRE_MAX_DEVICES)
        devices = WIRE_MAX_DEVICES;
    for (unsigned int i = 0; i < devices; i++) {
        nvmlDevice_t device;
        char text[96];
        if (nvml->nvmlDeviceGetHandleByIndex_v2(i, &device) != NVML_SUCCESS ||
            nvml->nvmlDeviceGetUUID(device, text, sizeof(text)) != NVML_SUCCESS || !devices_parse_uuid(text, uuid[i]))
            memset(uuid[i], 0, 16);
    }
    return (int)devices;
}

static void forget_in_child(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    count = 0; /* the child says Hello for itself, and may begin with CUDA where the parent did with NVML */
}

/* Lists are made outside the lock, for they ask the driver; the first one counts. */
static int made(void) {
    static int watching;
    int known = __atomic_load_n(&count, __ATOMIC_ACQUIRE);
    if (known != 0)
        return known;
    forks_watch(&watching, forget_in_child);
    uint8_t uuid[WIRE_MAX_DEVICES][16];
    int devices = real_loaded() ? list_of_cuda(uuid) : 0; /* it counts none before cuInit */
    bool of_cuda = devices > 0;
    if (!of_cuda)
        devices = list_of_nvml(uuid);
    pthread_mutex_lock(&lock);
    if (count == 0 && devices > 0) {
        memcpy(list, uuid, sizeof(list));
        in_nvmls_order = !of_cuda;
        __atomic_store_n(&count, devices, __ATOMIC_RELEASE);
    }
    devices = count;
    pthread_mutex_unlock(&lock);
    return devices;
}

bool devices_begun(void) {
    return made() > 0;
}

int devices_list(uint8_t uuid[16][16]) {
    int devices = made();
    memcpy(uuid, list, (size_t)devices * 16);
    return devices;
}

int devices_of_uuid(const uint8_t uuid[16]) {
    int devices = made();
    for (int i = 0; i < devices; i++)
        if (memcmp(list[i], uuid, 16) == 0)
            return i;
    return -1;
}

int devices_of_cuda(CUdevice device) {
    uint8_t uuid[16];
    if (made() == 0 || !in_nvmls_order)
        return device < WIRE_MAX_DEVICES ? device : -1;
    return cuda_uuid(device, uuid) ? devices_of_uuid(uuid) : -1;
}
