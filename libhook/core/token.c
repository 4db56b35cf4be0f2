/* token.c - one function per state, in one table (token.h). */
#include "libhook/core/token.h"

#include <string.h>

#define INSIDE_POLL_NS 20000ull  /* a thread is inside for as long as one driver call takes */
#define DRAIN_POLL_NS 30000ull   /* how late the end of a drain may be seen: part of every hand-over */
#define DRAIN_SLEEP_NS 200000ull
#define SPIN_LEAD_NS 50000ull /* the wake-up from a timed sleep, on a small VM */
#define CLOSE_LEAD_NS 90000ull /* ... and what closing a gate takes there (membarrier) */
#define SPIN_NS 100000ull     /* past the predicted end */
#define IDLE_POLL_NS 100000ull   /* how late idleness may be seen where the program does not synchronise */
#define VALVE_LEAST_NS 5000000ull /* max(this, twice the prediction) */
#define FORESEEN_MOST_NS 250000000ull
#define VALVE_OPEN_NS 1000000ull
#define ASK_AGAIN_NS 500000000ull
#define IDLE_ALONE_NS 50000000ull /* alone: idle for that long when a renewal is due means give back */

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t later(uint64_t now_ns, uint64_t by_ns) {
    return now_ns > UINT64_MAX - by_ns ? UINT64_MAX : now_ns + by_ns;
}

void token_init(struct token *token) {
    memset(token, 0, sizeof *token);
    token->deadline_ns = UINT64_MAX;
}

static void take_figures(
    struct token *token, uint64_t quota_ns, uint64_t lease_ns, uint64_t cap_ns, bool contended, uint64_t now_ns) {
    token->quota_ns = quota_ns;
    token->quota_end_ns = later(now_ns, quota_ns);
    token->lease_ns = lease_ns;
    token->lease_end_ns = later(now_ns, lease_ns);
    token->cap_ns = cap_ns;
    token->contended = contended;
    token->renewing = false;
}

bool token_on_grant(struct token *token, uint64_t epoch, uint64_t quota_ns, uint64_t lease_ns, uint64_t cap_ns,
    bool contended, uint64_t now_ns) {
    if (!epoch)
        return false;
    if (token->state == TOKEN_CLOSED || token->state == TOKEN_REQUESTED) {
        token->state = TOKEN_OPEN;
        token->epoch = epoch;
        token->granted_ns = now_ns;
        token->revoked = token->idle = token->former = false;
        token->refresh = true;
        take_figures(token, quota_ns, lease_ns, cap_ns, contended, now_ns);
        return true;
    }
    /* A grant for what is held already comes after a reconnection; another epoch while one is held cannot be. */
    return token_on_extend(token, epoch, quota_ns, lease_ns, cap_ns, contended, now_ns);
}

bool token_on_extend(struct token *token, uint64_t epoch, uint64_t quota_ns, uint64_t lease_ns, uint64_t cap_ns,
    bool contended, uint64_t now_ns) {
    if (!epoch || epoch != token->epoch || token->state < TOKEN_OPEN)
        return false;
    if (token->state != TOKEN_OPEN) { /* draining: only the lease is prolonged, the quota is over */
        token->lease_ns = lease_ns;
        token->lease_end_ns = later(now_ns, lease_ns);
        token->renewing = false;
        return true;
    }
    take_figures(token, quota_ns, lease_ns, cap_ns, contended, now_ns);
    token->refresh = true;
    return true;
}

bool token_on_revoke(struct token *token, uint64_t epoch) {
    if (token->state < TOKEN_OPEN || epoch != token->epoch)
        return false;
    token->revoked = true;
    return true;
}

void token_on_connection(struct token *token) {
    if (token->state == TOKEN_REQUESTED)
        token->state = TOKEN_CLOSED;
    token->renewing = false;
}

void token_on_daemon(struct token *token) {
    token->returned = 0;
    token->former = token->state >= TOKEN_OPEN;
}

uint64_t token_held(const struct token *token) {
    return token->state >= TOKEN_OPEN ? token->epoch : 0;
}

/* Half of the lease, or three quarters of a quota that nobody else waits for, is the time to ask for more. */
static uint64_t renewal_due(const struct token *token) {
    uint64_t due = token->lease_end_ns - token->lease_ns / 2;
    if (token->state == TOKEN_OPEN && !token->contended)
        due = least(due, token->quota_end_ns - least(token->quota_ns, token->quota_end_ns) / 4);
    return due;
}

/* The renewal or its answer may have been lost. */
static uint64_t again_due(const struct token *token) {
    return later(token->asked_ns, token->lease_ns / 4);
}

static uint32_t ask_for_more(struct token *token, uint64_t now_ns) {
    token->renewing = true;
    token->asked_ns = now_ns;
    return TOKEN_SEND_RENEW;
}

static uint32_t renew(struct token *token, const struct token_view *view, uint64_t now_ns, uint64_t *deadline_ns) {
    if (!view->connected)
        return 0;
    uint64_t due = token->renewing ? again_due(token) : renewal_due(token);
    if (now_ns < due) {
        *deadline_ns = least(*deadline_ns, due);
        return 0;
    }
    return ask_for_more(token, now_ns);
}

static uint32_t start_closing(struct token *token, uint64_t now_ns) {
    token->state = TOKEN_CLOSING;
    token->closed_ns = now_ns;
    token->valve_ns = token->foreseen_ns = 0;
    token->deadline_ns = now_ns;
    return TOKEN_CLOSE_GATE;
}

static uint32_t step_closed(struct token *token, const struct token_view *view, uint64_t now_ns) {
    if (!view->waiting || !view->connected)
        return 0;
    token->state = TOKEN_REQUESTED;
    token->requested_ns = now_ns;
    token->deadline_ns = later(now_ns, ASK_AGAIN_NS);
    return TOKEN_SEND_REQUEST;
}

/* A Grant comes, or a new connection. Where neither does, the request may have been lost: asking again costs nothing. */
static uint32_t step_requested(struct token *token, const struct token_view *view, uint64_t now_ns) {
    if (!view->connected)
        return 0;
    if (now_ns < later(token->requested_ns, ASK_AGAIN_NS)) {
        token->deadline_ns = later(token->requested_ns, ASK_AGAIN_NS);
        return 0;
    }
    token->requested_ns = now_ns;
    token->deadline_ns = later(now_ns, ASK_AGAIN_NS);
    if (!view->waiting) { /* nobody waits any more, and nobody answers */
        token->state = TOKEN_CLOSED;
        token->deadline_ns = UINT64_MAX;
        return 0;
    }
    return TOKEN_SEND_REQUEST;
}

/* When to look for the end of what is in flight: sleep until shortly before it should be over, then look without sleeping
 * for a moment, for a wake-up costs more than the whole hand-over should. Predictions tend to be too long, so the sleep is
 * cut in pieces. */
static uint64_t watch_end(struct token *token, const struct token_view *view, uint64_t poll_ns, uint64_t now_ns) {
    if (view->inflight_ns)
        token->expected_ns = now_ns + view->inflight_ns;
    if (view->inflight_ns > SPIN_LEAD_NS)
        return now_ns + least(view->inflight_ns - SPIN_LEAD_NS, most(view->inflight_ns / 2, DRAIN_SLEEP_NS));
    return now_ns < token->expected_ns + SPIN_NS ? now_ns : now_ns + poll_ns;
}

static uint32_t step_open(struct token *token, const struct token_view *view, uint64_t now_ns) {
    uint32_t actions = 0;
    uint64_t deadline = token->lease_end_ns;

    if (token->revoked || view->shut || now_ns >= token->lease_end_ns)
        return start_closing(token, now_ns);
    /* The page was stored before the Grant was sent; another word there now means that the lease ran out. */
    if (!view->page_agrees)
        return start_closing(token, now_ns);
    if (token->contended) {
        if (later(now_ns, view->inflight_ns) >= token->quota_end_ns)
            return start_closing(token, now_ns);
        deadline = least(deadline, token->quota_end_ns - view->inflight_ns);
        if (view->idle_since_ns && !view->waiting) {
            uint64_t patient_until = later(view->idle_since_ns, view->patience_ns);
            if (now_ns >= patient_until) {
                token->idle = true;
                return start_closing(token, now_ns);
            }
            deadline = least(deadline, patient_until);
        } else if (view->ending && !view->waiting) { /* closing takes its time too: let that be over by the end */
            if (view->inflight_ns <= CLOSE_LEAD_NS) {
                token->idle = true;
                return start_closing(token, now_ns);
            }
            deadline = least(deadline,
                now_ns + least(view->inflight_ns - CLOSE_LEAD_NS, most(view->inflight_ns / 2, DRAIN_SLEEP_NS)));
        } else { /* look again when the work known should be over, or those who were woken have launched */
            deadline = least(deadline, now_ns + most(view->inflight_ns, IDLE_POLL_NS));
        }
    }
    if (token->refresh || view->waiting) { /* who waits although the gate is open missed the opening */
        token->refresh = false;
        actions |= TOKEN_OPEN_GATE;
    }
    if (!token->contended && now_ns >= renewal_due(token) && view->idle_since_ns && !view->waiting &&
        now_ns >= later(view->idle_since_ns, IDLE_ALONE_NS)) {
        token->idle = true;
        return actions | start_closing(token, now_ns);
    }
    actions |= renew(token, view, now_ns, &deadline);
    token->deadline_ns = deadline;
    return actions;
}

static uint32_t step_closing(struct token *token, const struct token_view *view, uint64_t now_ns) {
    uint64_t deadline = now_ns + INSIDE_POLL_NS;

    if (view->inside) {
        uint32_t actions = renew(token, view, now_ns, &deadline);
        token->deadline_ns = deadline;
        return actions;
    }
    token->state = TOKEN_DRAINING;
    token->expected_ns = now_ns;
    token->valve_ns = now_ns + most(VALVE_LEAST_NS, 2 * least(view->inflight_ns, UINT32_MAX));
    token->tell_ns = token->valve_ns;
    if (!token->foreseen_ns) /* a drain that goes on after the valve has lasted too long already */
        token->foreseen_ns = least(token->valve_ns, now_ns + FORESEEN_MOST_NS);
    token->deadline_ns = now_ns;
    return 0;
}

/* What stands still is given up when the daemon has gone on without us: it takes no time of the card, and who does not
 * give the token back is never granted it again. */
static uint32_t step_draining(struct token *token, const struct token_view *view, uint64_t now_ns) {
    if (view->drained || view->stands) {
        token->drained_ns = now_ns;
        if (!view->connected) { /* nobody to tell; Hello will not name it any more */
            token->state = TOKEN_CLOSED;
            return TOKEN_VOID;
        }
        token->state =
            view->waiting + view->pending ? TOKEN_REQUESTED : TOKEN_CLOSED; /* WANT_MORE is the next request too */
        token->requested_ns = now_ns;
        if (!token->former)
            token->returned = token->epoch;
        return TOKEN_SEND_RETURN;
    }
    /* What waits behind the undone work in the same stream cannot be what that work waits for. */
    if (now_ns >= token->valve_ns && view->needed) {
        token->state = TOKEN_VALVE;
        token->valve_ns = now_ns + VALVE_OPEN_NS;
        token->deadline_ns = token->valve_ns;
        token->valves++;
        return TOKEN_ADMIT;
    }
    /* A drain that takes very long is looked at less often. */
    uint64_t since = now_ns - token->closed_ns;
    uint64_t deadline = watch_end(token, view, most(DRAIN_POLL_NS, since / 64), now_ns);
    uint32_t actions = renew(token, view, now_ns, &deadline);
    /* Nobody here could help: say that it takes longer than foreseen. A sibling may hold what it waits for, and wait. */
    if (now_ns >= token->tell_ns) {
        token->tell_ns = now_ns + VALVE_LEAST_NS;
        if (!actions && view->connected && !token->renewing)
            actions = ask_for_more(token, now_ns);
    }
    deadline = least(deadline, view->needed && token->valve_ns > now_ns ? token->valve_ns : token->tell_ns);
    token->deadline_ns = deadline;
    return actions;
}

bool token_drain_foreseen(const struct token *token, uint64_t now_ns) {
    return token->state == TOKEN_DRAINING && now_ns < token->foreseen_ns;
}

static uint32_t step_valve(struct token *token, const struct token_view *view, uint64_t now_ns) {
    if (now_ns >= token->valve_ns || (view->drained && !view->waiting)) {
        token->state = TOKEN_CLOSING;
        token->deadline_ns = now_ns;
        return TOKEN_CLOSE_GATE;
    }
    uint64_t deadline = token->valve_ns;
    uint32_t actions = renew(token, view, now_ns, &deadline);
    token->deadline_ns = deadline;
    return actions;
}

static uint32_t (*const STEPS[TOKEN_STATES])(struct token *, const struct token_view *, uint64_t) = {
    [TOKEN_CLOSED] = step_closed,
    [TOKEN_REQUESTED] = step_requested,
    [TOKEN_OPEN] = step_open,
    [TOKEN_CLOSING] = step_closing,
    [TOKEN_DRAINING] = step_draining,
    [TOKEN_VALVE] = step_valve,
};

uint32_t token_step(struct token *token, const struct token_view *view, uint64_t now_ns) {
    token->deadline_ns = UINT64_MAX;
    return STEPS[token->state](token, view, now_ns);
}

void token_returned(const struct token *token, const struct token_view *view, struct token_return *out) {
    /* The device's own end of the work, where it is known, is when the token was given up in truth. */
    uint64_t end =
        view->idle_since_ns && view->idle_since_ns > token->granted_ns ? view->idle_since_ns : token->drained_ns;
    out->epoch = token->epoch;
    out->held_ns = token->drained_ns - token->granted_ns;
    out->overuse_ns = token->contended && end > token->quota_end_ns ? end - token->quota_end_ns : 0;
    out->flags = (view->waiting + view->pending ? TOKEN_RETURN_WANT_MORE : 0) | (token->idle ? TOKEN_RETURN_IDLE : 0) |
                 (view->unconfirmed || view->stands ? TOKEN_RETURN_UNCONFIRMED : 0);
}

const char *token_state_name(int state) {
    static const char *const NAMES[TOKEN_STATES] = {"closed", "requested", "open", "closing", "draining", "valve"};
    return state >= 0 && state < TOKEN_STATES ? NAMES[state] : "?";
}
