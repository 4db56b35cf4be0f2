/* gate_enrol.c - a thread takes a block, and leaves it to another (gate_enrol.h). */
#define _GNU_SOURCE
#include "libhook/runtime/gate_enrol.h"

#include <pthread.h>
#include <sys/mman.h>

#include "libhook/core/peek.h"
#include "libhook/runtime/agent_kick.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/lane.h"

static pthread_key_t exit_key;
static int exit_key_made; /* 0, 1: made */

static void thread_exits(void *value) {
    struct gate_thread *thread = value;

    gate_thread_leave();
    if (PEEK(thread->inside)) { /* cancelled in the driver: it never came to gate_end, and the agent may wait for it */
        thread->after = thread->tell_agent = false;
        __atomic_store_n(&thread->inside, 0, __ATOMIC_RELEASE);
        agent_kick();
    }
    __atomic_store_n(&thread->gone, 1, __ATOMIC_RELEASE);
}

static bool all_clean(const struct gate_thread *thread) {
    for (const struct lane *lane = thread->lanes; lane; lane = lane->next)
        if (PEEK(lane->state) == LANE_LIVE &&
            PEEK(lane->launched) != __atomic_load_n(&lane->clean_mark, __ATOMIC_ACQUIRE) &&
            (PEEK(lane->launched) != PEEK(lane->cut) || PEEK(lane->pushed) != PEEK(lane->popped)))
            return false;
    return true;
}

/* The block of a thread that ended and whose work is over, else a new one. */
static struct gate_thread *enrol(void) {
    struct gate_thread *thread;

    for (thread = gate_threads(); thread; thread = thread->next) {
        uint32_t gone = 1;
        if (__atomic_load_n(&thread->gone, __ATOMIC_ACQUIRE) == 1 && all_clean(thread) &&
            __atomic_compare_exchange_n(&thread->gone, &gone, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            break;
    }
    if (!thread) {
        thread = mmap(NULL, sizeof *thread, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (thread == MAP_FAILED)
            return NULL;
        gate_threads_push(thread);
    }
    thread->ticket = UINT64_MAX; /* no gate's */
    thread->gate = &gates[0];
    thread->page_word = &gates[0].epoch;
    thread->room_ns = 0;
    POKE(thread->stream, NULL);
    thread->lane = NULL;
    thread->syncing = NULL;
    if (__atomic_load_n(&exit_key_made, __ATOMIC_ACQUIRE))
        pthread_setspecific(exit_key, thread);
    gate_self = thread;
    return thread;
}

struct gate_thread *gate_enrol(void) {
    return gate_thread_is_enrolled() ? gate_self : enrol();
}

void gate_enrol_start(void) {
    if (!exit_key_made && !pthread_key_create(&exit_key, thread_exits))
        __atomic_store_n(&exit_key_made, 1, __ATOMIC_RELEASE);
}
