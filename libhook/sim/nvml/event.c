/*
 * Event sets, which stay empty (simulated cards raise no Xid), and fields by number.
 */
#include "libhook/sim/nvml/nvml.h"

#include <stdlib.h>
#include <time.h>

struct nvmlEventSet_st {
    struct nvmlEventSet_st *next;
};
static struct nvmlEventSet_st *sets; /* under nvml.lock, written */

void nvml_free_events(void) {
    while (sets) {
        struct nvmlEventSet_st *set = sets;
        sets = set->next;
        free(set);
    }
}

/* The place that points to the set; NULL if there is no such set. With the lock. */
static struct nvmlEventSet_st **place(nvmlEventSet_t set) {
    struct nvmlEventSet_st **at = &sets;
    while (*at && *at != set)
        at = &(*at)->next;
    return set && *at ? at : NULL;
}

static bool exists(nvmlEventSet_t set) {
    pthread_rwlock_rdlock(&nvml.lock);
    bool found = place(set) != NULL;
    pthread_rwlock_unlock(&nvml.lock);
    return found;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    TRY(nvml_started());
    NEED(set, NVML_ERROR_INVALID_ARGUMENT);
    struct nvmlEventSet_st *made = malloc(sizeof(*made));
    NEED(made, NVML_ERROR_UNKNOWN);
    pthread_rwlock_wrlock(&nvml.lock);
    made->next = sets;
    sets = made;
    pthread_rwlock_unlock(&nvml.lock);
    *set = made;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    TRY(nvml_started());
    pthread_rwlock_wrlock(&nvml.lock);
    struct nvmlEventSet_st **at = place(set);
    if (at)
        *at = set->next;
    pthread_rwlock_unlock(&nvml.lock);
    NEED(at, NVML_ERROR_INVALID_ARGUMENT);
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    unsigned int index;
    TRY(nvml_index(device, &index));
    NEED(types, NVML_ERROR_INVALID_ARGUMENT);
    *types = nvmlEventTypeXidCriticalError;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    unsigned int index;
    TRY(nvml_index(device, &index));
    NEED(exists(set), NVML_ERROR_INVALID_ARGUMENT);
    NEED(!(types & ~nvmlEventTypeXidCriticalError), NVML_ERROR_NOT_SUPPORTED);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *event, unsigned int timeout_ms) {
    TRY(nvml_started());
    NEED(event && exists(set), NVML_ERROR_INVALID_ARGUMENT);
    struct timespec wait = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000l};
    while (nanosleep(&wait, &wait))
        ;
    return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *event, unsigned int timeout_ms) {
    return nvmlEventSetWait_v2(set, event, timeout_ms);
}

/* NVML_FI_DEV_*, by their numbers in nvml.h. */
enum {
    FIELD_ECC_CURRENT = 1,
    FIELD_ECC_PENDING = 2,
    FIELD_ECC_FIRST_COUNTER = 3,
    FIELD_ECC_LAST_COUNTER = 28,
    FIELD_TOTAL_ENERGY = 83,
    FIELD_NVLINK_COUNT = 91,
    FIELD_PCIE_REPLAYS = 94,
    FIELD_POWER_AVERAGE = 185,
    FIELD_POWER_INSTANT = 186,
};
enum { TYPE_UNSIGNED_INT = 1, TYPE_UNSIGNED_LONG_LONG = 3 };

static nvmlReturn_t field(nvmlDevice_t device, unsigned int number, nvmlValueType_t *type, nvmlValue_t *value) {
    value->ullVal = 0;
    *type = TYPE_UNSIGNED_INT;
    if (number >= FIELD_ECC_FIRST_COUNTER && number <= FIELD_ECC_LAST_COUNTER) {
        *type = TYPE_UNSIGNED_LONG_LONG;
        return NVML_SUCCESS;
    }
    switch (number) {
    case FIELD_ECC_CURRENT:
    case FIELD_ECC_PENDING: value->uiVal = 1; return NVML_SUCCESS;
    case FIELD_NVLINK_COUNT:
    case FIELD_PCIE_REPLAYS: return NVML_SUCCESS;
    case FIELD_POWER_AVERAGE:
    case FIELD_POWER_INSTANT: return nvmlDeviceGetPowerUsage(device, &value->uiVal);
    case FIELD_TOTAL_ENERGY:
        *type = TYPE_UNSIGNED_LONG_LONG;
        return nvmlDeviceGetTotalEnergyConsumption(device, &value->ullVal);
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    unsigned int index;
    TRY(nvml_index(device, &index));
    NEED(values && count > 0, NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < count; i++) {
        struct timespec now;
        values[i].nvmlReturn = field(device, values[i].fieldId, &values[i].valueType, &values[i].value);
        clock_gettime(CLOCK_REALTIME, &now);
        values[i].timestamp = now.tv_sec * 1000000ll + now.tv_nsec / 1000;
        values[i].latencyUsec = 0;
    }
    return NVML_SUCCESS;
}
