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

/* One for the program's functions, one for the rest (host_step.calls). */
static struct worker {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct pending *first, **last;
    bool started;
} workers[2] = {{PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &workers[0].first, false},
    {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &workers[1].first, false}};

void host_forget(void) {
    for (int i = 0; i < 2; i++) {
        pthread_mutex_init(&workers[i].lock, NULL);
        pthread_cond_init(&workers[i].wake, NULL);
        workers[i].first = NULL;
        workers[i].last = &workers[i].first;
        workers[i].started = false;
    }
}

/* Has everything before this step in its queue been done, so that it is at the head? */
static bool due(const struct pending *pending) {
    return pending->index == 0 || sim_seen_retired(&driver.seat, pending->queue, pending->index - 1);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    if (worker == &workers[false])
        front_ask_for_short_slices();
    for (;;) {
        pthread_mutex_lock(&worker->lock);
        while (!worker->first)
            pthread_cond_wait(&worker->wake, &worker->lock);
        pthread_mutex_unlock(&worker->lock);
        sim_commit(&driver.seat, NULL, NULL);
        bool ran = false, polled = false;
        pthread_mutex_lock(&worker->lock);
        for (struct pending **at = &worker->first; *at;) {
            struct pending *pending = *at;
            if (!due(pending)) {
                at = &pending->next;
                continue;
            }
            pthread_mutex_unlock(&worker->lock); /* new ones are appended behind; only we take out */
            bool finished = pending->step.run(pending->step.argument);
            pthread_mutex_lock(&worker->lock);
            polled |= !finished;
            if (!finished) {
                at = &pending->next;
                continue;
            }
            *at = pending->next;
            if (worker->last == &pending->next)
                worker->last = at;
            struct sim_entry *entry = queue_entry(pending->queue, pending->index);
            atomic_store_explicit(&entry->done, sim_now(), memory_order_release);
            if (pending->step.drop)
                pending->step.drop(pending->step.argument);
            free(pending);
            atomic_fetch_sub(&driver.host_pending, 1);
            ran = true;
        }
        struct pending *next = worker->first;
        uint32_t queue = next ? next->queue : 0;
        uint64_t index = next ? next->index : 0;
        bool waits = next && !due(next);
        pthread_mutex_unlock(&worker->lock);
        if (ran)
            continue;
        if (polled)
            sim_sleep(sim_now() + POLL_NS);
        else if (waits)
            sim_wait(&driver.seat, queue, index - 1, LOOK_NS);
    }
    return NULL;
}

static bool start(struct worker *worker) {
    pthread_t thread_id;
    sigset_t all, before;
    sigfillset(&all); /* the program's signals are its own threads' matter */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    worker->started = pthread_create(&thread_id, NULL, work, worker) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (worker->started)
        pthread_detach(thread_id);
    return worker->started;
}

CUresult host_push(struct CUstream_st *stream, const struct host_step *step) {
    struct worker *worker = &workers[step->calls];
    struct pending *pending = calloc(1, sizeof(*pending));
    if (!pending)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pending->step = *step;
    pthread_mutex_lock(&worker->lock);
    bool there = worker->started || start(worker);
    pthread_mutex_unlock(&worker->lock);
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
    pthread_mutex_lock(&worker->lock);
    *worker->last = pending;
    worker->last = &pending->next;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->lock);
    return CUDA_SUCCESS;
}
