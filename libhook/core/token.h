/*
 * token.h - a process's side of the token of one GPU: when to ask, when the gate may be open, when to close it, what to
 * wait for, when to give the token back. Pure: messages and the time come in, actions come out.
 *
 *     CLOSED --threads wait--> REQUESTED --Grant--> OPEN --quota, Revoke, lease, idle--> CLOSING --nobody inside--> DRAINING
 *       ^                                                                                  ^                        |    |
 *       |                                                                                  +--- VALVE <--stuck------+    |
 *       +------------------------------------------------- Return <---------------------------------all work done-------+
 *
 * Level triggered: token_step() looks at the world (struct token_view) and does what is due, so a wake-up too many or a
 * message lost with its connection does no harm. The one exception: what the daemon says is told by the token_on_*
 * functions, once, before the next step.
 *
 * The quota ends when the device has done the work, not when the launches stop: the gate closes when what is in flight
 * will fill what is left. Where nobody else wants the token (not CONTENDED), its end does not close the gate.
 */
#ifndef GEMINI_CORE_TOKEN_H
#define GEMINI_CORE_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

/* cffi: begin */
enum token_state {
    TOKEN_CLOSED,
    TOKEN_REQUESTED,
    TOKEN_OPEN,
    TOKEN_CLOSING,
    TOKEN_DRAINING,
    TOKEN_VALVE,
    TOKEN_STATES
};

enum token_action { /* to be carried out in this order */
    TOKEN_SEND_REQUEST = 1,
    TOKEN_SEND_RENEW = 2,
    TOKEN_OPEN_GATE = 4,    /* also when it is open already: figures have changed */
    TOKEN_CLOSE_GATE = 8,   /* then tell view.inside */
    TOKEN_ADMIT = 16,       /* open, although it was closed: the valve */
    TOKEN_SEND_RETURN = 32, /* with what token_returned() says */
    TOKEN_VOID = 64         /* gave up waiting for a drain that nobody waits for any more: the connection is new */
};

enum token_flag {
    TOKEN_RETURN_WANT_MORE = 1,
    TOKEN_RETURN_IDLE = 2,
    TOKEN_RETURN_UNCONFIRMED = 4
}; /* as on the wire */

struct token_view {
    uint64_t inflight_ns;    /* estimated GPU time of launched work, from now on */
    uint64_t idle_since_ns;  /* when the last work known ended; 0: some may be running */
    uint64_t patience_ns;    /* how long to keep an idle token */
    uint32_t waiting;        /* threads at the gate */
    uint32_t pending;        /* ... and before it: they wait for room under the cap, and will come to it */
    bool needed;             /* draining: a thread waits, at this gate or another, whose launch could run at once */
    bool connected;          /* Welcome was heard */
    bool page_agrees;        /* the page shows the epoch held */
    bool inside;             /* a thread is between check and launch */
    bool ending;             /* the program waits for the end of its work, and pauses after it by all experience */
    bool drained;            /* all work launched is done */
    bool unconfirmed;        /* ... as far as it can be told */
    bool stands;             /* draining: others have the token by now, and what is undone waits for its host */
    bool shut;               /* a launching thread found the quota used up and shut the gate itself */
};

struct token {
    enum token_state state;
    uint64_t epoch;
    uint64_t returned;    /* the last epoch of this daemon given back: a word of it that comes later is an echo */
    bool former;          /* `epoch` is of a daemon of before, whose count says nothing about this one's */
    uint64_t requested_ns;
    bool contended;
    bool revoked;
    bool renewing;        /* a renewal was sent, last at asked_ns, and not answered */
    uint64_t asked_ns;
    bool idle;            /* closed for lack of work */
    bool refresh;         /* an Extend was heard: open the gate again with its figures */
    uint64_t granted_ns;
    uint64_t quota_ns;
    uint64_t quota_end_ns;
    uint64_t lease_ns;
    uint64_t lease_end_ns;
    uint64_t cap_ns;
    uint64_t closed_ns;
    uint64_t valve_ns;    /* when a drain not done lets waiting threads in, or the valve closes again */
    uint64_t foreseen_ns; /* until when the drain lasts no longer than what was in flight as it began may take */
    uint64_t tell_ns;     /* when a drain not done is told to the daemon, though the lease needs no renewal yet */
    uint64_t expected_ns; /* when the drain should be over */
    uint64_t drained_ns;
    uint64_t deadline_ns; /* when token_step is due at the latest; UINT64_MAX: at the next event */
    uint32_t valves;      /* that opened, ever */
};

struct token_return {
    uint64_t epoch;
    uint64_t held_ns;
    uint64_t overuse_ns;
    uint32_t flags;
};

void token_init(struct token *token);
/* Grant. Returns false for one that is not wanted (an epoch of 0): it changes nothing. */
bool token_on_grant(struct token *token, uint64_t epoch, uint64_t quota_ns, uint64_t lease_ns, uint64_t cap_ns,
    bool contended, uint64_t now_ns);
/* Extend, for the epoch held; any other is too late and means nothing. */
bool token_on_extend(struct token *token, uint64_t epoch, uint64_t quota_ns, uint64_t lease_ns, uint64_t cap_ns,
    bool contended, uint64_t now_ns);
bool token_on_revoke(struct token *token, uint64_t epoch);
/* A new connection: a request that was under way is void, what is held stays held until its lease ends. */
void token_on_connection(struct token *token);
/* Another daemon than before welcomed us; what is held stays held, and is given back to it. */
void token_on_daemon(struct token *token);
/* Does what is due; returns actions (enum token_action) and sets token->deadline_ns. */
uint32_t token_step(struct token *token, const struct token_view *view, uint64_t now_ns);
/* What to tell with TOKEN_SEND_RETURN; valid right after the step that asked for it. */
void token_returned(const struct token *token, const struct token_view *view, struct token_return *out);
/* The epoch whose work may still run, for Hello; 0: none. */
uint64_t token_held(const struct token *token);
/* Does it drain for no longer yet than its work in flight may take (twice the prediction, 5 to 250 ms)? */
bool token_drain_foreseen(const struct token *token, uint64_t now_ns);
const char *token_state_name(int state);
/* cffi: end */

#endif
