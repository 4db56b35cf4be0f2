/*
 * agent.h - what the hooks may ask of the runtime. The agent is the one thread that owns the connection to the daemon.
 *
 * Nothing here is started before agent_attach(), which hooks call on the first CUDA call that makes a context, launches
 * or allocates. Every function is safe from any thread, keeps errno, and returns quickly when the process is no tenant.
 */
#ifndef GEMINI_RUNTIME_AGENT_H
#define GEMINI_RUNTIME_AGENT_H

#include "libhook/runtime/agent_callbacks.h"
#include "libhook/runtime/agent_kick.h"

void agent_init(const struct agent_callbacks *callbacks);

#endif
