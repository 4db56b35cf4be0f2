/* held.c - waiting, and going ahead instead (held.h). */
#define _GNU_SOURCE
#include "libhook/runtime/held.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libhook/core/peek.h"
#include "libhook/runtime/agent_kick.h"
#include "libhook/runtime/ahead.h"
#include "libhook/runtime/cancel.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/lane.h"
#include "libhook/runtime/launch.h"
#include "libhook/runtime/segments.h"

#define GATE_RECHECK_NS 100000000l
#define AWAIT_NS 2000000l /* for what is held to be let go, without being told */

/* May the device hold it until the gate opens (ahead.h)? */
static bool may_be_held(const struct gate *gate, const struct lane *lane, const struct launch *launch) {
    const struct belief *belief = &launch->belief;

    return launch->is_kernel && !belief->measure && !belief->wild && !belief->unknown &&
           ahead_may_hold(gate, gate_self, lane);
}

void held_wait(struct gate *gate, struct gate_thread *thread, struct lane *lane, const struct launch *launch) {
    static const struct timespec RECHECK = {.tv_sec = 0, .tv_nsec = GATE_RECHECK_NS};
    uint64_t start_ns = gate_now(), ticket;

    launch_cut_all(thread, start_ns);
    if (launch)
        __atomic_store_n(&thread->wait_lane, lane, __ATOMIC_RELEASE);
    __atomic_add_fetch(&gate->waiting, 1, __ATOMIC_SEQ_CST);
    agent_kick();
    for (;;) {
        uint32_t wake = __atomic_load_n(&gate->wake, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&gate->free, __ATOMIC_SEQ_CST) || gate_is_open(gate, &ticket) ||
            (launch ? may_be_held(gate, lane, launch) : !lane_is_held(lane)))
            break;
        const uint64_t *armed = __atomic_load_n(&gate->armed_word, __ATOMIC_SEQ_CST);
        if (armed) { /* little-endian: the low half of the epoch stands first, and no two neighbours share it */
            uint32_t seen = __atomic_load_n((const uint32_t *)armed, __ATOMIC_SEQ_CST);
            if (!gate_is_open(gate, &ticket))
                syscall(SYS_futex, armed, FUTEX_WAIT, seen, &RECHECK, NULL, 0);
        } else {
            syscall(SYS_futex, &gate->wake, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, wake, &RECHECK, NULL, 0);
        }
        if (agent_lost() || agent_closed())
            break;
    }
    __atomic_sub_fetch(&gate->waiting, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&thread->wait_lane, NULL, __ATOMIC_RELEASE);
    __atomic_add_fetch(&gate->waits, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&gate->wait_ns, gate_now() - start_ns, __ATOMIC_RELAXED);
}

bool held_go(
    struct gate *gate, struct gate_thread *thread, struct lane *lane, const struct launch *launch, uint64_t now_ns) {
    uint64_t ticket;

    if (!may_be_held(gate, lane, launch))
        return false;
    bool open = gate_is_open(gate, &ticket);
    if (!open)
        sched_yield(); /* whoever works for the tenant that has the card comes first, where processors are few */
    if (!ahead_hold(gate, thread, lane, launch->belief.ns, now_ns))
        return false;
    lane_other_ends(lane, now_ns);
    __atomic_store_n(&thread->gate, gate, __ATOMIC_RELEASE);
    launch_enter(thread);
    if (!lane_is_held(lane) && !gate_is_open(gate, &ticket)) { /* it was let go, and the gate is closed again */
        POKE(thread->inside, 0);
        ahead_unhold(gate, lane, launch->belief.ns);
        return false;
    }
    if (lane->launched == lane->cut) {
        launch_begin_chunk(lane, launch, now_ns);
        POKE(lane->open_held, lane->held);
    }
    launch_count(gate, lane, launch);
    thread->lane = thread->held_lane = lane;
    thread->met_cap |= open;
    thread->room_ns = -1;
    thread->after = false;
    return true;
}

/* Sleep until something changes of what is held on this gate: until the newest of it is let go, or the next. */
static void await(struct gate *gate, struct gate_thread *thread, struct lane *lane, const struct launch *launch) {
    struct timespec pause = {.tv_sec = 0, .tv_nsec = AWAIT_NS};
    uint64_t ticket;

    if (!gate_is_open(gate, &ticket) && !__atomic_load_n(&gate->free, __ATOMIC_ACQUIRE)) {
        held_wait(gate, thread, lane, launch);
        return;
    }
    __atomic_add_fetch(&gate->awaiting, 1, __ATOMIC_SEQ_CST);
    uint32_t wake = __atomic_load_n(&gate->wake, __ATOMIC_SEQ_CST);
    segments_call_for(gate, !launch);
    segments_pump(gate, gate_now());
    if (launch ? !may_be_held(gate, lane, launch) && segments_held(gate) : lane_is_held(lane))
        syscall(SYS_futex, &gate->wake, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, wake, &pause, NULL, 0);
    __atomic_sub_fetch(&gate->awaiting, 1, __ATOMIC_SEQ_CST);
}

bool held_join(
    struct gate *gate, struct gate_thread *thread, struct lane *lane, const struct launch *launch, uint64_t now_ns) {
    segments_pump(gate, now_ns);
    if (!segments_held(gate))
        return false;
    if (held_go(gate, thread, lane, launch, now_ns))
        return true;
    bool other = !launch->is_kernel || launch->belief.measure || launch->belief.wild ||
                 !segments_in_stream(gate, thread, lane->stream);
    if (other)
        ahead_bar(gate, true);
    launch_cut_all(thread, now_ns);
    await(gate, thread, lane, launch);
    if (other)
        ahead_bar(gate, false);
    return false;
}

bool held_await(void) {
    struct lane *lane = gate_self->held_lane;

    if (!lane)
        return true;
    int saved = errno, cancel = cancel_hold();
    while (lane_is_held(lane) && !agent_lost() && !agent_closed())
        await(&gates[lane->ordinal], gate_self, lane, NULL);
    bool released = !lane_is_held(lane);
    if (released)
        gate_self->held_lane = NULL;
    cancel_release(cancel);
    errno = saved;
    return released || !agent_closed();
}
