/*
 * cancel.h - a thread that is cancelled (pthread_cancel) must not end in the middle of our work: a request of its stack
 * may lie in a list, it may be counted among those who wait. What we do waits and writes, and would be such places.
 */
#ifndef GEMINI_RUNTIME_CANCEL_H
#define GEMINI_RUNTIME_CANCEL_H

#include <pthread.h>

static inline int cancel_hold(void) {
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void cancel_release(int before) {
    pthread_setcancelstate(before, NULL);
}

#endif
