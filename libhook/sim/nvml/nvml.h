/*
 * nvml.h - inside the simulated NVML: what its files share. The exported functions stand in driver/nvml_abi.h.
 *
 * It looks at the machine that GEMINI_SIM names and changes nothing there: it has a seat, because only those at the
 * machine can bring its state to now, and no context, so no process appears where there was none. The machine is made
 * if it is not there, as by the driver. What never changes (the spec, the UUIDs) is copied at the start; every figure
 * that moves is computed anew from the model for each call, so two readers never disagree and none has a history.
 *
 * A forked child of a process that uses NVML goes on using it, as with the real one: it forgets its parent's seat and
 * takes one of its own at its first look.
 */
#ifndef GEMINI_SIM_NVML_H
#define GEMINI_SIM_NVML_H

#include "libhook/driver/nvml_abi.h"
#include "libhook/sim/model/seat.h"

struct nvml {
    pthread_rwlock_t lock; /* read: looks at the model; write: sits down or rises */
    int users;             /* nvmlInit less nvmlShutdown; written under the lock */
    bool seated;
    struct sim_seat seat;
    char *text;            /* GEMINI_SIM as it was at the first nvmlInit */
    struct sim_spec spec;  /* of the machine; constant while there are users, like all below */
    uint64_t began_ns;
    char uuid[SIM_DEVICES][48];
    char serial[SIM_DEVICES][16];
};
extern struct nvml nvml;

#define NEED(condition, otherwise)                                                                                     \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return (otherwise);                                                                                        \
    } while (0)
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        nvmlReturn_t tried = (call);                                                                                   \
        if (tried != NVML_SUCCESS)                                                                                     \
            return tried;                                                                                              \
    } while (0)

/* NVML_ERROR_UNINITIALIZED before nvmlInit. */
nvmlReturn_t nvml_started(void);

/* The card of a handle; NVML_ERROR_INVALID_ARGUMENT if it is none of ours. */
nvmlReturn_t nvml_index(nvmlDevice_t device, unsigned int *index);
nvmlDevice_t nvml_handle(unsigned int index);

/* Copy `text` to the caller: NVML_ERROR_INVALID_ARGUMENT for no buffer, INSUFFICIENT_SIZE for a small one. */
nvmlReturn_t nvml_text(char *out, unsigned int length, const char *text);

/* All event sets are gone. With the lock written. */
void nvml_free_events(void);

/* How long NVML's own averages are: real cards say between 1/6 s and 1 s, by product. */
#define NVML_PERIOD_NS (1000000000ull / 6)

/* What the model says of one card now. */
struct look {
    uint64_t now_ns, age_ns; /* CLOCK_MONOTONIC; since the machine was made */
    uint64_t used_bytes;
    uint64_t busy_ns;              /* of the compute engine, since the machine was made */
    uint64_t to_device_ns, to_host_ns; /* of the copy engines, likewise */
    uint64_t window_ns, window_busy_ns; /* the window that was asked for, and the engine's work in it */
    uint32_t processes, sharers;
    struct {
        uint32_t pid;
        uint64_t bytes;
    } process[SIM_PROCESSES]; /* with a context on the card */
    struct {
        uint32_t pid;
        uint64_t busy_ns;
    } sharer[SIM_CLIENTS]; /* who worked in the window, the dead of late included */
};

/* Fill `look`; the window is the last `window_ns` up to now (0: none). */
nvmlReturn_t nvml_look(unsigned int index, uint64_t window_ns, struct look *look);

/* Part of the window that the engine worked, in whole percent; something is never nothing. */
unsigned int nvml_percent(uint64_t busy_ns, uint64_t window_ns);

#endif
