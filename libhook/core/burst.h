/*
 * burst.h - how long the GPU work of a process runs without a pause, and how long the pauses are.
 *
 * A *burst* is a run of back-to-back GPU work, a *gap* the idle time between two. What comes in are intervals in which
 * the device worked, as events on the streams told them; several streams may tell overlapping ones, late and out of
 * order. Pauses shorter than BURST_MERGE_NS do not end a burst, for the token would not be handed over in them; they are
 * averaged apart, because they say how long an idle token is worth keeping. Time that a thread waited at the gate is no
 * gap: a gap ends when the thread *wanted* to launch.
 *
 * Both estimates are exponentially weighted means of rate 0.5, as in Gemini (scheduler.cpp, get_quota). Pure: the
 * caller passes the time and does the locking.
 */
#ifndef GEMINI_CORE_BURST_H
#define GEMINI_CORE_BURST_H

#include <stdbool.h>
#include <stdint.h>

/* cffi: begin */
/* About what a hand-over of the token costs by messages alone (numbers.md's physics: 170 to 250 us on a small VM). */
#define BURST_MERGE_NS 250000
/* The longest an idle token is kept, whatever the estimates say. */
#define BURST_PATIENCE_MAX_NS 1000000

struct burst_piece { /* one run on the device's timeline, for the log */
    uint64_t start_ns;
    uint64_t end_ns;
};

struct burst {
    uint64_t start_ns;       /* of the run that goes on, or went on last; 0: there was none */
    uint64_t end_ns;         /* how far the device is known to have worked */
    uint64_t busy_ns;        /* GPU time of the burst so far */
    uint64_t total_busy_ns;  /* of all work ever */
    uint64_t burst_ns;       /* estimates; 0: not known */
    uint64_t gap_ns;
    uint64_t short_gap_ns;   /* mean of the pauses that did not end a burst */
    uint32_t short_per_1024; /* how often a pause was one of those lately */
    uint32_t bursts;         /* that ended */
};

void burst_init(struct burst *burst);
/* The device worked from start to end; the thread wanted to launch that at wanted_ns. Returns true, and the run before
 * it in *piece, where that was another run on the device's timeline. */
bool burst_add(struct burst *burst, uint64_t wanted_ns, uint64_t start_ns, uint64_t end_ns, struct burst_piece *piece);
/* The work known is over and the token goes back: takes the run that was open, for the log. */
bool burst_take(struct burst *burst, struct burst_piece *piece);
/* How long to keep an idle token after the end of the work, before it is given back. */
uint64_t burst_patience(const struct burst *burst);
/* The same where no synchronisation call told that the program has seen the end: it may launch slower than the device
 * works. Early in its usual burst it is more likely that its thread is kept from running than that it is done. */
uint64_t burst_patience_untold(const struct burst *burst);
/* The estimates that go into messages: the burst at least as long as what is known of the one that goes on. */
uint64_t burst_expected(const struct burst *burst);
/* cffi: end */

#endif
