/* gate.c - the gates, who sleeps at them, and the account of bursts (gate.h). */
#define _GNU_SOURCE
#include "libhook/runtime/gate.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libhook/runtime/log.h"

#define OWED_MOST_NS 10000000 /* else work that is believed too long would be counted for as long */

struct gate gates[WIRE_MAX_DEVICES];
int gate_mode = GATE_MEMBARRIER;
_Alignas(64) struct estimate gate_shared_estimates[GATE_SHARED_ESTIMATES];

uint64_t gate_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void gate_call(struct gate *gate) {
    __atomic_add_fetch(&gate->wake, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&gate->waiting, __ATOMIC_SEQ_CST) || __atomic_load_n(&gate->awaiting, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &gate->wake, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
}

void gate_share(struct gate *gate, bool shared) {
    if (PEEK(gate->shared) && !shared)
        POKE(gate->shared_until_ns, gate_now());
    POKE(gate->shared, shared);
}

/* ---- accounts ---- */

static void lock_burst(struct gate *gate) {
    while (__atomic_exchange_n(&gate->burst_lock, 1, __ATOMIC_ACQUIRE))
        while (__atomic_load_n(&gate->burst_lock, __ATOMIC_RELAXED))
            sched_yield();
}

static void unlock_burst(struct gate *gate) {
    __atomic_store_n(&gate->burst_lock, 0, __ATOMIC_RELEASE);
}

static void log_burst(const struct gate *gate, const struct burst_piece *piece) {
    log_line(LOG_DEBUG, "burst start_ns=%llu end_ns=%llu device=%d", (unsigned long long)piece->start_ns,
        (unsigned long long)piece->end_ns, gate->ordinal);
}

void gate_account_within(
    struct gate *gate, uint64_t wanted_ns, uint64_t start_ns, uint64_t end_ns, uint64_t busy_ns, bool one_by_one) {
    struct burst_piece piece;

    lock_burst(gate);
    uint64_t free_ns = gate->burst.end_ns > start_ns ? gate->burst.end_ns : start_ns;
    uint64_t most_ns = end_ns > free_ns ? end_ns - free_ns : 0;
    uint64_t owed_ns = busy_ns + (one_by_one ? gate->owed_ns : 0);
    busy_ns = owed_ns < most_ns ? owed_ns : most_ns;
    owed_ns -= busy_ns;
    gate->owed_ns = owed_ns < OWED_MOST_NS ? owed_ns : OWED_MOST_NS;
    bool ended = busy_ns && burst_add(&gate->burst, wanted_ns, end_ns - busy_ns, end_ns, &piece);
    unlock_burst(gate);
    if (ended)
        log_burst(gate, &piece);
}

void gate_account(struct gate *gate, uint64_t wanted_ns, uint64_t start_ns, uint64_t end_ns) {
    struct burst_piece piece;

    lock_burst(gate);
    bool ended = burst_add(&gate->burst, wanted_ns, start_ns, end_ns, &piece);
    unlock_burst(gate);
    if (ended)
        log_burst(gate, &piece);
}

void gate_burst_snapshot(struct gate *gate, bool take, struct burst *burst) {
    struct burst_piece piece;

    lock_burst(gate);
    bool ended = take && burst_take(&gate->burst, &piece);
    *burst = gate->burst;
    unlock_burst(gate);
    if (ended)
        log_burst(gate, &piece);
}
