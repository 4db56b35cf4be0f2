/*
 * host.h - what the CPU does in stream order: host functions, stream memory operations, copies behind either.
 *
 * Each such step is a SIM_HOST entry in its queue. One thread of the process, started with the first step, waits
 * until the model says that a step has come to the head, carries it out and marks the entry done. Steps that wait
 * (for a value in memory) do not keep the thread from others.
 */
#ifndef GEMINI_SIM_HOST_H
#define GEMINI_SIM_HOST_H

#include "libhook/sim/driver/driver.h"

/* Returns true when the step is finished, false to be asked again. `drop` frees the argument in any case. */
struct host_step {
    bool (*run)(void *argument);
    void (*drop)(void *argument);
    void *argument;
};

/* Append the step to the stream. */
CUresult host_push(struct CUstream_st *stream, const struct host_step *step);

/* Is a step outstanding anywhere in the process? Then copies must wait for their turn, too. */
static inline bool host_outstanding(void) {
    return __builtin_expect(atomic_load_explicit(&driver.host_pending, memory_order_acquire) != 0, 0);
}

void host_forget(void);

#endif
