/*
 * attachment.h - what the agent and the state of this process have of each other. agent_kick.h has what others may ask.
 */
#ifndef GEMINI_RUNTIME_ATTACHMENT_H
#define GEMINI_RUNTIME_ATTACHMENT_H

#include "libhook/runtime/options.h"

#pragma GCC visibility push(hidden)

/* How far the process has come; a futex. Grows, but for fork and the loss of the daemon in mode `run`. */
enum attachment {
    UNKNOWN,
    STARTING,
    FREE, /* mode run, no daemon */
    WELCOMED,
    CLOSED, /* the process cannot have what the agent needs: its calls fail */
    INERT
};

/* What there must be for a process to have its share, and how a person mends that there is not. */
struct need {
    const char *what, *mend;
};

struct attachment_start {
    /* Start the agent. 0, or -errno and what cannot be had; may be tried again. */
    int (*start)(const struct options *options, const struct need **lacks);
    /* In a forked child: let go of what is the parent's. */
    void (*after_fork)(void);
};

/* Before the first agent_attach(). */
void attachment_init(const struct attachment_start *start);
/* From now on; wakes who waits for it. */
void attachment_set(enum attachment state);
/* Tell a person that this cannot be had, and what comes of it. */
void attachment_complain(const struct need *need, int error);

/* The descriptor by which other threads say "look" (agent_kick). 0 or -errno; -1 where there is none. */
int attachment_open_event(void);
void attachment_close_event(void);
int attachment_event(void);

#pragma GCC visibility pop

#endif
