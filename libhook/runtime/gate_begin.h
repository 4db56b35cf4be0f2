/*
 * gate_begin.h - the way of a launch through the gate, for those who launch (gate.h says how it works).
 *
 * The order of a wrapper:   enum gate_answer answer = gate_begin(stream, key, family, guess_ns);
 *                           if (answer == GATE_REFUSED) return GATE_REFUSAL;
 *                           CUresult result = real.cuX(...);
 *                           if (answer == GATE_PASSED) gate_end();
 * Between the two only the driver is called.
 */
#ifndef GEMINI_RUNTIME_GATE_BEGIN_H
#define GEMINI_RUNTIME_GATE_BEGIN_H

#include <stdint.h>

#include "libhook/runtime/gate_pass.h"
#include "libhook/runtime/gate_slow.h"

/* May this launch go? Waits until it may: PASSED, and gate_end() is to be called after it. NOT_OURS: it goes by itself
 * (no tenant, a stream that captures, no context). REFUSED: what the gate needs cannot be had (agent.h). `stream` is as the driver understands it,
 * 0 spelt out as CU_STREAM_LEGACY or CU_STREAM_PER_THREAD. `key` tells this launch's length, `family` that of its like
 * (0: none), `guess_ns` what to believe before either is known (0: nothing, so it is measured alone). */
static inline enum gate_answer gate_begin(CUstream stream, uint64_t key, uint64_t family, uint64_t guess_ns) {
    return gate_pass(stream, key) ? GATE_PASSED : gate_begin_slow(stream, key, family, guess_ns);
}

/* The launch of this thread, whose block it is, is out. */
static inline __attribute__((always_inline)) void gate_leave(struct gate_thread *self) {
    __asm__ volatile("" ::: "memory");
    POKE(self->inside, 0);
    if (__builtin_expect(self->after, 0))
        gate_end_slow(self);
}

static inline void gate_end(void) {
    gate_leave(gate_self);
}

#endif
