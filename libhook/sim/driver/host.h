/*
 * host.h - what the CPU does in stream order: host functions, and copies behind one or behind values in memory.
 *
 * Each such step is a SIM_HOST entry in its queue. A thread of the process waits until the model says that a step has come
 * to the head, carries it out and marks the entry done. There are two, each started with its first step. One calls the
 * program's functions, one after the other, as CUDA may. The other does what a card does by itself: it waits for no function
 * of the program's but those before its step in the stream. Steps that wait (for another process's event) do not keep the
 * thread from others.
 */
#ifndef GEMINI_SIM_HOST_H
#define GEMINI_SIM_HOST_H

#include "libhook/sim/driver/front.h"

/* Returns true when the step is finished, false to be asked again. `drop` frees the argument in any case. */
struct host_step {
    bool (*run)(void *argument);
    void (*drop)(void *argument);
    void *argument;
    bool calls; /* the program's own function, which may stand still */
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
