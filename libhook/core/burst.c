/* burst.c - the estimator of burst.h. */
#include "libhook/core/burst.h"

#include <string.h>

/* A tenant that never pauses would otherwise tell of ever longer bursts; the daemon bounds quotas far below. */
#define BURST_LONGEST_NS 1000000000ull
/* A pattern needs to be seen this often before the short pauses are believed to be over at a burst's usual length. */
#define PATTERN_BURSTS 3
#define UNTOLD_NS 80000
/* Long enough for a thread that was put aside to come back, and no more than what an unused grant is kept (seat.c). */
#define KEPT_FROM_RUNNING_NS 500000

void burst_init(struct burst *burst) {
    memset(burst, 0, sizeof *burst);
}

static uint64_t mean(uint64_t old, uint64_t sample) {
    return old ? old / 2 + sample / 2 : sample;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

bool burst_add(struct burst *burst, uint64_t wanted_ns, uint64_t start_ns, uint64_t end_ns, struct burst_piece *piece) {
    bool ended = false;

    if (end_ns <= burst->end_ns)
        return false; /* another stream's work covered it */
    if (!burst->end_ns) { /* the first */
        burst->start_ns = start_ns;
    } else if (start_ns <= burst->end_ns) {
        start_ns = burst->end_ns; /* also after burst_take: the rounding of another clock, no run of its own */
    } else {
        uint64_t gap = wanted_ns > burst->end_ns ? least(wanted_ns, start_ns) - burst->end_ns : 0;
        bool is_short = gap < BURST_MERGE_NS;
        if (is_short && gap)
            burst->short_gap_ns = mean(burst->short_gap_ns, gap);
        if (gap)
            burst->short_per_1024 = burst->short_per_1024 * 7 / 8 + (is_short ? 128 : 0);
        if (!is_short) {
            burst->burst_ns = mean(burst->burst_ns, least(burst->busy_ns, BURST_LONGEST_NS));
            burst->gap_ns = mean(burst->gap_ns, gap);
            burst->busy_ns = 0;
            burst->bursts++;
        }
        /* On the device's timeline the run ended also where the thread only had to wait for its token. */
        if (start_ns - burst->end_ns >= BURST_MERGE_NS || !burst->start_ns) {
            ended = burst_take(burst, piece);
            burst->start_ns = start_ns;
        }
    }
    burst->busy_ns += end_ns - start_ns;
    burst->total_busy_ns += end_ns - start_ns;
    burst->end_ns = end_ns;
    return ended;
}

bool burst_take(struct burst *burst, struct burst_piece *piece) {
    if (!burst->start_ns)
        return false;
    piece->start_ns = burst->start_ns;
    piece->end_ns = burst->end_ns;
    burst->start_ns = 0;
    return true;
}

uint64_t burst_patience(const struct burst *burst) {
    bool pauses_within = burst->short_per_1024 >= 64 && burst->short_gap_ns;

    if (pauses_within) {
        /* Where it went on past that, the pattern is none: not every pause from there on is to be taken for its end. */
        bool at_its_usual_end = burst->bursts >= PATTERN_BURSTS && burst->busy_ns >= burst->burst_ns / 8 * 7 &&
                                burst->busy_ns <= burst->burst_ns / 4 * 5;
        if (!at_its_usual_end)
            return least(2 * burst->short_gap_ns, BURST_PATIENCE_MAX_NS);
    }
    if (!burst->gap_ns && !pauses_within)
        return BURST_MERGE_NS; /* nothing is known: as long as a hand-over costs, like a taxi at the kerb */
    return 0; /* a gap is longer than a hand-over by its definition */
}

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

uint64_t burst_patience_untold(const struct burst *burst) {
    bool early = burst->bursts >= PATTERN_BURSTS && burst->busy_ns < burst->burst_ns / 2;
    return most(burst_patience(burst), early ? KEPT_FROM_RUNNING_NS : UNTOLD_NS);
}

uint64_t burst_expected(const struct burst *burst) {
    uint64_t so_far = least(burst->busy_ns, BURST_LONGEST_NS);
    return burst->burst_ns > so_far ? burst->burst_ns : so_far;
}
