/* visit.c - the thread as our driver calls need it, and the agent's turn to make them (visit.h). */
#include "libhook/runtime/visit.h"

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

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

static uint32_t agent_inside;   /* the agent is about to touch a context, a stream or an event; seq_cst */
static uint32_t agent_kept_out; /* threads that destroy something now; atomic */

void visit_keep_agent_out(void) {
    __atomic_add_fetch(&agent_kept_out, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&agent_inside, __ATOMIC_SEQ_CST))
        sched_yield();
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

void visit_reset_after_fork(void) {
    agent_inside = agent_kept_out = 0;
}
