/*
 * forks.h - state that a forked child must not go on with: a lock that a thread of the parent's held, what was the
 * parent's alone. Each file that has such state asks, before it is first touched, that it be forgotten in children.
 */
#ifndef GEMINI_RUNTIME_FORKS_H
#define GEMINI_RUNTIME_FORKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* `watching` is a static of the caller's, 0 at first. Another thread may fork while this one is in here: the child then
 * has no handler, but neither has anything begun. Threads that race may register it twice, which does no harm. */
static inline void forks_watch(int *watching, void (*in_child)(void)) {
    if (!__atomic_load_n(watching, __ATOMIC_ACQUIRE) && pthread_atfork(NULL, NULL, in_child) == 0)
        __atomic_store_n(watching, 1, __ATOMIC_RELEASE);
}

/* A lock of the file's that is free in a child, whoever held it: FORKS_LOCK(lock, take_lock) at file scope defines both;
 * take_lock() takes it, pthread_mutex_unlock(&lock) gives it back. */
#define FORKS_LOCK(lock, take)                                                                                         \
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;                                                           \
    static void take##_anew(void) {                                                                                    \
        lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;                                                             \
    }                                                                                                                  \
    static void take(void) {                                                                                           \
        static int watching;                                                                                           \
        forks_watch(&watching, take##_anew);                                                                           \
        pthread_mutex_lock(&lock);                                                                                     \
    }                                                                                                                  \
    _Static_assert(true, "takes a semicolon")

#endif
