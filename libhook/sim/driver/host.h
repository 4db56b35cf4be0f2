/*
 * host.h - what the CPU does in stream order: host functions, and copies behind one or behind values in memory.
 *
 * Each such step is a SIM_HOST entry in its queue. One thread of the process, started with the first step, waits
 * until the model says that a step has come to the head, carries it out and marks the entry done. Steps that wait
 * (for another process's event) do not keep the thread from others.
 */
#ifndef GEMINI_SIM_HOST_H
#define GEMINI_SIM_HOST_H

#include "libhook/sim/driver/front.h"

/* Returns true when the step is finished, false to be asked again. `drop` frees the argument in any case. */
struct host_step {
    bool (*run)(void *argument);
    void (*drop)(void *argument);
    void *argument;
};

/* Append the step to the stream. */
CUresult host_push(struct CUstream_st *stream, const struct host_step *step);

/* Is a step or a value outstanding anywhere in the process? Then copies must wait for their turn, too. */
static inline bool host_outstanding(void) {
    return __builtin_expect(atomic_load_explicit(&driver.host_pending, memory_order_acquire) != 0, 0) ||
           front_outstanding();
}

void host_forget(void);

#endif
