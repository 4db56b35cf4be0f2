/* gate_open.c - the ticket and its fence (gate_open.h). */
#define _GNU_SOURCE
#include "libhook/runtime/gate_open.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libhook/runtime/ahead.h"
#include "libhook/runtime/captures.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_enrol.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/lane.h"
#include "libhook/runtime/log.h"
#include "libhook/runtime/segments.h"
#include "libhook/runtime/visit.h"

static uint64_t last_ticket; /* the agent's */

int gate_start(void) {
    gate_enrol_start();
    for (int i = 0; i < WIRE_MAX_DEVICES; i++) {
        gates[i].ordinal = i;
        if (!gates[i].page_word)
            gates[i].page_word = &gates[i].epoch;
        if (!gates[i].burst.end_ns)
            burst_init(&gates[i].burst);
    }
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0)) {
        log_line(LOG_INFO, "membarrier is refused here (%s); launches are fenced instead", strerror(errno));
        __atomic_store_n(&gate_mode, GATE_FENCED, __ATOMIC_SEQ_CST);
    }
    return 0;
}

void gate_disarm(struct gate *gate) {
    const uint64_t *armed = __atomic_exchange_n(&gate->armed_word, NULL, __ATOMIC_SEQ_CST);

    if (armed)
        syscall(SYS_futex, armed, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void open_for(struct gate *gate, uint64_t epoch, const uint64_t *page_word, uint64_t cap_ns,
    uint64_t close_by_ns, bool contended) {
    /* A thread that read the old ticket may mix old and new figures for one launch; it checks the ticket last. */
    POKE(gate->active_before, __atomic_exchange_n(&gate->active, 0, __ATOMIC_ACQ_REL));
    POKE(gate->epoch, epoch);
    POKE(gate->page_word, page_word);
    POKE(gate->cap_ns, cap_ns);
    POKE(gate->close_by_ns, close_by_ns);
    POKE(gate->contended, contended);
    POKE(gate->free, false);
    POKE(gate->drains_long, false);
    __atomic_store_n(&gate->shut, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&gate->ticket, ++last_ticket, __ATOMIC_SEQ_CST);
}

void gate_open(struct gate *gate, uint64_t epoch, const uint64_t *page_word, uint64_t cap_ns, uint64_t close_by_ns,
    bool contended) {
    open_for(gate, epoch, page_word, cap_ns, close_by_ns, contended);
    segments_opened(gate, gate_now());
    gate_disarm(gate);
    gate_call(gate);
}

void gate_arm(struct gate *gate, uint64_t epoch, const uint64_t *page_word, uint64_t cap_ns) {
    __atomic_store_n(&gate->opened_ns, 0, __ATOMIC_SEQ_CST);
    open_for(gate, epoch, page_word, cap_ns, UINT64_MAX, true);
    gate_disarm(gate);
    __atomic_store_n(&gate->armed_word, page_word, __ATOMIC_SEQ_CST);
    gate_call(gate); /* to sleep on the page */
}

void gate_open_free(struct gate *gate) {
    if (__atomic_exchange_n(&gate->free, true, __ATOMIC_SEQ_CST))
        return;
    segments_release(gate);
    gate_disarm(gate);
    gate_call(gate);
}

void gate_allow_ahead(struct gate *gate) {
    if (ahead_would_hold(gate))
        gate_call(gate);
}

void gate_close(struct gate *gate) {
    POKE(gate->free, false);
    __atomic_store_n(&gate->ticket, 0, __ATOMIC_SEQ_CST);
    segments_close(gate);
    gate_disarm(gate);
    if (gate_mode == GATE_MEMBARRIER && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
        __atomic_store_n(&gate_mode, GATE_FENCED, __ATOMIC_SEQ_CST); /* allowed once, and not any more */
}

bool gate_inside(const struct gate *gate) {
    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next)
        if (PEEK(thread->inside) && __atomic_load_n(&thread->gate, __ATOMIC_ACQUIRE) == gate)
            return true;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return false;
}

void gate_reset_after_fork(void) {
    gate_threads_reset_after_fork();
    captures_reset_after_fork();
    lane_reset_after_fork();
    for (int i = 0; i < WIRE_MAX_DEVICES; i++) {
        struct gate *gate = &gates[i];
        memset(gate, 0, sizeof *gate);
        gate->ordinal = i;
        gate->page_word = &gate->epoch;
    }
    visit_reset_after_fork();
    ahead_reset_after_fork();
    gate_mode = GATE_MEMBARRIER;
}
