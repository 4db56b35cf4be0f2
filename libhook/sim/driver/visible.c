/*
 * CUDA_VISIBLE_DEVICES, as CUDA documents it: a list of numbers or of beginnings of UUIDs; the devices named are all
 * there are, in that order; the first entry that names none ends the list.
 */
#include <stdlib.h>

#include "libhook/sim/driver/driver.h"

/* The card that this entry names, or -1. */
static int named(const char *entry, size_t length) {
    char uuid[48], *end;
    long number = strtol(entry, &end, 10);
    if (end == entry + length && length)
        return number >= 0 && number < (long)spec()->gpus ? (int)number : -1;
    int found = -1;
    for (uint32_t i = 0; i < spec()->gpus && length > 4; i++) {
        machine_uuid_text(driver.seat.machine, i, uuid);
        if (strncmp(uuid, entry, length) != 0)
            continue;
        if (found >= 0)
            return -1; /* ambiguous */
        found = (int)i;
    }
    return found;
}

void visible_devices(const char *list) {
    driver.devices = 0;
    if (!list) {
        for (uint32_t i = 0; i < spec()->gpus; i++)
            driver.physical[driver.devices++] = i;
        return;
    }
    while (driver.devices < SIM_DEVICES) {
        size_t length = strcspn(list, ",");
        int device = named(list, length);
        for (int i = 0; i < driver.devices; i++)
            if (device == (int)driver.physical[i])
                device = -1; /* named twice */
        if (device < 0)
            break;
        driver.physical[driver.devices++] = (uint32_t)device;
        if (!list[length])
            break;
        list += length + 1;
    }
}
