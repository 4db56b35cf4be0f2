#define _GNU_SOURCE
#include "libhook/sim/driver/front.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libhook/sim/driver/queue.h"
#include "libhook/sim/model/words.h"

enum {
    POLL_NS = 20 * 1000,         /* between looks at a word that is not as it should be, ... */
    POLL_PART = 4,               /* ... or so much of the time that it has not been, ... */
    SLOW_POLL_NS = 200 * 1000,   /* ... but no more */
    UNMET = sizeof(((struct engine_unmet *)0)->first) / sizeof(struct sim_entry),
    LOOK_NS = 1000 * 1000,       /* while something is outstanding: others may make it due earlier */
    LONG_NS = 5 * 1000 * 1000,   /* the same while a queue waits for a word */
};

_Atomic bool front_used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;
static _Atomic uint32_t kicks; /* the thread sleeps on it */

#ifdef SYS_futex_waitv
/* Sleep until a kick, a change of the word by whoever wakes its futex, or that time. false: it cannot be. */
static bool sleep_on(uint32_t seen, uint64_t word, uint32_t low, uint64_t until_ns) {
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    struct futex_waitv both[] = {
        {.uaddr = (uintptr_t)&kicks, .val = seen, .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG},
        {.uaddr = word, .val = low, .flags = FUTEX_32},
    };
    long got = syscall(SYS_futex_waitv, both, 2, 0, &until, CLOCK_MONOTONIC);
    return got >= 0 || errno == ETIMEDOUT || errno == EAGAIN || errno == EINTR;
}
#else
static bool sleep_on(uint32_t seen, uint64_t word, uint32_t low, uint64_t until_ns) {
    return (void)seen, (void)word, (void)low, (void)until_ns, false;
}
#endif

/* Sleep until a kick or that time; SIM_NEVER: until a kick. */
static void sleep_until(uint32_t seen, uint64_t until_ns) {
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    syscall(SYS_futex, &kicks, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, seen, until_ns == SIM_NEVER ? NULL : &until,
        NULL, FUTEX_BITSET_MATCH_ANY);
}

/* Is one of the words as it should be? Else *low: what the first of them holds. */
static bool look(const struct engine_unmet *unmet, uint32_t *low) {
    uint32_t count = unmet->count < UNMET ? unmet->count : UNMET;
    for (uint32_t i = count; i-- > 0;)
        if (words_look_here(driver.seat.owner, &unmet->first[i], low))
            return true;
    return false;
}

/* Sleep until that time, a kick, or until one of the words is as it should be. */
static void watch(uint32_t seen, const struct engine_unmet *unmet, uint64_t until_ns) {
    uint64_t since_ns = sim_now();
    for (uint64_t now = since_ns; now < until_ns && atomic_load(&kicks) == seen; now = sim_now()) {
        uint64_t poll_ns = (now - since_ns) / POLL_PART;
        uint32_t low;
        poll_ns = now + (poll_ns < POLL_NS ? POLL_NS : poll_ns < SLOW_POLL_NS ? poll_ns : SLOW_POLL_NS);
        poll_ns = poll_ns < until_ns ? poll_ns : until_ns;
        if (look(unmet, &low))
            return;
        if (!sleep_on(seen, unmet->first[0].arg, low, poll_ns))
            sleep_until(seen, poll_ns);
        if (unmet->count > UNMET)
            return;
    }
}

/* As the library's own thread asks (runtime/thread.c). */
void front_ask_for_short_slices(void) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {.size = sizeof attributes};

    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) || attributes.policy)
        return;
    attributes.runtime = 100000;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

static void *work(void *unused) {
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1);
    front_ask_for_short_slices();
    for (;;) {
        uint32_t seen = atomic_load(&kicks);
        struct engine_unmet unmet;
        uint64_t next_ns = sim_next_value(&driver.seat, &unmet), now = sim_now();
        if (!queue_values_outstanding()) {
            sleep_until(seen, SIM_NEVER);
            continue;
        }
        uint64_t look_ns = now + (unmet.count ? LONG_NS : LOOK_NS);
        next_ns = next_ns < look_ns ? next_ns : look_ns;
        if (unmet.count)
            watch(seen, &unmet, next_ns);
        else
            sleep_until(seen, next_ns);
    }
    return NULL;
}

/* The thread looks at once. */
static void kick(void) {
    atomic_fetch_add(&kicks, 1);
    syscall(SYS_futex, &kicks, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
}

CUresult front_start(void) {
    pthread_t thread_id;
    sigset_t all, before;
    if (atomic_load_explicit(&front_used, memory_order_acquire))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    queue_value_came = kick;
    if (!started) {
        sigfillset(&all); /* the program's signals are its own threads' matter */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        started = pthread_create(&thread_id, NULL, work, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (started)
            pthread_detach(thread_id);
    }
    atomic_store_explicit(&front_used, started, memory_order_release);
    pthread_mutex_unlock(&lock);
    return started ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void front_forget(void) {
    pthread_mutex_init(&lock, NULL);
    started = false;
    atomic_store(&front_used, false);
    atomic_store(&kicks, 0);
}
