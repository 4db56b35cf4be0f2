/* lane_reap.c - what the chunks that are over cost and teach (lane_reap.h). */
#include "libhook/runtime/lane_reap.h"

#include "libhook/driver/real.h"
#include "libhook/runtime/belief.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/lane.h"
#include "libhook/runtime/lane_event.h"
#include "libhook/runtime/overlap.h"
#include "libhook/runtime/visit.h"
#include "libhook/runtime/waited.h"

static uint64_t open_began(const struct lane *lane) {
    uint64_t began_ns = lane_began(lane->ordinal, lane->open_first_ns, lane->open_held);

    return began_ns > lane->end_ns ? began_ns : lane->end_ns;
}

/* Learn from the open chunk, which was seen to be over at that time. */
static void learn_open(const struct gate *gate, struct gate_thread *thread, const struct lane *lane, uint64_t end_ns) {
    struct chunk chunk = {.key = lane->open_mixed ? 0 : lane->open_key,
        .estimated_ns = lane->open_ns,
        .most_ns = lane->open_most_ns,
        .launches = (uint32_t)(lane->launched - lane->cut)};
    uint64_t start_ns = open_began(lane);

    if (gate_was_shared(gate, start_ns))
        return; /* the base may have been later than it seems (pop) */
    belief_learn(gate, thread, &chunk, start_ns, end_ns, false, 0);
}

/* The same for how much runs at once. There may be pauses in it, and what is believed may be far too long. */
static void learn_overlap_of_open(struct gate *gate, const struct lane *lane, uint64_t end_ns) {
    uint64_t start_ns = open_began(lane), most_ns = end_ns > start_ns ? end_ns - start_ns : 0;

    overlap_learn(gate, lane->open_ns, end_ns - (lane->open_ns < most_ns ? lane->open_ns : most_ns), end_ns);
}

static uint64_t between(uint64_t from_ns, uint64_t to_ns) {
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

/* For how long, of start to end of the oldest chunk, the lane's host launched nothing, as what it launched later shows:
 * it stood still in a launch, or had launched all that it would. */
static uint64_t host_silent(const struct lane *lane, uint64_t start_ns, uint64_t end_ns) {
    uint64_t silent_ns = 0, last_ns = lane->ring[lane->popped % LANE_CHUNKS].cut_ns;

    for (uint64_t number = lane->popped + 1; number < lane->pushed; number++) {
        const struct chunk *next = &lane->ring[number % LANE_CHUNKS];
        if (!next->launches)
            continue;
        if (next->wanted_ns >= end_ns)
            return silent_ns + between(last_ns > start_ns ? last_ns : start_ns, end_ns);
        silent_ns += between(
            next->wanted_ns > start_ns ? next->wanted_ns : start_ns, next->first_ns < end_ns ? next->first_ns : end_ns);
        last_ns = next->cut_ns;
    }
    if (lane->launched != lane->cut && lane->open_wanted_ns < end_ns) /* and goes on: it is not known to wait */
        return silent_ns + between(lane->open_wanted_ns > start_ns ? lane->open_wanted_ns : start_ns,
                               lane->open_first_ns < end_ns ? lane->open_first_ns : end_ns);
    return silent_ns + between(last_ns > start_ns ? last_ns : start_ns, end_ns);
}

/* The oldest chunk took from start to end beside other tenants' work: its length tells nothing, the belief counts. */
static void account_shared(struct gate *gate, struct lane *lane, const struct chunk *chunk, uint64_t start_ns,
    uint64_t end_ns, uint64_t span_ns) {
    uint64_t length_ns = end_ns - start_ns;
    length_ns = length_ns < span_ns ? span_ns : length_ns;
    uint64_t busy_ns = length_ns < chunk->estimated_ns ? length_ns : chunk->estimated_ns;
    struct waited_chunk over = {.before_ns = chunk->waited_ns,
        .first_ns = lane_began(gate->ordinal, chunk->first_ns, chunk->held),
        .out_ns = lane_began(gate->ordinal, chunk->cut_ns, chunk->held),
        .end_ns = end_ns,
        .busy_ns = busy_ns,
        .each_ns = chunk->estimated_ns / chunk->launches,
        .silent_ns = host_silent(lane, start_ns, end_ns)};

    __atomic_add_fetch(&gate->card_wait_ns, waited_beside(&lane->waited, &over), __ATOMIC_RELAXED);
    uint64_t seen_ns = lane_seen(lane, chunk->from); /* the agent has counted it, or a part of it */
    bool counted = __atomic_load_n(&lane->clean_mark, __ATOMIC_ACQUIRE) >= chunk->from + chunk->launches;
    uint64_t work_ns = counted ? busy_ns : busy_ns - (seen_ns < busy_ns ? seen_ns : busy_ns);
    overlap_account(gate, chunk->wanted_ns, end_ns - length_ns, end_ns, work_ns, !counted);
}

/* The same where nobody else works. Launches with pauses between them may share a chunk, and its length is no work then:
 * that is at least what is believed, and what the card still had to do after the last of them. (With several threads it
 * is likelier that they took turns.) Returns for how long the lane had it under way. */
static uint64_t account_alone(struct gate *gate, const struct lane *lane, const struct chunk *chunk, uint64_t start_ns,
    uint64_t end_ns, bool queued) {
    uint64_t work_ns = end_ns - start_ns, seen_ns = lane_seen(lane, chunk->from);

    if (queued || chunk->alone || PEEK(gate->active) > 1) {
        seen_ns = 0;
    } else {
        uint64_t out_ns = lane_began(gate->ordinal, chunk->cut_ns, chunk->held);
        work_ns = lane_work(chunk->estimated_ns, start_ns, out_ns, end_ns);
        seen_ns = seen_ns < work_ns ? seen_ns : work_ns;
    }
    gate_account(gate, chunk->wanted_ns, end_ns - (work_ns - seen_ns), end_ns);
    return work_ns;
}

/* What of its length the device surely worked: all of it, where it never had to wait for its host; else what it took from when
 * the last launch was out. Of what was held the device may have begun late. */
static uint64_t sure_of(const struct lane *lane, const struct chunk *chunk, uint64_t start_ns, uint64_t end_ns,
    uint64_t span_ns, bool queued) {
    if (chunk->held || chunk->late)
        return 0;
    if (queued)
        return end_ns - start_ns;
    uint64_t least_ns = chunk->cut_ns + lane->base_late_ns;
    return span_ns && end_ns > least_ns ? end_ns - least_ns : 0;
}

/* What the launches of a chunk that is over say. */
static void take_in(struct gate *gate, struct gate_thread *thread, struct lane *lane, const struct chunk *chunk,
    uint64_t start_ns, uint64_t end_ns, uint64_t span_ns, bool queued, bool known) {
    /* Beside others the base is done when our turn on the card comes, later than the host believes, and all that is
     * measured from it seems to end as much earlier. So there the device's clock alone counts: no less than the work. */
    bool shared = gate_was_shared(gate, start_ns);
    uint64_t under_way_ns = end_ns - start_ns;

    if (known && !shared)
        belief_learn(
            gate, thread, chunk, start_ns, end_ns, queued, sure_of(lane, chunk, start_ns, end_ns, span_ns, queued));
    else if (known && span_ns)
        belief_learn(gate, thread, chunk, end_ns > span_ns ? end_ns - span_ns : 0, end_ns, queued, 0);
    if (shared) {
        account_shared(gate, lane, chunk, start_ns, end_ns, span_ns);
    } else {
        under_way_ns = account_alone(gate, lane, chunk, start_ns, end_ns, queued);
        waited_alone(&lane->waited, end_ns);
    }
    overlap_learn(gate, chunk->estimated_ns, end_ns - under_way_ns, end_ns);
}

static void pop(
    struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t end_ns, uint64_t span_ns, bool known) {
    struct chunk *chunk = &lane->ring[lane->popped % LANE_CHUNKS];
    uint64_t start_ns = lane_began(lane->ordinal, chunk->first_ns, chunk->held);
    /* All of it was launched, and free to go, before the one before it was over. */
    bool queued = lane->end_ns >= chunk->cut_ns && lane->end_ns >= start_ns && !chunk->late;

    start_ns = start_ns > lane->end_ns ? start_ns : lane->end_ns;
    if (end_ns < start_ns)
        end_ns = start_ns;
    if (chunk->launches) /* else it was a copy */
        take_in(gate, thread, lane, chunk, start_ns, end_ns, span_ns, queued, known);
    POKE(lane->end_ns, end_ns);
    /* This event's time is known now: the next chunk is measured from it. The old base serves as a fresh event. */
    CUevent old = lane->base_event;
    POKE(lane->base_event, chunk->event);
    POKE(lane->base_ns, end_ns);
    POKE(lane->base_held, 0);
    POKE(lane->based, known);
    POKE(chunk->event, old);
    POKE(lane->ring_ns, lane->ring_ns - chunk->estimated_ns);
    __atomic_store_n(&lane->popped, lane->popped + 1, __ATOMIC_RELEASE);
}

void lane_reap(struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t now_ns) {
    struct visit visit;

    if (lane->blind_ns && now_ns >= lane->blind_ns)
        POKE(lane->blind_ns, 0);
    if (lane->launched != lane->cut && __atomic_load_n(&lane->clean_mark, __ATOMIC_ACQUIRE) == lane->launched) {
        learn_open(gate, thread, lane, PEEK(lane->clean_ns));
        learn_overlap_of_open(gate, lane, PEEK(lane->clean_ns));
        lane_clear_open(lane); /* the agent saw the end of it, and accounted */
    }
    if (lane->pushed == lane->popped)
        return;
    bool may = visit_begin(&visit, lane->context);
    while (may && lane->popped != lane->pushed && __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) == LANE_LIVE) {
        CUevent event = lane->ring[lane->popped % LANE_CHUNKS].event;
        CUresult result = real.cuEventQuery(event);
        if (result == CUDA_ERROR_NOT_READY)
            break;
        if (result != CUDA_SUCCESS) { /* a sticky error: nothing of this context runs any more */
            POKE(lane->unconfirmed, true);
            pop(gate, thread, lane, now_ns, 0, false);
            continue;
        }
        uint64_t span_ns,
            end_ns = lane_event_time(lane->based, lane->base_event, lane_base_ns(lane), event, now_ns, &span_ns);
        pop(gate, thread, lane, end_ns, span_ns, true);
    }
    visit_end(&visit);
}

void lane_finish(struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t now_ns) {
    lane_reap(gate, thread, lane, now_ns);
    if (lane->pushed != lane->popped || lane->launched == lane->cut)
        return;
    uint64_t start_ns = open_began(lane) < now_ns ? open_began(lane) : now_ns;
    uint64_t work_ns = now_ns - start_ns, seen_ns = lane_seen(lane, lane->cut);
    bool shared = gate_was_shared(gate, start_ns);
    if (shared && work_ns > lane->open_ns)
        work_ns = lane->open_ns;
    work_ns -= seen_ns < work_ns ? seen_ns : work_ns;
    overlap_account(gate, lane->open_wanted_ns, start_ns, now_ns, work_ns, shared);
    learn_open(gate, thread, lane, now_ns);
    learn_overlap_of_open(gate, lane, now_ns);
    POKE(lane->end_ns, now_ns);
    POKE(lane->based, false);
    lane_clear_open(lane);
}
