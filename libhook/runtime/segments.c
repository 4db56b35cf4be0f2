/* segments.c - one book of segments for each gate (segments.h). */
#define _GNU_SOURCE
#include "libhook/runtime/segments.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libhook/core/peek.h"
#include "libhook/core/wire.h"
#include "libhook/runtime/agent_kick.h"
#include "libhook/runtime/behind.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/log.h"
#include "libhook/runtime/visit.h"

#define WORKED_OFF 4 /* what was held is worked off, beside what is launched meanwhile, in so many times its length */

_Static_assert(SEGMENTS_BYTES >= SEGMENTS_APART * WIRE_MAX_DEVICES, "a page has all words");

struct segment {
    uint32_t number;
    uint32_t launches;    /* written by the thread that fills it */
    uint64_t ns;          /* believed; atomic */
    uint64_t released_ns; /* UINT64_MAX: not yet */
};

/* Under the lock unless said otherwise; it is held for nanoseconds, never over a call. */
static struct book {
    uint32_t lock;
    uint32_t entered;  /* number of the newest segment; others read */
    uint32_t released; /* ... of the newest that was let go; others read */
    uint32_t done;     /* ... of the newest that is known to be over */
    uint32_t called;   /* threads are to be woken when that one is let go; atomic */
    uint64_t head_ns;  /* when the one behind `done` began, as far as is known */
    uint64_t done_ns;  /* when `done` was seen to be over */
    uint64_t look_ns;  /* when that was looked at last */
    uint64_t held_ns;  /* what was held when the gate opened last; others read */
    uint64_t opened_ns;
    CUstream stream;   /* of all that is held */
    const struct gate_thread *thread; /* ... where each thread has a stream of that name */
    struct segment segment[SEGMENTS];
} books[WIRE_MAX_DEVICES];

unsigned char *segments_words;

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
    return (uint32_t *)(void *)(segments_words + (size_t)gate->ordinal * SEGMENTS_APART);
}

static const uint32_t *done_word_of(const struct gate *gate) {
    return (const uint32_t *)(const void *)(segments_words + (size_t)gate->ordinal * SEGMENTS_APART + SEGMENTS_DONE_AT);
}

static uint64_t ns_of(struct book *book, uint32_t number) {
    return __atomic_load_n(&segment_of(book, number)->ns, __ATOMIC_RELAXED);
}

bool segments_held(const struct gate *gate) {
    const struct book *book = book_of(gate);
    uint32_t entered = __atomic_load_n(&book->entered, __ATOMIC_ACQUIRE);

    return is_after(entered, __atomic_load_n(&book->released, __ATOMIC_ACQUIRE));
}

bool segments_is_released(int ordinal, uint32_t number) {
    return !is_after(number, __atomic_load_n(&books[ordinal].released, __ATOMIC_ACQUIRE));
}

bool segments_in_stream(const struct gate *gate, const struct gate_thread *thread, CUstream stream) {
    const struct book *book = book_of(gate);

    return book->stream == stream && (stream != CU_STREAM_PER_THREAD || book->thread == thread);
}

bool segments_have_room(const struct gate *gate, uint64_t most_ns, uint32_t most_launches, uint32_t most) {
    struct book *book = book_of(gate);
    uint32_t launches = 0, count = 0;
    uint64_t ns = 0;

    for (uint32_t number = book->entered; is_after(number, book->done) && count < SEGMENTS; number--, count++) {
        launches += segment_of(book, number)->launches;
        ns += segment_of(book, number)->ns;
    }
    return count < most && launches < most_launches && ns < most_ns;
}

uint64_t segments_shared_ns(const struct gate *gate) {
    uint64_t cap_ns = PEEK(gate->cap_ns);

    return cap_ns > SEGMENTS_SHARED_NS ? cap_ns : SEGMENTS_SHARED_NS;
}

/* ---- letting go ---- */

/* With the lock held. Nobody looks at the moment at which one is over: it was since the last look, and as is believed, or
 * as near to that as may be. Who took the time of this look would let the next go as much too late. */
static void see_done(const struct gate *gate, struct book *book, uint64_t now_ns) {
    uint32_t done = __atomic_load_n(done_word_of(gate), __ATOMIC_ACQUIRE);

    if (is_after(done, book->done) && !is_after(done, book->released)) { /* (two threads' stores may change places) */
        uint64_t over_ns = book->head_ns;
        for (uint32_t number = book->done + 1; !is_after(number, done); number++)
            over_ns += ns_of(book, number);
        over_ns = over_ns > book->look_ns ? over_ns : book->look_ns;
        book->done = done;
        book->done_ns = now_ns;
        book->head_ns = over_ns < now_ns ? over_ns : now_ns;
    }
    if (now_ns > book->look_ns)
        book->look_ns = now_ns;
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
    POKE(segment->released_ns, gate_now()); /* its thread may have stood still since now_ns */
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

uint64_t segments_over_cap_ns(const struct gate *gate, uint64_t now_ns) {
    const struct book *book = book_of(gate);
    uint64_t gone_ns = (now_ns - PEEK(book->opened_ns)) / WORKED_OFF, held_ns = PEEK(book->held_ns);

    return PEEK(gate->shared) && held_ns > gone_ns ? held_ns - gone_ns : 0;
}

uint64_t segments_pump(struct gate *gate, uint64_t now_ns) {
    struct book *book = book_of(gate);
    uint64_t wait_ns = UINT64_MAX, ticket;
    bool shut = false;

    if (!segments_held(gate))
        return UINT64_MAX;
    lock(book);
    see_done(gate, book, now_ns);
    uint32_t before = book->released;
    uint64_t cap_ns = PEEK(gate->cap_ns) + segments_over_cap_ns(gate, now_ns), close_by_ns = PEEK(gate->close_by_ns),
             epoch = PEEK(gate->epoch);
    while (is_after(book->entered, book->released) && gate_is_open(gate, &ticket)) {
        uint64_t flying_ns = flying(book, now_ns), shared_ns = segments_shared_ns(gate);
        if (PEEK(gate->shared) && flying_ns >= shared_ns) { /* of what was held in turns there may be far more */
            wait_ns = flying_ns - shared_ns + 1;
            break;
        }
        if (PEEK(gate->shared)) {
            let_go(gate, book, now_ns);
            continue;
        }
        uint64_t next_ns = ns_of(book, book->released + 1);
        uint64_t room_ns =
            next_ns < cap_ns / 2 ? next_ns : cap_ns / 2; /* a launch as long as the cap goes at its half */
        uint64_t stood_ns = now_ns > book->head_ns ? now_ns - book->head_ns : 0;
        if (flying_ns && flying_ns + room_ns > cap_ns && flying_ns + next_ns > behind_after(gate, stood_ns, now_ns)) {
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

void segments_release(struct gate *gate) {
    struct book *book = book_of(gate);

    if (!segments_held(gate))
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

void segments_release_due(struct gate *gate, bool stuck, uint64_t now_ns) {
    struct book *book = book_of(gate);

    if (!segments_held(gate))
        return;
    lock(book);
    see_done(gate, book, now_ns);
    uint32_t before = book->released;
    if (book->done != before && behind_after(gate, now_ns > book->head_ns ? now_ns - book->head_ns : 0, now_ns))
        while (is_after(book->entered, book->released))
            let_go(gate, book, now_ns);
    else if (stuck && book->done == before && is_after(book->entered, before))
        let_go(gate, book, now_ns);
    uint32_t released = book->released;
    bool ended = before != released && released == book->entered;
    unlock(book);
    tell(gate, book, before, released, ended);
}

void segments_close(struct gate *gate) {
    struct book *book = book_of(gate);

    lock(book);
    unlock(book);
}

void segments_opened(struct gate *gate, uint64_t now_ns) {
    struct book *book = book_of(gate);
    uint64_t held_ns = 0;
    uint32_t launches = 0;

    if (!segments_held(gate))
        return;
    lock(book);
    for (uint32_t number = book->released + 1; !is_after(number, book->entered); number++) {
        held_ns += ns_of(book, number);
        launches += PEEK(segment_of(book, number)->launches);
    }
    if (held_ns > segments_shared_ns(gate))
        held_ns = segments_shared_ns(gate);
    POKE(book->held_ns, held_ns);
    POKE(book->opened_ns, now_ns);
    unlock(book);
    segments_pump(gate, now_ns);
    log_line(LOG_DEBUG, "device=%d let go of %u launches, %llu ns, at_ns=%llu", gate->ordinal, launches,
        (unsigned long long)held_ns, (unsigned long long)now_ns);
}

void segments_look(struct gate *gate, uint64_t now_ns, struct segments_look *look) {
    struct book *book = book_of(gate);

    lock(book);
    see_done(gate, book, now_ns);
    look->drained = book->done == book->released;
    look->end_ns = book->done_ns;
    look->inflight_ns = flying(book, now_ns);
    unlock(book);
}

uint64_t segments_released_ns(int ordinal, uint32_t number) {
    const struct segment *segment = segment_of(&books[ordinal], number);

    return number && PEEK(segment->number) == number ? PEEK(segment->released_ns) : 0;
}

void segments_call_for(struct gate *gate, bool newest) {
    struct book *book = book_of(gate);
    uint32_t number = __atomic_load_n(newest ? &book->entered : &book->released, __ATOMIC_SEQ_CST);

    __atomic_store_n(&book->called, newest ? number : number + 1, __ATOMIC_SEQ_CST);
}

/* ---- entering ---- */

/* With the lock held: what the stream has in flight is the first segment, let go already. */
static void enter_prior(const struct gate *gate, struct book *book, const struct gate_thread *thread, CUstream stream,
    uint64_t inflight_ns, uint64_t now_ns) {
    struct segment *prior = segment_of(book, book->entered + 1);

    book->stream = stream;
    book->thread = thread;
    *prior = (struct segment){.number = book->entered + 1, .ns = inflight_ns, .released_ns = now_ns};
    book->done = book->released; /* whatever was before is in flight with it */
    if (!inflight_ns)
        book->done++;
    book->head_ns = book->done_ns = book->look_ns = now_ns;
    __atomic_store_n(&book->released, book->entered + 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&book->entered, book->entered + 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(word_of(gate), book->released, __ATOMIC_SEQ_CST);
}

uint32_t segments_begin(struct gate *gate, CUstream stream, const struct gate_thread *thread, bool first,
    uint64_t inflight_ns, uint64_t now_ns) {
    struct book *book = book_of(gate);

    lock(book);
    bool ended = !first && book->released == book->entered; /* meanwhile */
    if (!ended) {
        if (first)
            enter_prior(gate, book, thread, stream, inflight_ns, now_ns);
        *segment_of(book, book->entered + 1) = (struct segment){.number = book->entered + 1, .released_ns = UINT64_MAX};
        __atomic_store_n(&book->entered, book->entered + 1, __ATOMIC_SEQ_CST);
    }
    uint32_t number = book->entered;
    unlock(book);
    return ended ? 0 : number;
}

bool segments_take(const struct gate *gate, uint32_t number, uint64_t ns, uint64_t most_ns, uint32_t most_launches) {
    struct book *book = book_of(gate);
    const struct segment *segment = segment_of(book, number);

    return number == __atomic_load_n(&book->entered, __ATOMIC_ACQUIRE) && segment->launches < most_launches &&
           (!segment->launches || ns_of(book, number) + ns <= most_ns);
}

void segments_add(struct gate *gate, uint32_t number, uint64_t ns) {
    struct segment *segment = segment_of(book_of(gate), number);

    __atomic_add_fetch(&segment->ns, ns, __ATOMIC_SEQ_CST);
    POKE(segment->launches, segment->launches + 1);
}

void segments_take_back(struct gate *gate, uint32_t number, uint64_t ns) {
    struct segment *segment = segment_of(book_of(gate), number);

    __atomic_sub_fetch(&segment->ns, ns, __ATOMIC_SEQ_CST);
    POKE(segment->launches, segment->launches - 1);
}

void segments_reset_after_fork(void) {
    segments_words = NULL;
    memset(books, 0, sizeof books);
}
