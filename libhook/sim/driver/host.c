#include "libhook/sim/driver/host.h"

#include <signal.h>
#include <stdlib.h>

#include "libhook/sim/driver/queue.h"

enum {
    LOOK_NS = 100 * 1000, /* between looks while nothing is due for longer than this */
    POLL_NS = 20 * 1000,  /* between looks at another process's event */
};

struct pending {
    struct pending *next;
    struct host_step step;
    uint32_t queue;
    uint64_t index;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct pending *first, **last = &first;
static bool started;

void host_forget(void) {
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&wake, NULL);
    first = NULL;
    last = &first;
    started = false;
}

/* Has everything before this step in its queue been done, so that it is at the head? */
static bool due(const struct pending *pending) {
    return pending->index == 0 || sim_seen_retired(&driver.seat, pending->queue, pending->index - 1);
}

static void *work(void *unused) {
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!first)
            pthread_cond_wait(&wake, &lock);
        pthread_mutex_unlock(&lock);
        sim_commit(&driver.seat, NULL, NULL);
        bool ran = false, polled = false;
        pthread_mutex_lock(&lock);
        for (struct pending **at = &first; *at;) {
            struct pending *pending = *at;
            if (!due(pending)) {
                at = &pending->next;
                continue;
            }
            pthread_mutex_unlock(&lock); /* new ones are appended behind; only we take out */
            bool finished = pending->step.run(pending->step.argument);
            pthread_mutex_lock(&lock);
            polled |= !finished;
            if (!finished) {
                at = &pending->next;
                continue;
            }
            *at = pending->next;
            if (last == &pending->next)
                last = at;
            struct sim_entry *entry = queue_entry(pending->queue, pending->index);
            atomic_store_explicit(&entry->done, sim_now(), memory_order_release);
            if (pending->step.drop)
                pending->step.drop(pending->step.argument);
            free(pending);
            atomic_fetch_sub(&driver.host_pending, 1);
            ran = true;
        }
        struct pending *next = first;
        uint32_t queue = next ? next->queue : 0;
        uint64_t index = next ? next->index : 0;
        bool waits = next && !due(next);
        pthread_mutex_unlock(&lock);
        if (ran)
            continue;
        if (polled)
            sim_sleep(sim_now() + POLL_NS);
        else if (waits)
            sim_wait(&driver.seat, queue, index - 1, LOOK_NS);
    }
    return NULL;
}

static bool start(void) {
    pthread_t thread_id;
    sigset_t all, before;
    sigfillset(&all); /* the program's signals are its own threads' matter */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(&thread_id, NULL, work, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread_id);
    return started;
}

CUresult host_push(struct CUstream_st *stream, const struct host_step *step) {
    struct pending *pending = calloc(1, sizeof(*pending));
    if (!pending)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pending->step = *step;
    pthread_mutex_lock(&lock);
    bool there = started || start();
    pthread_mutex_unlock(&lock);
    if (!there) {
        free(pending);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    atomic_fetch_add(&driver.host_pending, 1);
    CUresult result = queue_push(stream, &(struct work){.kind = SIM_HOST}, &pending->index);
    if (result) {
        atomic_fetch_sub(&driver.host_pending, 1);
        free(pending);
        return result;
    }
    pending->queue = stream->queue->number;
    pthread_mutex_lock(&lock);
    *last = pending;
    last = &pending->next;
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
