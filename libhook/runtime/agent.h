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
 * process runs free: inert, or no daemon with GEMINI_ON_BACKEND_LOSS=run. Blocks until Welcome in mode wait. */
int agent_attach(void);

/* The memory figures of the whole tenant on CUDA ordinal `device`: limit 0 means not limited. One message pair when
 * `fresh`, else the figures last heard. Returns 0, -ENOTCONN, or -ENODEV for a device the daemon does not manage. */
int agent_memory_figures(int device, bool fresh, uint64_t *limit_bytes, uint64_t *used_bytes);

/* Reserve before allocating; blocks for one message pair. On success *credit_bytes (may be NULL, then none is asked)
 * holds what was given beyond `bytes`. Returns 0, -ENOMEM (the only refusal), or -ENOTCONN (running free: allowed). */
int agent_memory_reserve(int device, uint64_t bytes, uint64_t *credit_bytes);

/* What the card holds for this process beside `held_bytes`: the context that was just made, where it is the first. One
 * message pair. 0: nobody can say. */
uint64_t agent_memory_of_context(int device, uint64_t held_bytes);

/* Give back; never blocks, never fails. */
void agent_memory_release(int device, uint64_t bytes);

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
