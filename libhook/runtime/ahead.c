/* ahead.c - the words that the device waits for and writes, and who raises them (ahead.h). */
#define _GNU_SOURCE
#include "libhook/runtime/ahead.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libhook/driver/real.h"
#include "libhook/runtime/agent_kick.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/log.h"
#include "libhook/runtime/visit.h"

#define WORDS_APART 128 /* bytes; two lines of the processor's caches for each gate, one for each word */
#define WORDS_BYTES 4096
#define DONE_AT 64
#define SEGMENTS 128        /* remembered; a power of two */
#define SEGMENTS_AHEAD 60   /* ... and not known to be over, at most */
#define SEGMENT_NS 250000   /* of believed time */
#define CAP_LEAST_NS                                                                                                   \
    (2 * SEGMENT_NS) /* a lower cap is for who waits for the card: little is to run before it, each time */
#define SEGMENT_LAUNCHES 64
#define SHARED_LAUNCHES 256 /* beside others one segment has all that is held */
#define LAUNCHES_AHEAD                                                                                                 \
    512  /* together with waits, stores and events below the 1,024 that a queue of the driver's takes */
#define SHARED_LEAST_NS 1500000 /* at a closed gate so much is held beside others, and let go at once */
#define WORKED_OFF 4 /* what was held is worked off, beside what is launched meanwhile, in so many times its length */
#define AWAY_COUNTS_NS 1000000000ull /* for how long a host that was away is expected to be again */

_Static_assert(WORDS_BYTES >= WORDS_APART * WIRE_MAX_DEVICES, "a page has all of them");
_Static_assert(SEGMENTS >= 2 * LANE_CHUNKS && SEGMENTS_AHEAD < LANE_CHUNKS, "a chunk's segment is remembered");

struct segment {
    uint32_t number, launches;
    uint64_t ns;          /* believed; atomic */
    uint64_t released_ns; /* UINT64_MAX: not yet */
};

/* One for each gate. Under the lock unless said otherwise; it is held for nanoseconds, never over a call. */
static struct book {
    uint32_t lock;
    uint32_t entering; /* a thread is beginning a segment; atomic */
    uint32_t barred;   /* threads that want what cannot be held; atomic */
    uint32_t entered;  /* number of the newest segment; others read */
    uint32_t released; /* ... of the newest that was let go; others read */
    uint32_t done;     /* ... of the newest that is known to be over */
    uint32_t called;   /* threads are to be woken when that one is let go; atomic */
    uint64_t head_ns;  /* when the one behind `done` began, at the latest */
    uint64_t done_ns;  /* when `done` was seen to be over */
    uint64_t held_ns;  /* what was held when the gate opened last; others read */
    uint64_t opened_ns;
    uint64_t away_ns;  /* until when the host is expected to be away again; atomic */
    CUstream stream;   /* of all that is held */
    const struct gate_thread *thread; /* ... where each thread has a stream of that name */
    struct segment segment[SEGMENTS];
} books[WIRE_MAX_DEVICES];

static unsigned char *words; /* of our own, and never unmapped: a device may look at it as long as its context lives */
static CUcontext known; /* where the device knows `words`; atomic */
static CUdeviceptr device_words; /* ... and as what */
static CUcontext tried; /* the last for which that was asked; atomic */
static bool never; /* atomic */

static struct book *book_of(const struct gate *gate) {
    return &books[gate->ordinal];
}

static void lock(struct book *book) {
    while (__atomic_exchange_n(&book->lock, 1, __ATOMIC_ACQUIRE))
        while (__atomic_load_n(&book->lock, __ATOMIC_RELAXED))
            sched_yield();
}

static void unlock(struct book *book) {
    __atomic_store_n(&book->lock, 0, __ATOMIC_RELEASE);
}

static bool is_after(uint32_t number, uint32_t other) {
    return (int32_t)(number - other) > 0;
}

static struct segment *segment_of(struct book *book, uint32_t number) {
    return &book->segment[number % SEGMENTS];
}

static uint32_t *word_of(const struct gate *gate) {
    return (uint32_t *)(void *)(words + (size_t)gate->ordinal * WORDS_APART);
}

static const uint32_t *done_word_of(const struct gate *gate) {
    return (const uint32_t *)(const void *)(words + (size_t)gate->ordinal * WORDS_APART + DONE_AT);
}

/* The driver may wait for what is held when it is torn down, and nobody would let it go any more. */
static void at_exit(void) {
    ahead_never();
    for (int i = 0; i < WIRE_MAX_DEVICES; i++)
        ahead_release(&gates[i]);
}

/* By the first context the driver's own handlers are there, and ours comes before them. A program may make many contexts; a
 * forked child has the handler. */
static void watch_exit_once(void) {
    static bool watched; /* any thread */

    if (!__atomic_exchange_n(&watched, true, __ATOMIC_RELAXED))
        atexit(at_exit);
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
    watch_exit_once();
    __atomic_store_n(&known, context, __ATOMIC_RELEASE);
}

void ahead_host_was_away(struct gate *gate, uint64_t now_ns) {
    POKE(book_of(gate)->away_ns, now_ns + AWAY_COUNTS_NS);
}

/* ---- may a launch be held? ---- */

/* Has the process worked on another card? Then a drain there must be seen while something is held here. */
static bool on_one_card(const struct gate *gate) {
    for (int i = 0; i < WIRE_MAX_DEVICES; i++)
        if (&gates[i] != gate && PEEK(gates[i].launched_epoch))
            return false;
    return true;
}

/* Would the card idle, for the host meets the cap and is away for longer than that lasts? */
static bool is_often_away(const struct gate *gate, const struct book *book) {
    return PEEK(gate->cap_ns) >= CAP_LEAST_NS && gate_now() < PEEK(book->away_ns);
}

bool ahead_would_hold(const struct gate *gate) {
    return !PEEK(never) && (PEEK(gate->shared) || is_often_away(gate, book_of(gate)));
}

bool ahead_holds(const struct gate *gate) {
    const struct book *book = book_of(gate);
    uint32_t entered = __atomic_load_n(&book->entered, __ATOMIC_ACQUIRE);

    return is_after(entered, __atomic_load_n(&book->released, __ATOMIC_ACQUIRE));
}

static bool is_released(const struct book *book, uint32_t number) {
    return !is_after(number, __atomic_load_n(&book->released, __ATOMIC_ACQUIRE));
}

bool ahead_is_held(const struct lane *lane) {
    uint32_t held = PEEK(lane->held);

    return held && !is_released(&books[lane->ordinal], held);
}

/* Is all that the process has in flight on this gate in the stream of the lane? Only that can be told by our words. */
static bool only_in(const struct gate *gate, const struct lane *mine, bool drained) {
    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next)
        for (const struct lane *lane = __atomic_load_n(&thread->lanes, __ATOMIC_ACQUIRE); lane; lane = lane->next) {
            if (&gates[PEEK(lane->ordinal)] != gate || __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) != LANE_LIVE)
                continue;
            bool same = !drained &&
                        (lane == mine || (PEEK(lane->stream) == mine->stream && PEEK(lane->context) == mine->context &&
                                             mine->stream != CU_STREAM_PER_THREAD && !PEEK(lane->stream_gone)));
            bool clean = (PEEK(lane->pushed) == PEEK(lane->popped) && PEEK(lane->launched) == PEEK(lane->cut)) ||
                         __atomic_load_n(&lane->clean_mark, __ATOMIC_ACQUIRE) == PEEK(lane->launched);
            if ((!same && !clean) || PEEK(lane->blind_ns))
                return false;
        }
    return true;
}

bool ahead_in_stream(const struct gate *gate, const struct gate_thread *thread, const struct lane *lane) {
    const struct book *book = book_of(gate);

    return book->stream == lane->stream && (lane->stream != CU_STREAM_PER_THREAD || book->thread == thread);
}

/* So much is held to bridge others' short turns. */
static uint64_t shared_most_ns(const struct gate *gate) {
    uint64_t cap_ns = PEEK(gate->cap_ns);

    return cap_ns > SHARED_LEAST_NS ? cap_ns : SHARED_LEAST_NS;
}

static uint64_t segment_most_ns(const struct gate *gate) {
    return PEEK(gate->shared) ? shared_most_ns(gate) : SEGMENT_NS; /* all of it is let go at once, or piece by piece */
}

static bool has_room(const struct gate *gate, struct book *book) {
    uint32_t launches = 0, count = 0;
    uint64_t ns = 0, most_ns = UINT64_MAX;

    for (uint32_t number = book->entered; is_after(number, book->done) && count < SEGMENTS; number--, count++) {
        launches += segment_of(book, number)->launches;
        ns += segment_of(book, number)->ns;
    }
    if (PEEK(gate->shared))
        most_ns = shared_most_ns(gate);
    return count < SEGMENTS_AHEAD && launches < LAUNCHES_AHEAD && ns < most_ns;
}

bool ahead_may_hold(const struct gate *gate, const struct gate_thread *thread, const struct lane *lane) {
    struct book *book = book_of(gate);

    if (PEEK(never) || lane->context != __atomic_load_n(&known, __ATOMIC_ACQUIRE) ||
        __atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE) || __atomic_load_n(&book->barred, __ATOMIC_RELAXED) ||
        lane->pushed - lane->popped >= LANE_CHUNKS - 2 || PEEK(gate->free))
        return false;
    uint64_t ticket;
    if (PEEK(gate->shared) ? gate_is_open(gate, &ticket) : !is_often_away(gate, book))
        return false;
    if (ahead_holds(gate))
        return ahead_in_stream(gate, thread, lane) && has_room(gate, book);
    return on_one_card(gate) && only_in(gate, lane, PEEK(gate->shared));
}

/* ---- letting go ---- */

static uint64_t ns_of(struct book *book, uint32_t number) {
    return __atomic_load_n(&segment_of(book, number)->ns, __ATOMIC_RELAXED);
}

/* With the lock held. */
static void see_done(const struct gate *gate, struct book *book, uint64_t now_ns) {
    uint32_t done = __atomic_load_n(done_word_of(gate), __ATOMIC_ACQUIRE);

    if (!is_after(done, book->done) || is_after(done, book->released))
        return; /* (two threads' stores may come in the wrong order) */
    book->done = done;
    book->done_ns = book->head_ns = now_ns;
}

/* With the lock held: what was let go and is not over, less what the first of it must have done by now. */
static uint64_t flying(struct book *book, uint64_t now_ns) {
    uint64_t sum_ns = 0;

    for (uint32_t number = book->done + 1; !is_after(number, book->released); number++)
        sum_ns += ns_of(book, number);
    if (!sum_ns)
        return 0;
    uint64_t gone_ns = now_ns > book->head_ns ? now_ns - book->head_ns : 0, head_ns = ns_of(book, book->done + 1);
    return sum_ns - (gone_ns < head_ns ? gone_ns : head_ns);
}

/* With the lock held. */
static void let_go(struct gate *gate, struct book *book, uint64_t now_ns) {
    struct segment *segment = segment_of(book, book->released + 1);

    if (book->done == book->released)
        book->head_ns = now_ns;
    POKE(segment->released_ns, now_ns);
    __atomic_store_n(&book->released, book->released + 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(word_of(gate), book->released, __ATOMIC_SEQ_CST);
}

/* Who sleeps is told, and the agent may call the driver again where nothing is held any more. */
static void tell(struct gate *gate, struct book *book, uint32_t before, uint32_t released, bool ended) {
    if (before == released)
        return;
    /* A card looks at the word by itself; a simulated one sleeps on it. */
    syscall(SYS_futex, word_of(gate), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    if (ended)
        visit_let_agent_in();
    uint32_t called = __atomic_load_n(&book->called, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&gate->awaiting, __ATOMIC_SEQ_CST) && is_after(called, before) && !is_after(called, released))
        gate_call(gate);
}

/* The gate was opened by the page: the agent does not know. */
static void tell_agent(struct gate *gate, uint64_t now_ns) {
    uint64_t not_yet = 0;

    if (__atomic_load_n(&gate->armed_word, __ATOMIC_SEQ_CST) &&
        __atomic_compare_exchange_n(&gate->opened_ns, &not_yet, now_ns, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        agent_kick();
}

uint64_t ahead_over_cap_ns(const struct gate *gate, uint64_t now_ns) {
    const struct book *book = book_of(gate);
    uint64_t gone_ns = (now_ns - PEEK(book->opened_ns)) / WORKED_OFF, held_ns = PEEK(book->held_ns);

    return PEEK(gate->shared) && held_ns > gone_ns ? held_ns - gone_ns : 0;
}

uint64_t ahead_pump(struct gate *gate, uint64_t now_ns) {
    struct book *book = book_of(gate);
    uint64_t wait_ns = UINT64_MAX, ticket;
    bool shut = false;

    if (!ahead_holds(gate))
        return UINT64_MAX;
    lock(book);
    see_done(gate, book, now_ns);
    uint32_t before = book->released;
    uint64_t cap_ns = PEEK(gate->cap_ns) + ahead_over_cap_ns(gate, now_ns), close_by_ns = PEEK(gate->close_by_ns),
             epoch = PEEK(gate->epoch);
    while (is_after(book->entered, book->released) && gate_is_open(gate, &ticket)) {
        if (PEEK(gate->shared)) {
            let_go(gate, book, now_ns);
            continue;
        }
        uint64_t flying_ns = flying(book, now_ns), next_ns = ns_of(book, book->released + 1);
        uint64_t room_ns =
            next_ns < cap_ns / 2 ? next_ns : cap_ns / 2; /* a launch as long as the cap goes at its half */
        if (flying_ns && flying_ns + room_ns > cap_ns) {
            wait_ns = flying_ns + room_ns - cap_ns;
            break;
        }
        if (close_by_ns != UINT64_MAX && now_ns + flying_ns + next_ns / 2 > close_by_ns &&
            PEEK(gate->launched_epoch) == epoch) {
            shut = gate_shut(gate, ticket);
            break;
        }
        let_go(gate, book, now_ns);
        if (PEEK(gate->launched_epoch) != epoch)
            POKE(gate->launched_epoch, epoch);
    }
    uint32_t released = book->released;
    bool ended = before != released && released == book->entered;
    unlock(book);
    tell(gate, book, before, released, ended);
    if (before != released)
        tell_agent(gate, now_ns);
    if (shut)
        agent_kick();
    return ended ? UINT64_MAX : wait_ns;
}

void ahead_release(struct gate *gate) {
    struct book *book = book_of(gate);

    if (!ahead_holds(gate))
        return;
    lock(book);
    uint32_t before = book->released;
    uint64_t now_ns = gate_now();
    while (is_after(book->entered, book->released))
        let_go(gate, book, now_ns);
    uint32_t released = book->released;
    unlock(book);
    tell(gate, book, before, released, before != released);
}

void ahead_close(struct gate *gate) {
    struct book *book = book_of(gate);

    lock(book);
    unlock(book);
}

void ahead_opened(struct gate *gate, uint64_t now_ns) {
    struct book *book = book_of(gate);
    uint64_t held_ns = 0;
    uint32_t launches = 0;

    if (!ahead_holds(gate))
        return;
    lock(book);
    for (uint32_t number = book->released + 1; !is_after(number, book->entered); number++) {
        held_ns += ns_of(book, number);
        launches += segment_of(book, number)->launches;
    }
    POKE(book->held_ns, held_ns);
    POKE(book->opened_ns, now_ns);
    unlock(book);
    ahead_pump(gate, now_ns);
    log_line(LOG_DEBUG, "device=%d let go of %u launches, %llu ns, at_ns=%llu", gate->ordinal, launches,
        (unsigned long long)held_ns, (unsigned long long)now_ns);
}

void ahead_look(struct gate *gate, uint64_t now_ns, struct ahead_look *look) {
    struct book *book = book_of(gate);

    lock(book);
    see_done(gate, book, now_ns);
    look->drained = book->done == book->released;
    look->end_ns = book->done_ns;
    look->inflight_ns = flying(book, now_ns);
    unlock(book);
}

uint64_t ahead_released_ns(int ordinal, uint32_t number) {
    const struct segment *segment = segment_of(&books[ordinal], number);

    return number && PEEK(segment->number) == number ? PEEK(segment->released_ns) : 0;
}

void ahead_bar(struct gate *gate, bool barred) {
    __atomic_add_fetch(&book_of(gate)->barred, barred ? 1u : UINT32_MAX, __ATOMIC_SEQ_CST);
}

void ahead_call_for(struct gate *gate, bool newest) {
    struct book *book = book_of(gate);
    uint32_t number = __atomic_load_n(newest ? &book->entered : &book->released, __ATOMIC_SEQ_CST);

    __atomic_store_n(&book->called, newest ? number : number + 1, __ATOMIC_SEQ_CST);
}

/* ---- holding ---- */

/* With the lock held: what the stream has in flight is the first segment, let go already. */
static void enter_prior(const struct gate *gate, struct book *book, const struct gate_thread *thread,
    const struct lane *lane, uint64_t inflight_ns, uint64_t now_ns) {
    struct segment *prior = segment_of(book, book->entered + 1);

    book->stream = lane->stream;
    book->thread = thread;
    *prior = (struct segment){.number = book->entered + 1, .ns = inflight_ns, .released_ns = now_ns};
    book->done = book->released; /* whatever was before is in flight with it */
    if (!inflight_ns)
        book->done++;
    book->head_ns = now_ns;
    book->done_ns = now_ns;
    __atomic_store_n(&book->released, book->entered + 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&book->entered, book->entered + 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(word_of(gate), book->released, __ATOMIC_SEQ_CST);
}

/* Put a store of the last number, unless that is over, and a wait for this one, into the lane's stream. */
static bool enter_wait(const struct gate *gate, struct lane *lane, uint32_t number, bool drained) {
    CUdeviceptr word = device_words + (size_t)gate->ordinal * WORDS_APART;
    CUresult result = CUDA_SUCCESS;
    struct visit visit;

    bool may = visit_begin(&visit, lane->context) && !visit.lost && !__atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE);
    if (may && !drained)
        result = real.cuStreamWriteValue32_v2(
            lane->stream, word + DONE_AT, number - 1, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
    if (may && result == CUDA_SUCCESS)
        result = real.cuStreamWaitValue32_v2(lane->stream, word, number, CU_STREAM_WAIT_VALUE_GEQ);
    visit_end(&visit);
    if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_FOUND) { /* any other is of this stream alone */
        log_line(LOG_INFO, "streams cannot wait for a value here: launches wait at the closed gate");
        ahead_never();
    }
    return may && result == CUDA_SUCCESS;
}

/* A new segment begins. Only one thread at a time comes here (book.entering). */
static bool begin_segment(
    struct gate *gate, struct book *book, struct gate_thread *thread, struct lane *lane, uint64_t now_ns) {
    bool first = !ahead_holds(gate);

    lane_reap(gate, thread, lane, now_ns);
    lane_cut(lane, now_ns);
    if (lane->launched != lane->cut)
        return false;
    if (first && !visit_try_to_keep_agent_out())
        return false;
    uint64_t inflight_ns = 0;
    if (first)
        for (struct gate_thread *other = gate_threads(); other; other = other->next)
            for (struct lane *one = __atomic_load_n(&other->lanes, __ATOMIC_ACQUIRE); one; one = one->next)
                if (&gates[PEEK(one->ordinal)] == gate && PEEK(one->clean_mark) != PEEK(one->launched))
                    inflight_ns += lane_inflight(one);
    lock(book);
    bool ended = !first && book->released == book->entered; /* meanwhile */
    if (!ended) {
        if (first)
            enter_prior(gate, book, thread, lane, inflight_ns, now_ns);
        *segment_of(book, book->entered + 1) = (struct segment){.number = book->entered + 1, .released_ns = UINT64_MAX};
        __atomic_store_n(&book->entered, book->entered + 1, __ATOMIC_SEQ_CST);
    }
    uint32_t number = book->entered;
    unlock(book);
    if (ended)
        return false;
    if (first)
        agent_kick(); /* to ask, and to let segments go when it is time */
    bool drained = first && !inflight_ns;
    if (!enter_wait(gate, lane, number, drained))
        return false; /* an empty segment, without a wait */
    POKE(lane->held, number);
    if (drained)
        lane_base(lane, number, now_ns);
    return true;
}

bool ahead_hold(struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t ns, uint64_t now_ns) {
    struct book *book = book_of(gate);
    uint32_t none = 0;
    struct segment *segment = segment_of(book, lane->held);

    bool fits = ahead_is_held(lane) && lane->held == __atomic_load_n(&book->entered, __ATOMIC_ACQUIRE) &&
                segment->launches < (PEEK(gate->shared) ? SHARED_LAUNCHES : SEGMENT_LAUNCHES) &&
                (!segment->launches || ns_of(book, lane->held) + ns <= segment_most_ns(gate));
    if (!fits) {
        if (!__atomic_compare_exchange_n(&book->entering, &none, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return false;
        bool begun = ahead_may_hold(gate, thread, lane) && begin_segment(gate, book, thread, lane, now_ns);
        __atomic_store_n(&book->entering, 0, __ATOMIC_SEQ_CST);
        if (!begun)
            return false;
        segment = segment_of(book, lane->held);
    }
    __atomic_add_fetch(&segment->ns, ns, __ATOMIC_SEQ_CST);
    segment->launches++;
    return true;
}

void ahead_unhold(struct gate *gate, const struct lane *lane, uint64_t ns) {
    struct segment *segment = segment_of(book_of(gate), lane->held);

    __atomic_sub_fetch(&segment->ns, ns, __ATOMIC_SEQ_CST);
    segment->launches--;
}

/* ---- ends ---- */

void ahead_never(void) {
    __atomic_store_n(&never, true, __ATOMIC_SEQ_CST);
}

void ahead_lost(CUcontext context) {
    if (__atomic_load_n(&known, __ATOMIC_ACQUIRE) == context) {
        __atomic_store_n(&known, NULL, __ATOMIC_RELEASE);
        for (int i = 0; i < WIRE_MAX_DEVICES; i++)
            ahead_release(&gates[i]); /* what went with it */
    }
    if (PEEK(tried) == context)
        POKE(tried, NULL);
}

void ahead_reset_after_fork(void) {
    words = NULL;
    known = tried = NULL;
    never = false;
    memset(books, 0, sizeof books);
}
