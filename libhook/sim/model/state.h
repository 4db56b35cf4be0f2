/*
 * state.h - the layout of the simulated machine in shared memory. No code.
 *
 * Theory. Everything that all processes must agree on (where the engines are, how far each queue has come, how long
 * each process was busy, how much memory it holds, which stretch of work goes into the log) is ONE struct sim_state.
 * Nobody ever changes it in place: a process copies the current one, works on its copy, writes that into a buffer of
 * its own and makes it the current one by a single compare-and-swap of `machine->current` (seat.c). So there is no lock
 * that a stopped or killed process could hold, and a late commit of a process that was stalled simply fails.
 *
 * What a process submits goes into rings of its own, one for each of its queues: written by it alone, read by all. An
 * entry is reused only after its retirement was committed. What a commit has to leave behind outside of the state (log
 * records, completion times of events) travels in it as `effects`. They are written out after the commit by whoever
 * made it and again by whoever makes the next one, with the same content, so none is lost with a dying process.
 */
#ifndef GEMINI_SIM_STATE_H
#define GEMINI_SIM_STATE_H

#include <stdatomic.h>

#include "libhook/sim/model/spec.h"

enum {
    SIM_PROCESSES = 384,    /* processes on the machine at once, monitors included */
    SIM_QUEUES = 64,        /* of one process; further streams share them, as hardware channels are shared */
    SIM_RING = 1024,        /* entries a queue holds; who submits more waits */
    SIM_CLIENTS = 512,      /* (process, device) pairs with a context, the dead of late included */
    SIM_ALL_QUEUES = 2048,  /* of all processes */
    SIM_EFFECTS = 256,      /* of one commit */
    SIM_LOG = 65536,        /* records of a device's timeline that are kept */
};
#define SIM_MAGIC 0x53494d47454d4930ull /* changes with the layout, see machine.c */
#define SIM_NEVER UINT64_MAX
#define SIM_PENDING (1ull << 63) /* in sim_entry.done: not done yet; the rest is the entry's index */

enum sim_kind {
    SIM_NOTHING = 0, /* retires at once */
    SIM_KERNEL,      /* duration_ns on the compute engine: kernels, memsets, copies inside and between cards */
    SIM_TO_DEVICE,   /* duration_ns on the copy engine of this direction */
    SIM_TO_HOST,
    SIM_EVENT,       /* retires at once and leaves its time in `done` */
    SIM_WAIT,        /* until queue `arg` of the same process has retired index `until` */
    SIM_HOST,        /* until the process itself has done it and left the time in `done` */
    SIM_COLLECTIVE,  /* as SIM_KERNEL, but its time counts only since all `peers` of group `arg` have started */
    SIM_VALUE_WAIT, /* until the word at `arg` of the process compares with `until` as `peers` (enum sim_word) says */
    SIM_VALUE_WRITE, /* retires at once; the process itself then stores `until` at `arg` (front.h) */
};

/* Of a value's word: how a wait compares (as the flags of cuStreamWaitValue do), how wide it is, whose memory. */
enum sim_word {
    SIM_WORD_AT_LEAST = 0, /* cyclic */
    SIM_WORD_EQUAL = 1,
    SIM_WORD_AND = 2,
    SIM_WORD_NOR = 3,
    SIM_WORD_COMPARE = 3, /* mask */
    SIM_WORD_WIDE = 4, /* 64 bits */
    SIM_WORD_STRANGE = 8, /* memory of the program's own, which it may unmap */
};

struct sim_entry {
    _Atomic uint64_t index; /* absolute, from 0: a reader that finds another one has a stale copy of the state */
    uint64_t submit_ns;
    uint64_t duration_ns; /* of a wait for a value that is `unmet`: when it was seen to be met since; 0: not yet */
    uint32_t kind;
    uint32_t kernels;
    uint64_t arg;
    uint64_t until; /* of what computes: the part of the card that it takes, of SIM_WHOLE; 0: all of it */
    uint32_t peers;
    uint32_t unmet; /* of a wait for a value: it was not met when it was pushed */
    _Atomic uint64_t done;
};
_Static_assert(sizeof(struct sim_entry) == 64, "one cache line");

struct sim_ring {
    _Alignas(64) _Atomic uint64_t tail; /* entries ever submitted */
    _Alignas(64) struct sim_entry entry[SIM_RING];
};

/* One process on one device. */
struct sim_client {
    uint64_t owner; /* sim_process.owner; unique for ever */
    uint32_t device;
    uint32_t dead;
    uint64_t busy_ns; /* on the compute engine, up to sim_state.now_ns */
    uint64_t memory_bytes;
    uint32_t contexts, reserved;
    uint64_t h2d_ns, d2h_ns;
};

struct sim_queue {
    uint64_t owner;
    uint16_t process, queue; /* whose ring */
    uint16_t device;
    int16_t priority; /* lower runs first */
    uint64_t head; /* entries ever retired */
    uint64_t ready_ns; /* since when the head may run; SIM_NEVER while there is none */
    uint64_t remaining_ns; /* of the head */
    uint16_t client; /* index into clients */
    uint8_t started, on_engine; /* started, of a wait for a value: enum sim_met; on_engine: its head computes */
    uint32_t reserved;
};

/* A wait for a value that came to the head of its queue. */
enum sim_met { SIM_UNSEEN = 0, SIM_UNMET = 2, SIM_RELEASED = 3 /* and goes on at ready_ns */ };

struct sim_stretch {
    uint64_t owner, start_ns, end_ns;
    uint32_t kernels, queue;
};

enum { SIM_COPY_IN = 0, SIM_COPY_OUT, SIM_COPIES };
enum { SIM_WHOLE = 1 << 20 }; /* parts of a compute engine */

struct sim_device {
    int32_t current; /* client whose context is on the compute engine, -1: none yet */
    int32_t copying[SIM_COPIES]; /* index into queues, -1: idle */
    uint64_t slice_end_ns;
    uint64_t switch_end_ns; /* until then the compute engine is switching to `current` */
    uint64_t switches;
    uint64_t log_next; /* sequence number of the next log record */
    struct sim_stretch open; /* not yet in the log; kernels == 0 and start == end: none */
};

struct sim_effect {
    uint64_t sequence; /* of the log record, or the index of the entry */
    uint32_t device; /* of a log record; SIM_DEVICES: a completion time */
    uint16_t process, queue;
    struct sim_stretch stretch; /* end_ns also is the completion time; owner, of whose entry */
};

struct sim_state {
    uint64_t now_ns;
    uint32_t clients, queues, effects, reserved;
    struct sim_device device[SIM_DEVICES];
    /* Only the used parts of these are copied. */
    struct sim_client client[SIM_CLIENTS];
    struct sim_queue queue[SIM_ALL_QUEUES];
    struct sim_effect effect[SIM_EFFECTS];
};

struct sim_record {
    _Atomic uint64_t sequence; /* plus 1; 0: never written */
    uint64_t owner, start_ns, end_ns;
    uint32_t kernels, queue;
};

struct sim_process {
    _Atomic uint64_t owner; /* incarnation << 32 | pid; 0: free */
    _Atomic uint64_t start_time; /* of the process, in clock ticks since boot, against reuse of its pid */
    _Alignas(64) struct sim_state buffer[2];
    struct sim_ring ring[SIM_QUEUES];
};

struct sim_machine {
    uint64_t magic, bytes;
    struct sim_spec spec;
    _Alignas(64) _Atomic uint64_t current; /* sequence << 16 | process << 1 | buffer */
    _Alignas(64) _Atomic uint64_t alive_checked_ns;
    _Atomic uint32_t incarnations;
    struct sim_state first; /* where the machine starts: current points here while its sequence is 0 */
    struct sim_record log[SIM_DEVICES][SIM_LOG];
    struct sim_process process[SIM_PROCESSES];
};

#endif
