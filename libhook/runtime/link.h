/*
 * link.h - the connection to the daemon: a Unix socket that speaks ZMTP, and comes back when it was lost.
 *
 * Owned by the agent thread; nobody else may touch it. It never blocks: link_step() is called when the descriptor is
 * ready or link_deadline() has passed. A lost connection is tried again after 5, 10, 20 ... 100 ms, for ever: the socket
 * file may vanish and return. What was queued for a lost connection is gone; who uses the link says Hello again and
 * tells its state from scratch.
 */
#ifndef GEMINI_RUNTIME_LINK_H
#define GEMINI_RUNTIME_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libhook/core/zmtp.h"

#define LINK_OUT_MAX 65536

struct link_events {
    void (*on_up)(void *context); /* the handshake is over: say Hello */
    void (*on_message)(void *context, const void *message, size_t size);
    void (*on_down)(void *context, int error); /* was up; or: the first failure since it was up */
};

struct link {
    char path[108];
    int fd; /* -1: none */
    bool up;
    bool told_down;
    int lacking; /* -errno of the last socket() that failed; 0: the last one did not */
    uint64_t retry_ns; /* without a descriptor: when to try again */
    uint64_t backoff_ns;
    uint64_t handshake_end_ns; /* a peer that does not answer by then is given up */
    const struct link_events *events;
    void *context;
    struct zmtp zmtp;
    uint8_t out[LINK_OUT_MAX];
};

void link_open(struct link *link, const char *path, const struct link_events *events, void *context);
void link_close(struct link *link);
void link_step(struct link *link, short ready, uint64_t now_ns);
void link_drop(struct link *link, uint64_t now_ns, uint64_t wait_ns); /* not from on_message; back after wait_ns */
short link_interest(const struct link *link);      /* the events to poll `fd` for */
uint64_t link_deadline(const struct link *link);   /* when to call link_step at the latest; UINT64_MAX: no time */
int link_send(struct link *link, const void *message, size_t size); /* 0, -ENOTCONN, -ENOBUFS (then it goes down) */

#endif
