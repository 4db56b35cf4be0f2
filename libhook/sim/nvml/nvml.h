/*
 * nvml.h - the simulated libnvidia-ml.so.1: a seat at the machine that only looks. Its cards are the same as CUDA's, in
 * the same order and with the same UUIDs. Memory, processes and utilisation are the machine's own; power, clocks and
 * temperature are plausible constants.
 */
#ifndef GEMINI_SIM_NVML_H
#define GEMINI_SIM_NVML_H

#include <stddef.h>

#include "libhook/driver/nvml_abi.h"
#include "libhook/sim/model/machine.h"

struct nvmlDevice_st {
    uint32_t index;
};

extern struct sim_seat nvml_seat;
extern struct nvmlDevice_st nvml_device[SIM_DEVICES];

nvmlReturn_t nvml_check(nvmlDevice_t device); /* initialised, and a card of ours */
nvmlReturn_t nvml_text(char *to, unsigned int length, const char *text);
void nvml_uuid(uint32_t index, char text[48]);
void nvml_bus_id(uint32_t index, char text[32]);

#define NVML_TRY(call)               \
    do {                             \
        nvmlReturn_t result = (call); \
        if (result)                  \
            return result;           \
    } while (0)
#define NVML_NEED(condition, error) \
    do {                            \
        if (!(condition))           \
            return (error);         \
    } while (0)
#define NVML_GIVEN(pointer) NVML_NEED(pointer, NVML_ERROR_INVALID_ARGUMENT)

#endif
