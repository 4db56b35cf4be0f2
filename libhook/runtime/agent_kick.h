/* agent_kick.h - what the rest of the runtime needs of the agent, apart from agent.h (which is the hooks'). */
#ifndef GEMINI_RUNTIME_AGENT_KICK_H
#define GEMINI_RUNTIME_AGENT_KICK_H

#include <stdbool.h>

#pragma GCC visibility push(hidden)

/* Look at the gates now: a thread waits, or the work is over. One write() to an eventfd; any thread; keeps errno. */
void agent_kick(void);
/* There is no agent any more (its start failed): do not wait for it. */
bool agent_lost(void);
/* This process cannot have what the agent needs: whoever waits for the daemon is to fail instead. */
bool agent_closed(void);
/* Is this process a tenant (a socket is configured and the library is not inert)? Costs one load. */
bool agent_is_tenant(void);

/* This process is a tenant, and no loss of the daemon has made it run free. */
bool agent_welcomed(void);

/* Start the agent and say Hello, once per process image (again in a forked child). Returns 0, or -ENOTCONN where this
 * process runs free: inert, or no daemon with GEMINI_ON_BACKEND_LOSS=run; or -ENOMEM where it cannot have what the agent
 * needs (a thread, a descriptor, memory) and must not go on. Blocks until Welcome in mode wait. */
int agent_attach(void);

/* How long what the agent needs is waited for. */
#define AGENT_LACKING_NS 10000000000ull

#pragma GCC visibility pop

#endif
