/* seat.c - look at the gate, step the token machine, carry out what it says (seat.h). */
#include "libhook/runtime/seat.h"

#include <sched.h>
#include <string.h>

#include "libhook/runtime/away.h"
#include "libhook/runtime/behind.h"
#include "libhook/runtime/gate_open.h"
#include "libhook/runtime/log.h"
#include "libhook/runtime/segments.h"
#include "libhook/runtime/stands.h"
#include "libhook/runtime/work_probe.h"

/* The word of a gate that is open whatever the daemon's page says: the valve of another gate. */
static const uint64_t ADMIT_WORD = UINT64_MAX - 1;

#define WAITED_NS 300000 /* for a grant: no other tenant was in its way where it took less */
#define CARRIED_NS 50000  /* within that the daemon's thread has carried out what was prepared */
#define LOOK_AT_PAGE_NS 1000000 /* how late what is held may be let go where no thread sleeps on the page */
#define HELD_MOST_NS 50000000ull /* for which work is held while the token is given back */
#define KEPT_NS 400000    /* three times what the next tenant's first launch takes to be out on a small VM */

void seat_init(struct seat *seat, uint32_t device) {
    memset(seat, 0, sizeof *seat);
    seat->device = seat->slot = device;
    seat->gate = &gates[device];
    token_init(&seat->token);
}

/* What was kept goes before anything else of this seat, or the daemon would hear it in a wrong order. */
static void send_kept(struct seat *seat, const struct seat_world *world) {
    if (!seat->kept.epoch)
        return;
    world->send(&seat->kept, WIRE_RETURN);
    seat->kept.epoch = 0;
}

/* Does other tenants' work run beside ours from now on? Where that is new the daemon counts from what it hears now. */
static void share(struct seat *seat, const struct seat_world *world, const struct wire_grant *grant, bool fresh) {
    bool shared = grant->flags & WIRE_GRANT_SHARED, before = PEEK(seat->gate->shared);

    gate_share(seat->gate, shared);
    if (shared && (fresh || !before))
        seat_tell_used(seat, world);
}

/* Take the grant; it begins now. */
static void begin_grant(
    struct seat *seat, const struct seat_world *world, const struct wire_grant *grant, uint64_t now_ns) {
    bool fresh = token_held(&seat->token) == 0;
    page_store_local(world->page, seat->slot, grant->epoch);
    if (!token_on_grant(&seat->token, grant->epoch, grant->quota_ns, grant->lease_ns, grant->cap_ns,
            grant->flags & WIRE_GRANT_CONTENDED, now_ns)) {
        log_line(LOG_WARN, "a grant of epoch %llu came while %llu was held; see the daemon's log",
            (unsigned long long)grant->epoch, (unsigned long long)token_held(&seat->token));
        return;
    }
    POKE(seat->valve_word, seat->token.epoch);
    if (fresh)
        seat->unconfirmed = false;
    share(seat, world, grant, fresh);
}

/* The page shows the epoch of a prepared grant: it has begun, and the first thread may be past the gate already. */
static void adopt(struct seat *seat, const struct seat_world *world, uint64_t now_ns) {
    struct wire_grant grant = seat->prepared;
    uint64_t opened_ns = __atomic_load_n(&seat->gate->opened_ns, __ATOMIC_SEQ_CST);

    if (!grant.epoch || wire_page_load_epoch(world->page->map, seat->slot) != grant.epoch)
        return;
    seat->prepared.epoch = 0;
    if (token_held(&seat->token) == 0)
        begin_grant(seat, world, &grant, opened_ns && opened_ns < now_ns ? opened_ns : now_ns);
}

/* Let the threads that wait sleep on the page itself: the daemon will open the gate there, without this thread. */
static void prepare(
    struct seat *seat, const struct seat_world *world, const struct wire_grant *grant, uint64_t now_ns) {
    if (world->page->state != PAGE_MAPPED || token_held(&seat->token) != 0)
        return;
    away_waits(seat->gate, now_ns); /* another has the card and gives it back */
    seat->prepared = *grant;
    gate_share(seat->gate, grant->flags & WIRE_GRANT_SHARED);
    gate_arm(seat->gate, grant->epoch, &world->page->map->gpu[seat->slot].epoch, grant->cap_ns);
    adopt(seat, world, now_ns);
}

void seat_on_grant(struct seat *seat, const struct seat_world *world, const struct wire_grant *grant, uint64_t now_ns) {
    if (!seat->managed)
        return;
    send_kept(seat, world);
    adopt(seat, world, now_ns);
    if (grant->flags & WIRE_GRANT_PREPARED) {
        prepare(seat, world, grant, now_ns);
        return;
    }
    bool joined = grant->flags & WIRE_GRANT_JOINED;
    if (!joined && grant->epoch <= seat->token.returned)
        return; /* what was prepared has begun and is over before this word of it came */
    seat->prepared.epoch = 0;
    if (!joined && grant->epoch == token_held(&seat->token))
        return; /* ... has begun */
    if (!joined && seat->token.state == TOKEN_REQUESTED && now_ns > seat->token.requested_ns + WAITED_NS)
        away_waits(seat->gate, now_ns);
    begin_grant(seat, world, grant, now_ns);
}

void seat_on_extend(
    struct seat *seat, const struct seat_world *world, const struct wire_grant *grant, uint64_t now_ns) {
    adopt(seat, world, now_ns);
    if (token_on_extend(&seat->token, grant->epoch, grant->quota_ns, grant->lease_ns, grant->cap_ns,
            grant->flags & WIRE_GRANT_CONTENDED, now_ns))
        share(seat, world, grant, false);
}

void seat_on_revoke(
    struct seat *seat, const struct seat_world *world, const struct wire_revoke *revoke, uint64_t now_ns) {
    adopt(seat, world, now_ns);
    token_on_revoke(&seat->token, revoke->epoch);
}

static void send_request(struct seat *seat, const struct seat_world *world, uint32_t flags) {
    struct wire_token_request message;
    struct burst burst;

    send_kept(seat, world);
    gate_burst_snapshot(seat->gate, false, &burst);
    wire_init(&message, WIRE_TOKEN_REQUEST, 0);
    message.device = seat->device;
    message.flags = flags;
    message.epoch = flags & WIRE_TOKEN_RENEW ? seat->token.epoch : 0;
    message.burst_ns = burst_expected(&burst);
    message.gap_ns = burst.gap_ns;
    message.waiting_threads = __atomic_load_n(&seat->gate->waiting, __ATOMIC_RELAXED);
    world->send(&message, WIRE_TOKEN_REQUEST);
}

/* Has another tenant the token already? The daemon's thread takes some microseconds, on this processor or another. */
static bool carried(const struct page *page, uint32_t slot, uint64_t epoch) {
    if (page->state != PAGE_MAPPED)
        return false;
    for (uint64_t until_ns = gate_now() + CARRIED_NS; wire_page_load_epoch(page->map, slot) == epoch;) {
        if (gate_now() >= until_ns)
            return false;
        sched_yield();
    }
    return true;
}

/*
 * The Return says what the daemon must know before it decides again, and wakes it. Where the hand-over was carried out
 * already nothing waits for it, while the next tenant's threads are just waking up: on a small machine, and wherever each
 * tenant is a scheduling group of its own, the daemon would take the processor that they need. So it is kept for a moment:
 * by the daemon's own thread, where that takes it with the word of the drain, else here.
 */
static void send_return(
    struct seat *seat, const struct seat_world *world, const struct token_view *view, uint64_t now_ns) {
    struct wire_return message;
    struct token_return out;
    struct burst burst;

    send_kept(seat, world);
    token_returned(&seat->token, view, &out);
    if (seat->token.contended && !(out.flags & TOKEN_RETURN_IDLE))
        away_waits(seat->gate, now_ns);
    gate_burst_snapshot(seat->gate, true, &burst);
    wire_init(&message, WIRE_RETURN, 0);
    message.device = seat->device;
    message.flags = out.flags;
    message.epoch = out.epoch;
    message.held_ns = out.held_ns;
    message.busy_ns = burst.total_busy_ns - seat->busy_ns;
    message.overuse_ns = out.overuse_ns;
    message.idle_ns = view->idle_since_ns && now_ns > view->idle_since_ns ? now_ns - view->idle_since_ns : 0;
    uint64_t sum = work_probe_launches(seat->gate);
    message.launches = sum - seat->launches;
    seat->launches = sum;
    seat->busy_ns = burst.total_busy_ns;
    message.burst_ns = burst_expected(&burst);
    message.gap_ns = burst.gap_ns;
    page_tell_drained(world->page, seat->slot, out.epoch, out.flags & TOKEN_RETURN_WANT_MORE ? 0 : WIRE_DRAINED_IDLE,
        seat->token.contended ? &message : NULL);
    if (seat->token.contended && carried(world->page, seat->slot, out.epoch)) {
        if (page_has_taken(world->page, seat->slot, out.epoch))
            return;
        seat->kept = message;
        seat->kept_ns = gate_now() + KEPT_NS;
        return;
    }
    page_store_local(world->page, seat->slot, 0);
    world->send(&message, WIRE_RETURN);
}

_Static_assert((int)TOKEN_RETURN_WANT_MORE == (int)WIRE_RETURN_WANT_MORE &&
                   (int)TOKEN_RETURN_IDLE == (int)WIRE_RETURN_IDLE &&
                   (int)TOKEN_RETURN_UNCONFIRMED == (int)WIRE_RETURN_UNCONFIRMED,
    "the core's flags are the wire's");

static void observe(struct seat *seat, const struct seat_world *world, uint64_t now_ns, struct token_view *view) {
    struct token *token = &seat->token;
    struct gate *gate = seat->gate;
    struct burst burst;
    uint64_t end_ns = 0;

    memset(view, 0, sizeof *view);
    view->connected = world->connected;
    view->pending = __atomic_load_n(&gate->pending, __ATOMIC_SEQ_CST);
    view->waiting = __atomic_load_n(&gate->waiting, __ATOMIC_SEQ_CST);
    bool holds = segments_held(gate);
    if (token->state < TOKEN_OPEN) {
        view->waiting += holds;
        return;
    }
    view->pending += holds;
    view->page_agrees = wire_page_load_epoch(world->page->map, seat->slot) == token->epoch;
    view->shut = __atomic_load_n(&gate->shut, __ATOMIC_SEQ_CST);
    bool late = token->state >= TOKEN_CLOSING && now_ns > token->closed_ns + HELD_MOST_NS;
    if (late) /* who held more each time that it comes to this would fill the stream, and never wait here for the valve */
        POKE(gate->drains_long, true);
    if (token->state == TOKEN_CLOSING)
        view->inside = gate_inside(gate);
    if (late)
        segments_release_due(gate, view->inside, now_ns);
    if (view->inside)
        return;
    if (token->state == TOKEN_OPEN || token->state == TOKEN_VALVE)
        seat->pump_ns = segments_pump(gate, now_ns);
    if (segments_held(gate)) { /* the driver is not to be asked now */
        struct segments_look look;
        segments_look(gate, now_ns, &look);
        view->drained = look.drained;
        view->inflight_ns = look.inflight_ns;
        end_ns = look.end_ns;
    } else {
        struct work_probe work;
        work_probe(gate, token->state == TOKEN_OPEN ? LANE_WHEN_DUE : LANE_NOW, now_ns, &work);
        seat->unconfirmed |= work.unconfirmed;
        view->drained = work.finished;
        view->inflight_ns = work.inflight_ns;
        end_ns = work.end_ns;
    }
    gate_burst_snapshot(gate, false, &burst);
    view->patience_ns = burst_patience(&burst);
    /* Idle as the device sees it, though the program may be about to launch: it may launch slower than the device works. */
    /* One thread launches, and it waits for the end: it cannot be about to launch before it has seen it. */
    bool syncing = __atomic_load_n(&gate->syncing, __ATOMIC_SEQ_CST) && PEEK(gate->active) <= 1;
    view->ending = syncing && !view->patience_ns;
    if (!syncing && !__atomic_load_n(&gate->told_idle, __ATOMIC_ACQUIRE))
        view->patience_ns = burst_patience_untold(&burst);
    view->needed =
        !view->drained && token->state == TOKEN_DRAINING && work_probe_is_needed(gate, token->closed_ns, now_ns);
    view->stands = !view->drained && token->state == TOKEN_DRAINING && !view->page_agrees &&
                   behind_after(gate, now_ns - token->closed_ns, now_ns);
    if (!view->drained || (token->state == TOKEN_OPEN && view->pending))
        return;
    uint64_t last_ns = burst.end_ns > end_ns ? burst.end_ns : end_ns;
    view->idle_since_ns = last_ns > token->granted_ns ? last_ns : token->granted_ns;
    view->unconfirmed = seat->unconfirmed;
    /* A grant that came to threads which were only just woken is no idle one: give them the time to launch. */
    if (last_ns <= token->granted_ns && view->patience_ns < 500000)
        view->patience_ns = 500000;
}

static void open_gate(struct seat *seat, const struct seat_world *world) {
    struct token *token = &seat->token;

    gate_open(seat->gate, token->epoch, &world->page->map->gpu[seat->slot].epoch, token->cap_ns,
        token->contended ? token->quota_end_ns : UINT64_MAX, token->contended);
}

static uint32_t renewal_flags(const struct token *token, uint64_t now_ns) {
    if (token->state <= TOKEN_OPEN)
        return WIRE_TOKEN_RENEW;
    return WIRE_TOKEN_RENEW | WIRE_TOKEN_DRAINING | (token_drain_foreseen(token, now_ns) ? WIRE_TOKEN_FORESEEN : 0);
}

/* When what is held may go on: where half of the cap is done, or each segment would cost a wake-up. */
static uint64_t pump_due(const struct seat *seat, uint64_t now_ns, uint64_t deadline_ns) {
    uint64_t wait_ns = seat->pump_ns, least_ns = seat->token.cap_ns / 4;

    if (!segments_held(seat->gate) || wait_ns == UINT64_MAX)
        return deadline_ns;
    wait_ns = wait_ns > least_ns ? wait_ns : least_ns;
    return deadline_ns < now_ns + wait_ns ? deadline_ns : now_ns + wait_ns;
}

uint64_t seat_step(struct seat *seat, const struct seat_world *world, uint64_t now_ns, bool *admit) {
    struct token *token = &seat->token;
    struct token_view view;
    uint32_t actions;

    if (!seat->managed)
        return UINT64_MAX;
    if (seat->kept.epoch && now_ns >= seat->kept_ns)
        send_kept(seat, world);
    /* A state may lead to the next at once (closing to draining, drained to returned): a few rounds, no loop. */
    adopt(seat, world, now_ns);
    for (int round = 0; round < 4; round++) {
        enum token_state before = token->state;
        observe(seat, world, now_ns, &view);
        actions = token_step(token, &view, now_ns);
        if (actions & TOKEN_SEND_REQUEST)
            send_request(seat, world, 0);
        if (actions & TOKEN_SEND_RENEW)
            send_request(seat, world, renewal_flags(token, now_ns));
        if (actions & TOKEN_OPEN_GATE)
            open_gate(seat, world);
        if (actions & TOKEN_CLOSE_GATE) {
            gate_close(seat->gate);
            POKE(seat->gate->behind_ns, 0);
            __atomic_store_n(&seat->gate->shut, 0, __ATOMIC_SEQ_CST);
        }
        if (actions & TOKEN_ADMIT) {
            segments_release(seat->gate);
            POKE(seat->gate->behind_ns, behind_after(seat->gate, now_ns - token->closed_ns, now_ns));
            __atomic_add_fetch(&seat->gate->valves, 1, __ATOMIC_RELAXED);
            gate_open(seat->gate, token->epoch, &seat->valve_word, token->cap_ns, UINT64_MAX, true);
        }
        if (actions & TOKEN_SEND_RETURN) {
            if (view.stands)
                stands_give_up(seat->gate);
            send_return(seat, world, &view, now_ns);
            gate_allow_ahead(seat->gate);
        }
        if (token->state != before)
            log_line(LOG_DEBUG, "device=%u token %s -> %s epoch=%llu at_ns=%llu", seat->device,
                token_state_name((int)before), token_state_name((int)token->state), (unsigned long long)token->epoch,
                (unsigned long long)now_ns);
        if (token->state == before && token->deadline_ns > now_ns)
            break;
        now_ns = gate_now();
    }
    *admit |= token->state == TOKEN_VALVE;
    uint64_t deadline_ns = seat->kept.epoch && seat->kept_ns < token->deadline_ns ? seat->kept_ns : token->deadline_ns;
    /* A thread that sleeps on the page lets go what the device holds; there may be none. */
    if (seat->prepared.epoch && segments_held(seat->gate) && deadline_ns > now_ns + LOOK_AT_PAGE_NS)
        deadline_ns = now_ns + LOOK_AT_PAGE_NS;
    if (token->state == TOKEN_OPEN || token->state == TOKEN_VALVE)
        deadline_ns = pump_due(seat, now_ns, deadline_ns);
    return deadline_ns;
}

void seat_admit(struct seat *seat) {
    if (!seat->managed || seat->token.state >= TOKEN_OPEN || !(PEEK(seat->gate->waiting) || segments_held(seat->gate)))
        return;
    __atomic_add_fetch(&seat->gate->valves, 1, __ATOMIC_RELAXED);
    gate_open(seat->gate, ADMIT_WORD, &ADMIT_WORD, seat->token.cap_ns ? seat->token.cap_ns : 1000000, UINT64_MAX, true);
}

void seat_stop_admitting(struct seat *seat) {
    if (seat->managed && seat->token.state < TOKEN_OPEN && PEEK(seat->gate->ticket) && seat->gate->epoch == ADMIT_WORD)
        gate_close(seat->gate);
}

void seat_unprepare(struct seat *seat, const struct seat_world *world, uint64_t now_ns) {
    adopt(seat, world, now_ns);
    if (seat->prepared.epoch && token_held(&seat->token) == 0)
        gate_close(seat->gate); /* it waits for the page to show that epoch, and nobody would give it back */
    seat->prepared.epoch = 0;
    seat->kept.epoch = 0; /* to a daemon that is gone; Hello tells the next one what is held */
    gate_disarm(seat->gate);
}

void seat_on_daemon(struct seat *seat, const struct seat_world *world, uint64_t now_ns) {
    seat_unprepare(seat, world, now_ns);
    token_on_daemon(&seat->token);
}

void seat_run_free(struct seat *seat) {
    token_init(&seat->token);
    POKE(seat->valve_word, 0);
    gate_share(seat->gate, false);
    gate_open_free(seat->gate);
}

bool seat_is_shared(const struct seat *seat) {
    return seat->managed && token_held(&seat->token) && PEEK(seat->gate->shared);
}

void seat_tell_used(struct seat *seat, const struct seat_world *world) {
    struct wire_used message;
    struct burst burst;

    gate_burst_snapshot(seat->gate, false, &burst);
    wire_init(&message, WIRE_USED, 0);
    message.device = seat->device;
    message.epoch = token_held(&seat->token);
    message.busy_ns = burst.total_busy_ns;
    message.waited_ns = __atomic_load_n(&seat->gate->card_wait_ns, __ATOMIC_RELAXED);
    if (world->connected)
        world->send(&message, WIRE_USED);
}

void seat_stats(struct seat *seat, const struct seat_world *world) {
    struct wire_stats message;
    struct burst burst;
    uint64_t sum = work_probe_launches(seat->gate);

    if (!seat->managed || !world->connected || sum == seat->stats_launches)
        return;
    seat->stats_launches = sum;
    gate_burst_snapshot(seat->gate, false, &burst);
    wire_init(&message, WIRE_STATS, 0);
    message.device = seat->device;
    message.launches = sum;
    message.busy_ns = burst.total_busy_ns;
    message.gate_waits = __atomic_load_n(&seat->gate->waits, __ATOMIC_RELAXED);
    message.gate_wait_ns = __atomic_load_n(&seat->gate->wait_ns, __ATOMIC_RELAXED);
    message.valve_admissions = __atomic_load_n(&seat->gate->valves, __ATOMIC_RELAXED);
    message.copies_h2d_bytes = __atomic_load_n(&seat->gate->h2d_bytes, __ATOMIC_RELAXED);
    message.copies_d2h_bytes = __atomic_load_n(&seat->gate->d2h_bytes, __ATOMIC_RELAXED);
    message.ungated_lookups = world->ungated_lookups ? world->ungated_lookups() : 0;
    world->send(&message, WIRE_STATS);
}
