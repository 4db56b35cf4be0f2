/* belief.c - the tables of estimates and extremes, and whom to trust (belief.h). */
#include "libhook/runtime/belief.h"

#include "libhook/core/extremes.h"
#include "libhook/core/peek.h"
#include "libhook/runtime/chunk.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_thread.h"

#define SHORTEST_NS 1000     /* no launch is believed to take less: the clock of events has half a microsecond */
#define UNKNOWN_NS 250000    /* what a launch likely takes of which nothing is known */
#define UNKNOWN_MOST_NS 1000000 /* ... and may, before there is a cap */
#define FEW_SAMPLES 4        /* with fewer it is measured */
#define YOUNG_SAMPLES 32     /* with fewer it is wild */
#define AGAIN_SAMPLES 4      /* so many are wanted of a launch that is not trusted any more */
#define WILD_TIMES 2         /* the likely length is so far from the longest */
#define WILD_LEAST_NS 200000 /* shorter ones do no harm */
#define PAUSE_NS 20000000ull /* what may stand still and takes so long likely did (behind.c) */
#define DISTRUST_TIMES 2     /* a chunk's length is so far from what was believed of it */
#define DISTRUST_LEAST_NS 200000
#define HARM_NS 1000000      /* so far past the end of a turn others were kept waiting */
#define DISTRUST_EVERY_NS 100000000ull
#define DISTRUST_SELDOM_NS 10000000000ull

/* Under this key the extremes have which launches stood still, or worked, for PAUSE_NS. */
#define PAUSED_KEY(key) ((key) ^ GATE_SHARED_ESTIMATES / 2)

static struct extremes extremes[GATE_SHARED_ESTIMATES];
static uint32_t surprises; /* how often less is believed than before; any thread */

static uint32_t stand_of(const struct gate *gate) {
    return PEEK(surprises) << 1 | PEEK(gate->contended);
}

bool belief_is_old(const struct gate *gate, const struct gate_thread *thread) {
    return thread->stand != stand_of(gate);
}

static void surprise(void) {
    __atomic_add_fetch(&surprises, 1, __ATOMIC_RELAXED);
}

/* Who stood well with the launch path may not any more. */
static void follow(const struct gate *gate, struct gate_thread *thread) {
    uint32_t stand = stand_of(gate);

    if (thread->stand == stand)
        return;
    for (int i = 0; i < GATE_ESTIMATES; i++)
        POKE(thread->estimates[i].key, 0);
    thread->stand = stand;
}

/* Where it comes again soon it is no change of the program but a way of it (a stream that waits for another), and each
 * time costs some measurements: it is believed less often then. */
static void distrust_all(uint64_t now_ns) {
    static uint64_t last_ns, every_ns = DISTRUST_EVERY_NS; /* any thread; exactness does not matter */
    uint64_t since_ns = now_ns - PEEK(last_ns), least_ns = PEEK(every_ns);

    if (now_ns < PEEK(last_ns) || since_ns < least_ns)
        return;
    POKE(last_ns, now_ns);
    if (since_ns > 8 * least_ns)
        POKE(every_ns, DISTRUST_EVERY_NS);
    else if (least_ns < DISTRUST_SELDOM_NS)
        POKE(every_ns, 2 * least_ns);
    for (int i = 0; i < GATE_SHARED_ESTIMATES; i++)
        if (PEEK(gate_shared_estimates[i].samples) > YOUNG_SAMPLES - AGAIN_SAMPLES)
            POKE(gate_shared_estimates[i].samples, YOUNG_SAMPLES - AGAIN_SAMPLES);
    surprise();
}

static bool is_longer(uint64_t ns, uint64_t than_ns) {
    return ns >= DISTRUST_LEAST_NS && ns > DISTRUST_TIMES * than_ns;
}

/* A chunk of two kinds kept others waiting. One of the two was long, and may be short again before it is measured: it is
 * taken to be the one that was believed the longer. */
static void blame(const struct chunk *chunk, uint64_t length_ns, uint64_t end_ns) {
    const struct estimate *longer = NULL;

    for (int i = 0; i < 2; i++) {
        const struct estimate *one = estimate_find(gate_shared_estimates, GATE_SHARED_ESTIMATES, chunk->kinds[i]);
        if (!one)
            return; /* there were more kinds */
        if (!longer || PEEK(one->ns) > PEEK(longer->ns))
            longer = one;
    }
    extremes_learn(extremes, GATE_SHARED_ESTIMATES, PEEK(longer->key), length_ns / chunk->launches, end_ns);
    surprise();
}

/* One launch of this key was so long, and believed to be shorter. It is a surprise where none of late was. */
static void learn_longest(uint64_t key, uint64_t ns, uint64_t believed_ns, uint64_t end_ns) {
    uint64_t before_ns = extremes_most(extremes, GATE_SHARED_ESTIMATES, key, end_ns);

    extremes_learn(extremes, GATE_SHARED_ESTIMATES, key, ns, end_ns);
    if (is_longer(ns, before_ns > believed_ns ? before_ns : believed_ns))
        surprise();
}

/* What is known of this key, of which there are samples. */
static struct belief known_of(const struct gate *gate, uint64_t key, uint64_t ns, uint32_t samples, uint64_t now_ns) {
    struct belief belief = {.ns = ns, .most_ns = ns, .measure = samples < FEW_SAMPLES};

    uint64_t longest_ns = extremes_most(extremes, GATE_SHARED_ESTIMATES, key, now_ns);
    /* Beside others there is no turn to be kept, and hardly a length to be learned: all would stay young. */
    bool young = samples < YOUNG_SAMPLES && !PEEK(gate->shared);
    belief.wild = young || (longest_ns > WILD_TIMES * ns && longest_ns >= WILD_LEAST_NS);
    belief.young = young;
    belief.measure |= belief.wild;
    if (young && longest_ns < PEEK(gate->cap_ns))
        longest_ns = PEEK(gate->cap_ns);
    if (belief.wild && longest_ns > ns)
        belief.most_ns = longest_ns;
    return belief;
}

/* The launch path knows whom it finds in the thread's table: no wild one. */
static void show(struct gate_thread *thread, uint64_t key, const struct belief *belief, uint32_t samples) {
    struct estimate *place = &thread->estimates[key & (GATE_ESTIMATES - 1)];

    if (!belief->measure)
        estimate_write(place, key, belief->ns, samples);
    else if (place->key == key)
        POKE(place->key, 0);
}

static struct belief believe(const struct gate *gate, struct gate_thread *thread, uint64_t key, uint64_t family,
    uint64_t guess_ns, uint64_t now_ns) {
    const struct estimate *known = estimate_find(gate_shared_estimates, GATE_SHARED_ESTIMATES, key);
    uint32_t samples = known ? PEEK(known->samples) : 0;
    if (samples) {
        struct belief belief = known_of(gate, key, PEEK(known->ns), samples, now_ns);
        show(thread, key, &belief, samples);
        return belief;
    }
    uint64_t cap_ns = PEEK(gate->cap_ns) ? PEEK(gate->cap_ns) : UNKNOWN_MOST_NS;
    const struct estimate *like = family ? estimate_find(gate_shared_estimates, GATE_SHARED_ESTIMATES, family) : NULL;
    struct belief belief = {.measure = true, .unknown = !guess_ns && !like, .wild = !guess_ns, .young = true};
    belief.ns = guess_ns ? guess_ns : like ? PEEK(like->ns) : UNKNOWN_NS < cap_ns ? UNKNOWN_NS : cap_ns;
    belief.most_ns = guess_ns || belief.ns > cap_ns ? belief.ns : cap_ns;
    return belief;
}

struct belief belief_of(const struct gate *gate, struct gate_thread *thread, uint64_t key, uint64_t family,
    uint64_t guess_ns, uint64_t now_ns) {
    follow(gate, thread);
    struct belief belief = believe(gate, thread, key, family, guess_ns, now_ns);
    if (estimate_pauses(key))
        belief.paused_ns = extremes_most(extremes, GATE_SHARED_ESTIMATES, PAUSED_KEY(key), now_ns);
    return belief;
}

void belief_learn(const struct gate *gate, struct gate_thread *thread, const struct chunk *chunk, uint64_t start_ns,
    uint64_t end_ns, bool queued, uint64_t sure_ns) {
    uint64_t length_ns = end_ns - start_ns;
    bool shared = gate_was_shared(gate, start_ns);

    if (end_ns <= start_ns)
        return;
    if (estimate_pauses(chunk->key) && length_ns >= PAUSE_NS) {
        extremes_learn(extremes, GATE_SHARED_ESTIMATES, PAUSED_KEY(chunk->key), PAUSE_NS, end_ns);
        return;
    }
    if (!chunk->key) {
        uint64_t least_ns = chunk->estimated_ns < length_ns ? chunk->estimated_ns : length_ns;
        uint64_t most_ns = chunk->estimated_ns < length_ns ? length_ns : chunk->estimated_ns;
        if (is_longer(sure_ns, chunk->estimated_ns) && end_ns > HARM_NS && end_ns - HARM_NS > chunk->close_by_ns)
            blame(chunk, sure_ns, end_ns);
        if (queued && !shared && !chunk->held && is_longer(most_ns, least_ns))
            distrust_all(end_ns);
        return;
    }
    uint64_t each_ns = length_ns / chunk->launches, believed_ns = chunk->estimated_ns / chunk->launches;
    each_ns = each_ns < SHORTEST_NS ? SHORTEST_NS : each_ns;
    if (queued && sure_ns)
        learn_longest(chunk->key, each_ns, believed_ns, end_ns);
    else if (is_longer(sure_ns, chunk->estimated_ns))
        learn_longest(chunk->key, sure_ns / chunk->launches, believed_ns, end_ns);
    /* A chunk of many tells one launch's length only if the device never had to wait for the host in it; else that it
     * was no longer. What is believed to fill a quota has no other beside it, and would be believed for long. The
     * same where other tenants' work runs beside it. */
    bool exact = (chunk->alone || queued) && (!shared || chunk->unknown);
    if (!exact && each_ns >= believed_ns)
        return;
    each_ns = estimate_learn(gate_shared_estimates, GATE_SHARED_ESTIMATES, chunk->key, each_ns);
    if (chunk->most_ns) /* wild ones come by belief_of each time */
        return;
    const struct estimate *now = estimate_find(gate_shared_estimates, GATE_SHARED_ESTIMATES, chunk->key);
    uint32_t samples = now ? PEEK(now->samples) : 1;
    struct belief belief = known_of(gate, chunk->key, each_ns, samples, end_ns);
    show(thread, chunk->key, &belief, samples);
}
