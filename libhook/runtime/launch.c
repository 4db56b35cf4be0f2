/* launch.c - what is written into books when a launch goes (launch.h). */
#include "libhook/runtime/launch.h"

#include "libhook/core/peek.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/lane.h"

void launch_cut_all(struct gate_thread *thread, uint64_t now_ns) {
    for (struct lane *lane = thread->lanes; lane; lane = lane->next)
        lane_cut(lane, now_ns);
}

void launch_begin_chunk(struct lane *lane, const struct launch *launch, uint64_t now_ns) {
    lane->open_key = launch->key;
    lane->open_mixed = 0;
    POKE(lane->open_wanted_ns, launch->wanted_ns);
    POKE(lane->open_first_ns, now_ns);
    lane->open_waited_ns = lane->waited.total_ns;
    POKE(lane->open_held, 0);
    lane->open_alone = launch->belief.measure;
    lane->open_unknown = launch->belief.unknown;
    lane->open_most_ns = launch->belief.wild ? launch->belief.most_ns : 0;
}

void launch_enter(struct gate_thread *thread) {
    POKE(thread->inside, 1);
    __asm__ volatile("" ::: "memory");
    if (gate_mode == GATE_FENCED)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void launch_count(struct gate *gate, struct lane *lane, const struct launch *launch) {
    if (__atomic_load_n(&gate->told_idle, __ATOMIC_RELAXED))
        __atomic_store_n(&gate->told_idle, 0, __ATOMIC_RELAXED);
    POKE(lane->open_ns, lane->open_ns + launch->belief.ns);
    lane->open_mixed |= launch->key ^ lane->open_key;
    POKE(lane->launched, lane->launched + 1);
}
