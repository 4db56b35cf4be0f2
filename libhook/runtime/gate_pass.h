/*
 * gate_pass.h - what nearly every launch passes (gate.h): a few comparisons and stores, without a call.
 */
#ifndef GEMINI_RUNTIME_GATE_PASS_H
#define GEMINI_RUNTIME_GATE_PASS_H

#include <stddef.h>
#include <stdint.h>

#include "libhook/core/peek.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/lane.h"

/* May this launch go, as far as that can be told here? The calling thread's block, which is inside then; NULL:
 * gate_begin_slow decides. The stream is as the driver understands it, 0 spelt out as CU_STREAM_LEGACY or
 * CU_STREAM_PER_THREAD; `key` tells the launch's length. */
static inline __attribute__((always_inline)) struct gate_thread *gate_pass(CUstream stream, uint64_t key) {
    struct gate_thread *self = gate_self;
    const struct estimate *known = &self->estimates[key & (GATE_ESTIMATES - 1)];
    /* The thread's own figures first: a thread that never came here has none of this key. */
    if (__builtin_expect(known->key != key || PEEK(self->stream) != stream || self->room_ns < (int64_t)known->ns, 0))
        return NULL;
    POKE(self->inside, 1); /* the fence is the closer's membarrier */
    __asm__ volatile("" ::: "memory");
    if (__builtin_expect(__atomic_load_n(&self->gate->ticket, __ATOMIC_RELAXED) != self->ticket ||
                             __atomic_load_n(self->page_word, __ATOMIC_RELAXED) != self->epoch,
            0)) {
        POKE(self->inside, 0);
        return NULL;
    }
    struct lane *lane = self->lane;
    uint64_t ns = known->ns;
    self->room_ns -= (int64_t)ns;
    POKE(lane->open_ns, lane->open_ns + ns);
    lane->open_mixed |= key ^ lane->open_key;
    POKE(lane->launched, lane->launched + 1);
    return self;
}

#endif
