/*
 * seat.h - one GPU of this process at the agent's table: the token machine (core/token.h), the gate that it drives, and
 * what is counted between a Grant and its Return. Owned by the agent thread.
 */
#ifndef GEMINI_RUNTIME_SEAT_H
#define GEMINI_RUNTIME_SEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libhook/core/token.h"
#include "libhook/core/wire.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/page.h"

struct seat {
    uint32_t device;
    bool managed;      /* the daemon shares this device */
    uint32_t slot;     /* in the page */
    struct gate *gate;
    struct token token;
    struct wire_grant prepared; /* epoch 0: none; a grant that begins when the page shows its epoch */
    struct wire_return kept; /* epoch 0: none; the Return of a grant whose successor has begun, told at kept_ns */
    uint64_t kept_ns;
    uint64_t pump_ns; /* in how long more of what is held may go (ahead.h) */
    bool unconfirmed;  /* something since the Grant could not be observed */
    uint64_t valve_word; /* the epoch held last: a gate opened by the valve looks here, not into the page; atomic */
    /* At the last Return: by the time that a grant on the page is heard of here, its first launches may be out. */
    uint64_t launches;
    uint64_t busy_ns;
    uint64_t stats_launches; /* when WIRE_STATS was sent last */
};

/* How a seat reaches the world; the agent's. send() may fail: the message is gone, and Hello will tell. */
struct seat_world {
    bool connected;
    struct page *page;
    int (*send)(void *message, int type);
    uint64_t (*ungated_lookups)(void); /* or NULL */
};

void seat_init(struct seat *seat, uint32_t device);
void seat_on_grant(struct seat *seat, const struct seat_world *world, const struct wire_grant *grant, uint64_t now_ns);
void seat_on_extend(struct seat *seat, const struct seat_world *world, const struct wire_grant *grant, uint64_t now_ns);
void seat_on_revoke(
    struct seat *seat, const struct seat_world *world, const struct wire_revoke *revoke, uint64_t now_ns);
/* Does what is due; returns when to come again (UINT64_MAX: at the next event). `admit` becomes true where waiting
 * threads of other gates of this process are to be let in as well (the valve). */
uint64_t seat_step(struct seat *seat, const struct seat_world *world, uint64_t now_ns, bool *admit);
/* The valve of another seat: threads that wait here go, until that one has drained. */
void seat_admit(struct seat *seat);
void seat_stop_admitting(struct seat *seat);
/* The daemon is gone or another: what it prepared has begun, or will not. */
void seat_unprepare(struct seat *seat, const struct seat_world *world, uint64_t now_ns);
/* Another daemon than before welcomed us: nothing that one said or heard of grants counts any more. */
void seat_on_daemon(struct seat *seat, const struct seat_world *world, uint64_t now_ns);
/* Run free: no daemon and mode `run`, or a device that is not shared. */
void seat_run_free(struct seat *seat);
/* Does it hold a grant beside others, under which the daemon is to hear soon what was used? */
bool seat_is_shared(const struct seat *seat);
void seat_tell_used(struct seat *seat, const struct seat_world *world);
void seat_stats(struct seat *seat, const struct seat_world *world);

#endif
