/* captures.c - where captures began (captures.h). */
#include "libhook/runtime/captures.h"

#include <pthread.h>

struct origin {
    CUcontext context;
    CUstream stream;
    pthread_t thread; /* tells the threads' own default streams apart, which share one handle */
};

uint32_t gate_captures;

static struct origin origins[CAPTURES_KNOWN];
static uint32_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of both, never held over a call */

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
    pthread_mutex_lock(&lock);
    if (count < CAPTURES_KNOWN)
        origins[count++] = (struct origin){context, stream, pthread_self()};
    pthread_mutex_unlock(&lock);
}

void captures_ended(CUcontext context, CUstream stream) {
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < count; i++)
        if (is(&origins[i], context, stream)) {
            remove_at(i);
            break;
        }
    pthread_mutex_unlock(&lock);
}

void captures_lost(CUcontext context) {
    pthread_mutex_lock(&lock);
    for (uint32_t i = count; i-- > 0;)
        if (origins[i].context == context)
            remove_at(i);
    pthread_mutex_unlock(&lock);
}

void captures_reset_after_fork(void) {
    gate_captures = count = 0;
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
