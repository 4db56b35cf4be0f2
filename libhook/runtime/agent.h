/*
 * agent.h - what the hooks may ask of the runtime. The agent is the one thread that owns the connection to the daemon.
 *
 * Nothing here is started before agent_attach(), which hooks call on the first CUDA call that makes a context, launches
 * or allocates. Every function is safe from any thread, keeps errno, and returns quickly when the process is no tenant.
 */
#ifndef GEMINI_RUNTIME_AGENT_H
#define GEMINI_RUNTIME_AGENT_H

#include <stdbool.h>
#include <stdint.h>

/* Is this process a tenant (a socket is configured and the library is not inert)? Costs one load. */
bool agent_is_tenant(void);

/* Start the agent and say Hello, once per process image (again in a forked child). Returns 0, or -ENOTCONN where this
 * process runs free: inert, or no daemon with GEMINI_ON_BACKEND_LOSS=run; or -ENOMEM where it cannot have what the agent
 * needs (a thread, a descriptor, memory) and must not go on. Blocks until Welcome in mode wait. */
int agent_attach(void);

/* How long what the agent needs is waited for. */
#define AGENT_LACKING_NS 10000000000ull

/* The hooks' side, called by the agent without any lock held. */
struct agent_callbacks {
    /* Take up to `bytes` of unused credit out of the process's books; returns how much was taken. */
    uint64_t (*take_credit)(int device, uint64_t bytes);
    /* All bytes this process holds of the daemon's ledger on `device` (allocated and credit), for Hello. */
    uint64_t (*memory_held)(int device);
    /* The same with a count of changes, for the report that sets the daemon's book right where a message was lost.
     * False while a reservation or a return is under way. May be NULL: no reports. */
    bool (*memory_settled)(int device, uint64_t *held_bytes, uint64_t *moves);
    /* The daemon has counted `bytes` more for this process: a thread's reservation, which goes on only after this. NULL
     * where nobody keeps books. */
    void (*memory_granted)(int device, uint64_t bytes);
    /* The process's CUDA devices: fills uuid[16][16], returns their count (cuInit has succeeded). */
    int (*devices)(uint8_t uuid[16][16]);
    /* How many driver entries newer than the table were handed out as they are; for the metrics. May be NULL. */
    uint64_t (*ungated_lookups)(void);
};
void agent_init(const struct agent_callbacks *callbacks);

#endif
