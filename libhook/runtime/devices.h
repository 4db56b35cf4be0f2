/*
 * devices.h - the cards by UUID: what this process told the daemon in its Hello, and which of them another number means.
 *
 * `device` in agent.h and wire.h is an index into the list below. It is in the order of the CUDA ordinals, so a CUDA
 * device is its own index. But a process that asks NVML before it has begun with CUDA (a monitor does nothing else)
 * gets a list in NVML's order, and CUDA's ordinals are then translated. NVML's numbers are always translated: its order
 * differs from CUDA's, and CUDA_VISIBLE_DEVICES does not touch it.
 */
#ifndef GEMINI_RUNTIME_DEVICES_H
#define GEMINI_RUNTIME_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/driver/cuda_types.h"

#pragma GCC visibility push(hidden)

/* For agent_init: the list, made at the first call. Returns the count; 0 while neither CUDA nor NVML has begun. */
int devices_list(uint8_t uuid[16][16]);

/* Is there a list? Before cuInit (or nvmlInit) there is nothing that could be said in a Hello: nobody may attach then. */
bool devices_begun(void);

/* The index of a CUDA device (its ordinal, nearly always); -1: not in the list. */
int devices_of_cuda(CUdevice device);

/* "GPU-89abcdef-..." as 16 bytes; false for anything else. */
bool devices_parse_uuid(const char *text, uint8_t uuid[16]);

/* The index of the card with this UUID; -1: not in the list. */
int devices_of_uuid(const uint8_t uuid[16]);

#pragma GCC visibility pop

#endif
