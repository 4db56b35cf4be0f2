/* captures.c - where captures began (captures.h). */
#include "libhook/runtime/captures.h"

#include <pthread.h>
#include <sched.h>

struct origin {
    CUcontext context;
    CUstream stream;
    pthread_t thread; /* tells the threads' own default streams apart, which share one handle */
};

uint32_t gate_captures;

static struct origin origins[CAPTURES_KNOWN];
static uint32_t count;
static uint32_t taken; /* a lock for both, held for nanoseconds, never over a call */

static void lock(void) {
    while (__atomic_exchange_n(&taken, 1, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void unlock(void) {
    __atomic_store_n(&taken, 0, __ATOMIC_RELEASE);
}

static void remove_at(uint32_t i) {
    origins[i] = origins[--count];
    __atomic_sub_fetch(&gate_captures, 1, __ATOMIC_SEQ_CST);
}

static bool is(const struct origin *origin, CUcontext context, CUstream stream) {
    if (origin->stream != stream)
        return false;
    return stream != CU_STREAM_PER_THREAD ||
           (origin->context == context && pthread_equal(origin->thread, pthread_self()));
}

void captures_beginning(void) {
    __atomic_add_fetch(&gate_captures, 1, __ATOMIC_SEQ_CST);
}

void captures_begun(CUcontext context, CUstream stream, bool begun) {
    if (!begun) {
        __atomic_sub_fetch(&gate_captures, 1, __ATOMIC_SEQ_CST);
        return;
    }
    lock();
    if (count < CAPTURES_KNOWN)
        origins[count++] = (struct origin){context, stream, pthread_self()};
    unlock();
}

void captures_ended(CUcontext context, CUstream stream) {
    lock();
    for (uint32_t i = 0; i < count; i++)
        if (is(&origins[i], context, stream)) {
            remove_at(i);
            break;
        }
    unlock();
}

void captures_lost(CUcontext context) {
    lock();
    for (uint32_t i = count; i-- > 0;)
        if (origins[i].context == context)
            remove_at(i);
    unlock();
}

void captures_reset_after_fork(void) {
    gate_captures = count = taken = 0;
}
