/*
 * observer.h - reads the simulated device's own record: what shares are judged by, whatever a daemon says of itself.
 *
 * libhook/observer.py is the Python side. Times are CLOCK_MONOTONIC nanoseconds. Functions return 0 or -errno.
 */
#ifndef GEMINI_SIM_OBSERVER_H
#define GEMINI_SIM_OBSERVER_H

#include <stdint.h>

struct observer;

struct observer_busy {
    int32_t pid, alive;
    uint64_t busy_ns, to_device_ns, to_host_ns, memory_bytes;
};

struct observer_segment {
    int32_t pid;
    uint32_t kernels, stream, reserved;
    uint64_t start_ns, end_ns;
};

#pragma GCC visibility push(default)

/* `spec` in the grammar of GEMINI_SIM. With `make` 0 the machine must be there. The text of an error goes to `why`. */
int observer_open(const char *spec, int make, struct observer **out, char *why, int why_size);
void observer_close(struct observer *observer);

uint32_t observer_devices(struct observer *observer);
int observer_device(struct observer *observer, uint32_t device, char name[64], uint8_t uuid[16], uint64_t *memory);

/* Everyone who was on the device, up to now: exact at *now_ns. Returns how many there are; fills at most `room`. */
int observer_read(struct observer *observer, uint32_t device, uint64_t *now_ns, struct observer_busy *out, int room);

/* Log records from *sequence on, oldest first; returns how many and moves *sequence behind the last. *lost counts
 * those that were overwritten before they were read. */
int observer_segments(struct observer *observer, uint32_t device, uint64_t *sequence, uint64_t *lost,
    struct observer_segment *out, int room);

/* Context switches of the device so far. */
uint64_t observer_switches(struct observer *observer, uint32_t device);

#pragma GCC visibility pop

#endif
