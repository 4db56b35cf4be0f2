/*
 * attachment.c - how far this process has come to be a tenant, and its way there (attachment.h).
 *
 * The first CUDA call that matters comes through agent_attach(): it decides whether the process is a tenant at all, and
 * has the agent started. A forked child begins from nothing.
 *
 * What the agent needs may not be there (RLIMIT_NPROC, pids.max, seccomp, no descriptor left). Then calls that make
 * contexts or memory, or launch, wait AGENT_LACKING_NS and fail from then on, each trying once more: nothing runs free.
 */
#define _GNU_SOURCE
#include "libhook/runtime/attachment.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libhook/runtime/agent_kick.h"
#include "libhook/runtime/cancel.h"
#include "libhook/runtime/forks.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/log.h"

#define START_AGAIN_NS 50000000ull

static uint32_t attachment;
static bool running; /* the agent's thread is there */
static struct attachment_start starting;
static int event_fd = -1;

void agent_kick(void) {
    uint64_t one = 1;
    int saved = errno, fd = __atomic_load_n(&event_fd, __ATOMIC_ACQUIRE);

    if (fd >= 0) /* no place to be cancelled at; EAGAIN: the agent has not read the last 2^64-1 of them */
        syscall(SYS_write, fd, &one, sizeof one);
    errno = saved;
}

bool agent_lost(void) {
    uint32_t now = __atomic_load_n(&attachment, __ATOMIC_ACQUIRE);
    return now == UNKNOWN || now == INERT;
}

bool agent_closed(void) {
    return __atomic_load_n(&attachment, __ATOMIC_ACQUIRE) == CLOSED;
}

bool agent_welcomed(void) {
    return __atomic_load_n(&attachment, __ATOMIC_ACQUIRE) == WELCOMED;
}

void attachment_set(enum attachment state) {
    __atomic_store_n(&attachment, state, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &attachment, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
}

int attachment_open_event(void) {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    if (fd < 0)
        return -errno;
    __atomic_store_n(&event_fd, fd, __ATOMIC_RELEASE);
    return 0;
}

void attachment_close_event(void) {
    int fd = event_fd;

    __atomic_store_n(&event_fd, -1, __ATOMIC_RELEASE);
    if (fd >= 0)
        close(fd);
}

int attachment_event(void) {
    return event_fd;
}

void attachment_complain(const struct need *need, int error) {
    log_line(LOG_ERROR,
        "%s cannot be had here (%s), and without it this process has no share of the GPU: waiting for "
        "%d s, then its CUDA calls fail with CUDA_ERROR_OUT_OF_MEMORY; %s",
        need->what, strerror(-error), (int)(AGENT_LACKING_NS / 1000000000), need->mend);
}

static void after_fork_in_child(void) {
    int saved = errno;

    starting.after_fork();
    attachment_close_event();
    running = false;
    __atomic_store_n(&attachment, UNKNOWN, __ATOMIC_SEQ_CST);
    errno = saved;
}

/* The thread that found nothing begun. Whatever happens, somebody is told by `attachment`, in which it leaves no
 * STARTING but to the agent. `patient`: what cannot be had at once is waited for. */
static void start_or_close(const struct options *options, bool patient) {
    static const struct timespec PAUSE = {.tv_sec = 0, .tv_nsec = START_AGAIN_NS};
    uint64_t until_ns = gate_now() + (patient ? AGENT_LACKING_NS : 0);
    bool complained = !patient;
    const struct need *lacks;

    for (;;) {
        int error = starting.start(options, &lacks);
        if (!error) {
            __atomic_store_n(&running, true, __ATOMIC_RELEASE);
            return;
        }
        if (options->run_on_loss) {
            log_line(LOG_ERROR,
                "%s cannot be had here (%s): running without a share, as GEMINI_ON_BACKEND_LOSS=run "
                "says; %s",
                lacks->what, strerror(-error), lacks->mend);
            __atomic_store_n(&gate_mode, GATE_INERT, __ATOMIC_SEQ_CST);
            attachment_set(INERT);
            return;
        }
        if (!complained)
            attachment_complain(lacks, error);
        complained = true;
        if (gate_now() >= until_ns) {
            attachment_set(CLOSED);
            return;
        }
        syscall(SYS_nanosleep, &PAUSE, NULL);
    }
}

bool agent_is_tenant(void) {
    uint32_t now = __atomic_load_n(&attachment, __ATOMIC_ACQUIRE);

    if (now == INERT)
        return false;
    return now != UNKNOWN || options_of_process()->socket[0];
}

int agent_attach(void) {
    static int watching;
    uint32_t now = __atomic_load_n(&attachment, __ATOMIC_ACQUIRE);

    if (__builtin_expect(now == WELCOMED, 1))
        return 0;
    int saved = errno, cancel = cancel_hold();
    if (now == UNKNOWN || (now == CLOSED && !__atomic_load_n(&running, __ATOMIC_ACQUIRE))) {
        bool patient = now == UNKNOWN; /* else: each call tries once more */
        const struct options *options = options_of_process();
        if (options->socket[0]) /* before anything begins: another thread may fork while this one starts */
            forks_watch(&watching, after_fork_in_child);
        if (__atomic_compare_exchange_n(
                &attachment, &now, options->socket[0] ? STARTING : INERT, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            if (!options->socket[0]) {
                __atomic_store_n(&gate_mode, GATE_INERT, __ATOMIC_SEQ_CST);
            } else {
                start_or_close(options, patient);
            }
        }
    }
    while ((now = __atomic_load_n(&attachment, __ATOMIC_ACQUIRE)) == STARTING)
        syscall(SYS_futex, &attachment, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, STARTING, NULL, NULL, 0);
    cancel_release(cancel);
    errno = saved;
    return now == WELCOMED ? 0 : now == CLOSED ? -ENOMEM : -ENOTCONN;
}

void attachment_init(const struct attachment_start *start) {
    starting = *start;
}
