/*
 * launch.h - a launch on its way through gate_begin_slow, and the steps that all its ways share.
 */
#ifndef GEMINI_RUNTIME_LAUNCH_H
#define GEMINI_RUNTIME_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/driver/cuda_types.h"
#include "libhook/runtime/belief.h"

struct gate;
struct gate_thread;
struct lane;

struct launch {
    CUstream stream;
    uint64_t key;
    uint64_t wanted_ns;
    bool is_kernel;
    struct belief belief;
    bool met_cap; /* it waits for room already */
};

#pragma GCC visibility push(hidden)

/* All that the calling thread launched gets its event. */
void launch_cut_all(struct gate_thread *thread, uint64_t now_ns);
/* The launch is the first of a chunk. */
void launch_begin_chunk(struct lane *lane, const struct launch *launch, uint64_t now_ns);
/* From here on whoever closes the gate waits for this thread; what it looked at before, it looks at again. */
void launch_enter(struct gate_thread *thread);
/* The launch goes out, behind what is open on its lane. */
void launch_count(struct gate *gate, struct lane *lane, const struct launch *launch);

#pragma GCC visibility pop

#endif
