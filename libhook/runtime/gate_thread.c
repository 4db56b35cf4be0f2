/* gate_thread.c - the list of blocks, and the block of who has none (gate_thread.h). */
#include "libhook/runtime/gate_thread.h"

#include "libhook/runtime/gate.h"

/* What gate_self leads to in a thread that never came here: no key is ever found in it. */
static struct gate_thread nobody = {.gate = &gates[0], .page_word = &gates[0].epoch, .ticket = UINT64_MAX};
__thread struct gate_thread *gate_self __attribute__((tls_model(TLS_MODEL))) = &nobody;

static struct gate_thread *threads; /* all blocks, pushed at the head */

bool gate_thread_is_enrolled(void) {
    return gate_self != &nobody;
}

struct gate_thread *gate_threads(void) {
    return __atomic_load_n(&threads, __ATOMIC_ACQUIRE);
}

void gate_threads_push(struct gate_thread *thread) {
    thread->next = gate_threads();
    while (!__atomic_compare_exchange_n(&threads, &thread->next, thread, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        ;
}

void gate_thread_leave(void) {
    gate_self = &nobody;
}

void gate_threads_reset_after_fork(void) {
    gate_self = &nobody; /* the parent's blocks stay as they are, copied and unused */
    threads = NULL;
}
