/* visit.c - the thread as our driver calls need it, and the agent's turn to make them (visit.h). */
#include "libhook/runtime/visit.h"

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "libhook/driver/real.h"
#include "libhook/runtime/captures.h"

bool visit_begin(struct visit *visit, CUcontext context) {
    CUcontext current = NULL;

    real.cuCtxGetCurrent(&current);
    bool push = context && current != context;
    visit->pushed = push && real.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    visit->lost = push && !visit->pushed;
    visit->before = CU_STREAM_CAPTURE_MODE_RELAXED;
    visit->relaxed = real.cuThreadExchangeStreamCaptureMode(&visit->before) == CUDA_SUCCESS;
    return visit->relaxed || !__atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE);
}

void visit_end(struct visit *visit) {
    CUcontext popped;

    if (visit->relaxed)
        real.cuThreadExchangeStreamCaptureMode(&visit->before);
    if (visit->pushed)
        real.cuCtxPopCurrent_v2(&popped);
}

#define LEAVING_NS 100000000ull /* one call of the driver's, which may wait for a lock that the ending thread holds */

static uint32_t agent_inside;   /* the agent is about to touch a context, a stream or an event; seq_cst */
static uint32_t agent_kept_out; /* threads that destroy something now; atomic */

void visit_keep_agent_out(void) {
    __atomic_add_fetch(&agent_kept_out, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&agent_inside, __ATOMIC_SEQ_CST))
        sched_yield();
}

bool visit_try_to_keep_agent_out(void) {
    __atomic_add_fetch(&agent_kept_out, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&agent_inside, __ATOMIC_SEQ_CST))
        return true;
    visit_let_agent_in();
    return false;
}

void visit_let_agent_in(void) {
    __atomic_sub_fetch(&agent_kept_out, 1, __ATOMIC_SEQ_CST);
}

bool visit_agent_enters(void) {
    __atomic_store_n(&agent_inside, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&agent_kept_out, __ATOMIC_SEQ_CST))
        return true;
    __atomic_store_n(&agent_inside, 0, __ATOMIC_SEQ_CST);
    return false;
}

void visit_agent_leaves(void) {
    __atomic_store_n(&agent_inside, 0, __ATOMIC_SEQ_CST);
}

static uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void at_exit(void) {
    uint64_t until_ns = clock_ns() + LEAVING_NS;

    __atomic_add_fetch(&agent_kept_out, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&agent_inside, __ATOMIC_SEQ_CST) && clock_ns() < until_ns)
        sched_yield();
}

void visit_end_at_exit(void) {
    atexit(at_exit); /* without memory for one more there is no handler, as there was none before */
}

void visit_reset_after_fork(void) {
    agent_inside = agent_kept_out = 0;
}
