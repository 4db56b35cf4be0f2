/* ahead.c - the word that the device waits for, and who raises it (ahead.h). */
#define _GNU_SOURCE
#include "libhook/runtime/ahead.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libhook/driver/real.h"
#include "libhook/runtime/agent_kick.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/log.h"
#include "libhook/runtime/visit.h"

#define WORD_APART 64 /* bytes; one line of the processor's caches for each gate */
#define WORDS_BYTES 4096
#define AHEAD_LEAST_NS 1500000
#define WORKED_OFF 4 /* what was held is worked off, beside what is launched meanwhile, in so many times its length */

_Static_assert(WORDS_BYTES >= WORD_APART * WIRE_MAX_DEVICES, "a page has all of them");

static unsigned char *words; /* of our own, and never unmapped: a device may look at it as long as its context lives */
static CUcontext known; /* where the device knows `words`; atomic */
static CUdeviceptr device_words; /* ... and as what */
static CUcontext tried; /* the last for which that was asked; atomic */
static bool never; /* atomic */

static uint64_t generation(uint64_t ahead) {
    return ahead / AHEAD_STATES;
}

static enum ahead_state state(uint64_t ahead) {
    return (enum ahead_state)(ahead % AHEAD_STATES);
}

static uint64_t pack(uint64_t of_generation, enum ahead_state with) {
    return of_generation * AHEAD_STATES + with;
}

static uint32_t *word_of(const struct gate *gate) {
    return (uint32_t *)(void *)(words + (size_t)gate->ordinal * WORD_APART);
}

void ahead_prepare(CUcontext context) {
    if (PEEK(tried) == context || PEEK(never) || __atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE))
        return;
    CUcontext before = PEEK(tried);
    if (__atomic_load_n(&known, __ATOMIC_ACQUIRE) ||
        !__atomic_compare_exchange_n(&tried, &before, context, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        return; /* one context of a process is enough */
    if (!words) {
        void *page = mmap(NULL, WORDS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            return;
        /* After a fork the next store could go to a copy, while the device looks at the old page. */
        if (madvise(page, WORDS_BYTES, MADV_DONTFORK)) {
            munmap(page, WORDS_BYTES);
            return;
        }
        words = page;
    }
    struct visit visit;
    CUdeviceptr found = 0;
    bool can = visit_begin(&visit, context) && !visit.lost &&
               real.cuMemHostRegister_v2(
                   words, WORDS_BYTES, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_SUCCESS &&
               real.cuMemHostGetDevicePointer_v2(&found, words, 0) == CUDA_SUCCESS;
    visit_end(&visit);
    if (!can) {
        ahead_never();
        return;
    }
    device_words = found;
    __atomic_store_n(&known, context, __ATOMIC_RELEASE);
}

/* Has the process worked on another card? Then a drain there must be seen while something is held here. */
static bool on_one_card(const struct gate *gate) {
    for (int i = 0; i < WIRE_MAX_DEVICES; i++)
        if (&gates[i] != gate && PEEK(gates[i].launched_epoch))
            return false;
    return true;
}

bool ahead_allow(struct gate *gate) {
    uint64_t ahead = __atomic_load_n(&gate->ahead, __ATOMIC_ACQUIRE);

    if (state(ahead) != AHEAD_NO || !PEEK(gate->shared) || PEEK(never) || !__atomic_load_n(&known, __ATOMIC_ACQUIRE) ||
        !on_one_card(gate))
        return false;
    __atomic_store_n(&gate->ahead_ns, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&gate->ahead_launches, 0, __ATOMIC_RELAXED);
    return __atomic_compare_exchange_n(
        &gate->ahead, &ahead, pack(generation(ahead), AHEAD_MAY), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

bool ahead_holds(const struct gate *gate) {
    return state(__atomic_load_n(&gate->ahead, __ATOMIC_SEQ_CST)) == AHEAD_HELD;
}

bool ahead_is_held(const struct lane *lane) {
    uint64_t held = PEEK(lane->held);

    return held && __atomic_load_n(&gates[lane->ordinal].ahead, __ATOMIC_ACQUIRE) == held;
}

/* So much work may be held: as much as may be in flight, but at least what is prepared while another has a short turn. */
static uint64_t bound_ns(const struct gate *gate) {
    uint64_t cap_ns = PEEK(gate->cap_ns);

    return cap_ns > AHEAD_LEAST_NS ? cap_ns : AHEAD_LEAST_NS;
}

bool ahead_has_room(const struct gate *gate, const struct lane *lane, uint64_t ns) {
    return state(__atomic_load_n(&gate->ahead, __ATOMIC_SEQ_CST)) != AHEAD_NO &&
           lane->context == __atomic_load_n(&known, __ATOMIC_ACQUIRE) &&
           __atomic_load_n(&gate->ahead_launches, __ATOMIC_RELAXED) < AHEAD_LAUNCHES &&
           __atomic_load_n(&gate->ahead_ns, __ATOMIC_RELAXED) + ns <= bound_ns(gate);
}

uint64_t ahead_over_cap_ns(const struct gate *gate, uint64_t now_ns) {
    uint64_t gone_ns = (now_ns - PEEK(gate->released_ns)) / WORKED_OFF;
    uint64_t held_ns = __atomic_load_n(&gate->ahead_ns, __ATOMIC_RELAXED);

    return held_ns > gone_ns ? held_ns - gone_ns : 0;
}

void ahead_release(struct gate *gate) {
    uint64_t ahead = __atomic_load_n(&gate->ahead, __ATOMIC_SEQ_CST), next;

    do {
        if (state(ahead) == AHEAD_NO)
            return;
        next = pack(generation(ahead) + 1, AHEAD_NO);
    } while (!__atomic_compare_exchange_n(&gate->ahead, &ahead, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    if (state(ahead) != AHEAD_HELD)
        return;
    uint64_t now_ns = gate_now();
    POKE(gate->released_ns, now_ns);
    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next)
        for (struct lane *lane = __atomic_load_n(&thread->lanes, __ATOMIC_ACQUIRE); lane; lane = lane->next)
            if (PEEK(lane->held) == ahead) {
                POKE(lane->open_first_ns, now_ns);
                POKE(lane->base_ns, now_ns);
            }
    __atomic_store_n(word_of(gate), (uint32_t)generation(next), __ATOMIC_SEQ_CST);
    /* A card looks at the word by itself; a simulated one sleeps on it. */
    syscall(SYS_futex, word_of(gate), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    visit_let_agent_in();
    log_line(LOG_DEBUG, "device=%d let go of %u launches, %llu ns, at_ns=%llu", gate->ordinal,
        __atomic_load_n(&gate->ahead_launches, __ATOMIC_RELAXED),
        (unsigned long long)__atomic_load_n(&gate->ahead_ns, __ATOMIC_RELAXED), (unsigned long long)now_ns);
}

/* Put the wait into the lane's stream, and behind it the event from which what follows is measured. */
static bool enter_wait(struct gate *gate, struct lane *lane, uint64_t held, uint64_t now_ns) {
    struct visit visit;

    bool may = visit_begin(&visit, lane->context) && !visit.lost && !__atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE);
    CUresult result = CUDA_SUCCESS;
    if (may)
        result = real.cuStreamWaitValue32_v2(lane->stream, device_words + (size_t)gate->ordinal * WORD_APART,
            (uint32_t)generation(held) + 1, CU_STREAM_WAIT_VALUE_GEQ);
    visit_end(&visit);
    if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_FOUND) { /* any other is of this stream alone */
        log_line(LOG_INFO, "streams cannot wait for a value here: launches wait at the closed gate");
        ahead_never();
    }
    if (!may || result != CUDA_SUCCESS)
        return false;
    lane_base(lane, now_ns);
    POKE(lane->held, held);
    return true;
}

bool ahead_hold(struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t now_ns) {
    uint64_t ahead = __atomic_load_n(&gate->ahead, __ATOMIC_SEQ_CST);

    if (state(ahead) == AHEAD_NO || PEEK(never) || __atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE))
        return false;
    uint64_t held = pack(generation(ahead), AHEAD_HELD);
    if (PEEK(lane->held) == held)
        return true;
    lane_reap(gate, thread, lane, now_ns);
    lane_cut(lane, now_ns);
    if (lane->launched != lane->cut || lane->pushed != lane->popped) /* what was before the wait may not be over */
        return false;
    if (state(ahead) == AHEAD_MAY) {
        if (!visit_try_to_keep_agent_out())
            return false;
        if (!__atomic_compare_exchange_n(&gate->ahead, &ahead, held, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            visit_let_agent_in();
            if (ahead != held) /* else another thread of the process was first */
                return false;
        } else
            agent_kick(); /* to ask, if nobody has */
    }
    return enter_wait(gate, lane, held, now_ns);
}

void ahead_never(void) {
    __atomic_store_n(&never, true, __ATOMIC_SEQ_CST);
}

void ahead_lost(CUcontext context) {
    if (__atomic_load_n(&known, __ATOMIC_ACQUIRE) == context)
        __atomic_store_n(&known, NULL, __ATOMIC_RELEASE);
    if (PEEK(tried) == context)
        POKE(tried, NULL);
}

void ahead_reset_after_fork(void) {
    words = NULL;
    known = tried = NULL;
    never = false;
}
