/*
 * queue.h - pushing work into the shared machine, in stream order, and waiting for it.
 *
 * A stream gets one of the process's SIM_QUEUES queues when it is first used; when all are taken, streams of one device
 * share. A push takes the queue's own mutex, one clock reading and a store; it blocks while the ring is full.
 */
#ifndef GEMINI_SIM_QUEUE_H
#define GEMINI_SIM_QUEUE_H

#include "libhook/sim/driver/driver.h"

struct work {
    uint32_t kind; /* enum sim_kind */
    uint32_t kernels;
    uint64_t duration_ns;
    uint64_t arg, until;
    uint32_t peers;
};

struct queue {
    pthread_mutex_t mutex;
    struct sim_ring *ring;
    uint64_t tail; /* own copy of ring->tail; under mutex */
    uint32_t number;
    struct CUctx_st *ctx; /* of the stream that took it last: its work outlives a destroyed stream; under driver.lock */
    int device, priority, users; /* users: streams; under driver.lock. device -1: not yet registered */
};

/* The stream's queue, bound now if it has none. */
CUresult queue_of(struct CUstream_st *stream, struct queue **out);
void queue_leave(struct CUstream_st *stream);
void queue_end_context(const struct CUctx_st *ctx); /* with driver.lock held: its queues are drained and free */
void queue_forget_all(void);

/* Append work to the stream, behind what its default-stream rules make it wait for. *index (or NULL): its place. */
CUresult queue_push(struct CUstream_st *stream, const struct work *work, uint64_t *index);

/* Has everything that was pushed so far been done? */
bool queue_stream_idle(struct CUstream_st *stream);
void queue_wait_stream(struct CUstream_st *stream);
void queue_wait_context(struct CUctx_st *ctx);
void queue_wait_device(CUdevice device); /* all of this process's work on it */
bool queue_entry_done(uint32_t queue, uint64_t index);
void queue_wait_entry(uint32_t queue, uint64_t index);

/* When did this SIM_EVENT entry retire? Only for entries that have, and are not yet overwritten: 0 if unknown. */
uint64_t queue_event_ns(uint32_t queue, uint64_t index);
extern void (*queue_value_came)(void); /* a value is new in a queue that had none; set before the first is pushed */
bool queue_values_outstanding(void); /* a wait for a value, or a write of one, in any of ours */
/* Memory that an operation reads or writes. */
struct span {
    uint64_t start, bytes;
};

/* Is a wait for a value in any of ours not met yet, or will a write of one touch this memory? What comes now may not be
 * carried out at once then. Waits that are met end for certain, as kernels do. */
bool queue_values_hold(const struct span *touched, int count);
struct sim_entry *queue_entry(uint32_t queue, uint64_t index);

#endif
