/*
 * gate_thread.h - the blocks of the threads that launch: what each keeps for itself on the launch path (gate.h).
 *
 * A block is its thread's own; others read it, so it lies in memory of its own and is never unmapped. When its thread
 * has ended and what that launched is over, another thread takes it over.
 */
#ifndef GEMINI_RUNTIME_GATE_THREAD_H
#define GEMINI_RUNTIME_GATE_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libhook/core/estimate.h"
#include "libhook/core/wire.h"
#include "libhook/driver/cuda_types.h"

/*
 * The loader has room set aside for few such variables of libraries that come late. The library is there from the start;
 * tests load a copy each into one process, and take the model that needs no such room.
 */
#ifndef TLS_MODEL
#define TLS_MODEL "initial-exec"
#endif

#define GATE_ESTIMATES 2048 /* 32 KiB, of which the launch path touches those in use */

struct gate;
struct lane;

struct gate_thread {
    /* the launch path: one line of the processor's caches, for a launch finds them full of the driver's own */
    uint32_t inside; /* 0, or the ordinal + 1 of the gate whose launch is under way */
    bool tell_agent; /* the gate was opened by the page: kick the agent when this launch is out */
    bool after; /* this launch is measured: gate_end records an event */
    const uint64_t *page_word;
    uint64_t epoch;
    struct gate *gate;
    uint64_t ticket;
    CUstream
        stream; /* of `lane`, in the thread's current context; NULL: there is none, or it is to be looked at anew */
    struct lane *lane;
    int64_t room_ns;
    struct estimate estimates[GATE_ESTIMATES]; /* of those that are known well: no wild one (belief.h) */
    /* from here on not on the launch path */
    CUcontext context; /* of `stream` */
    struct gate_thread *next;
    struct lane *lanes; /* all of this thread's; pushed by it, never taken out */
    uint32_t gone; /* the thread ended; another may take the block over when its work is done */
    uint32_t stand; /* of what is believed, when `estimates` was right (belief.c) */
    struct gate *syncing; /* while it waits in such a call: the gate where it is counted */
    struct lane *wait_lane; /* while it waits at a gate: where its launch is to go */
    uint64_t left_ns; /* when it came back from here or from a wait for the device; its own */
    bool met_cap; /* ... and since it was away last it launched so much that it met the cap */
    struct lane *held_lane; /* where a launch of its was held by the device last (segments.h) */
    uint64_t seen[WIRE_MAX_DEVICES]; /* the ticket under which it was counted as active, per gate */
};

_Static_assert(offsetof(struct gate_thread, estimates) == 64, "the launch path needs one line");

#pragma GCC visibility push(hidden)

/* The calling thread's, in which no key is found before it was enrolled (gate_enrol.h). */
extern __thread struct gate_thread *gate_self __attribute__((tls_model(TLS_MODEL)));

bool gate_thread_is_enrolled(void);
struct gate_thread *gate_threads(void); /* all, as a list that grows at its head only */
void gate_threads_push(struct gate_thread *thread);
void gate_thread_leave(void); /* the calling thread has none any more */
void gate_threads_reset_after_fork(void); /* in the child: no thread but this one, which is not enrolled */

#pragma GCC visibility pop

#endif
