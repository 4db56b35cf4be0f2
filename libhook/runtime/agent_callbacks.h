/*
 * agent_callbacks.h - what the agent asks the hooks (agent.h).
 */
#ifndef GEMINI_RUNTIME_AGENT_CALLBACKS_H
#define GEMINI_RUNTIME_AGENT_CALLBACKS_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
