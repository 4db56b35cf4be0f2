/*
 * mailbox.h - memory questions from the program's threads to the agent: reservations that wait for an answer, releases
 * that do not. Requests stand on the asking threads' own stacks; the lock is held for a few instructions, never over a
 * call. The agent side is called by the agent thread only.
 */
#ifndef GEMINI_RUNTIME_MAILBOX_H
#define GEMINI_RUNTIME_MAILBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/core/wire.h"

struct mailbox_answer {
    int error; /* 0, -ENOMEM, -ENOTCONN */
    uint64_t credit_bytes, limit_bytes, used_bytes;
};

#pragma GCC visibility push(hidden)

/* Any thread: ask, and sleep until answered. bytes 0 asks for the figures only. */
void mailbox_reserve(int device, uint64_t bytes, uint64_t credit_bytes, struct mailbox_answer *answer);
void mailbox_release(int device, uint64_t bytes);

/* Any thread: what did the context take that was just made, beside `held_bytes`? In the answer's credit_bytes. */
void mailbox_ask_context(int device, uint64_t held_bytes, struct mailbox_answer *answer);

/* Any thread: so much more (or less) of what is held is exported; told with the sum of all, and again by the agent. */
void mailbox_note_exported(int device, int64_t more_bytes);
void mailbox_tell_exported(int device, struct mailbox_answer *answer);
void mailbox_repeat_exported(int device, int (*send)(void *message, int type), uint64_t serial);

/* The agent: send what is new. `send` returns 0 or -errno; what could not be sent stays. */
void mailbox_flush(int (*send)(void *message, int type), uint64_t (*next_serial)(void), uint64_t now_ns);
/* `granted` (may be NULL) is told what was reserved before the asking thread is, who may be long in coming back: all that
 * the daemon counted stands in our books when the next message goes out. */
void mailbox_on_reply(const struct wire_mem_reply *reply, void (*granted)(int device, uint64_t bytes));
bool mailbox_overdue(uint64_t now_ns, uint64_t after_ns); /* a question was sent so long ago and not answered */
bool mailbox_flushed(int device);         /* no release waits to be sent */
void mailbox_on_connection(void);         /* a new one: what was not answered is to be asked again */
void mailbox_refuse_all(int error);       /* running free now */
void mailbox_reset_after_fork(void);

#pragma GCC visibility pop

#endif
