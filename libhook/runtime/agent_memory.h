/*
 * agent_memory.h - the memory of the tenant, between this process and the daemon's ledger: questions, answers, reports.
 *
 * The questions are any thread's (they attach the process as agent_attach does, and keep errno); they go through the
 * mailbox to the agent, which sends them. The other half is the agent's own.
 */
#ifndef GEMINI_RUNTIME_AGENT_MEMORY_H
#define GEMINI_RUNTIME_AGENT_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/core/wire.h"
#include "libhook/runtime/agent_callbacks.h"

#pragma GCC visibility push(hidden)

/* The memory figures of the whole tenant on CUDA ordinal `device`: limit 0 means not limited. One message pair when
 * `fresh`, else the figures last heard. Returns 0, -ENOTCONN, or -ENODEV for a device the daemon does not manage. */
int agent_memory_figures(int device, bool fresh, uint64_t *limit_bytes, uint64_t *used_bytes);

/* Reserve before allocating; blocks for one message pair. On success *credit_bytes (may be NULL, then none is asked)
 * holds what was given beyond `bytes`. Returns 0, -ENOMEM (the only refusal), or -ENOTCONN (running free: allowed). */
int agent_memory_reserve(int device, uint64_t bytes, uint64_t *credit_bytes);

/* What the card holds for this process beside `held_bytes`: the context that was just made, where it is the first. One
 * message pair. 0: nobody can say. */
uint64_t agent_memory_of_context(int device, uint64_t held_bytes);
/* Before that: what the tenant's contexts are known to take; 0: nobody has looked; WIRE_CONTEXT_KNOWN: somebody has, in
 * vain. */
uint64_t agent_memory_context_known(int device);

/* So much more (or less) of what this process holds may live on when it ends. Blocks until the daemon knows, where there
 * is one. Returns the mark of what this tenant exports now (wire.h); 0: nobody can say. */
uint64_t agent_memory_exported(int device, int64_t more_bytes);

/* Give back; never blocks, never fails. */
void agent_memory_release(int device, uint64_t bytes);

/* The agent: what the daemon says. `send` returns 0 or -errno; what could not be sent is lost. */
void agent_memory_on_welcome(uint32_t device, bool managed, uint64_t limit_bytes, uint64_t used_bytes);
void agent_memory_on_reply(const struct wire_mem_reply *reply, const struct agent_callbacks *hooks);
void agent_memory_on_recall(
    const struct wire_mem_recall *recall, const struct agent_callbacks *hooks, int (*send)(void *message, int type));

/* The agent, on a new Welcome: the daemon may be the one who forgot what is exported. */
void agent_memory_repeat_exported(uint32_t device, int (*send)(void *message, int type), uint64_t (*next_serial)(void));
/* The agent, once a second: say what is held, after it changed. Should a message about it have been lost or come twice,
 * the daemon's book is right again. Only while nothing is under way, so that it stands in the row of messages where it
 * is true. */
void agent_memory_report(uint32_t device, const struct agent_callbacks *hooks, int (*send)(void *message, int type));
/* Is there such a report to come? */
bool agent_memory_owes_report(uint32_t device, const struct agent_callbacks *hooks);
/* In a forked child. */
void agent_memory_reset_after_fork(void);

#pragma GCC visibility pop

#endif
