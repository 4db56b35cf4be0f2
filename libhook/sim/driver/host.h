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

/* Must what touches this memory be carried out in its turn? Only kernels and waits that are met are in its way else: those
 * end for certain, and do nothing to the bytes. */
static inline bool host_has_to_wait(const struct span *touched, int count) {
    return __builtin_expect(atomic_load_explicit(&driver.host_pending, memory_order_acquire) != 0, 0) ||
           front_holds(touched, count);
}

void host_forget(void);

#endif
