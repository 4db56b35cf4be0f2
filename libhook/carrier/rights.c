/* rights.c - looking before reading, and the thread that closes what others passed (rights.h). */
#define _GNU_SOURCE
#include "libhook/carrier/rights.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define LOOK_BYTES (16 * 1024)
#define LOOKS_MOST 64 /* at what is unread in one that is closed: 1 MiB, more than a socket takes as a rule */
#define OUT_OF_IT_NS 2000000 /* for so long a close may wait before a signal ends that */
#define GET_OUT (SIGRTMIN + 7)

enum { UNKNOWN, REFUSED, SOUGHT };
static int state; /* atomic */
static bool no_option; /* for tests */

/* What is still to be closed; guarded by `lock`. */
static struct left {
    struct left *next;
    int fd;
} *first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static bool running;

static void nothing(int number) {
    (void)number;
}

/* A signal that comes every OUT_OF_IT_NS from now on, or with 0 none: the one that is pending ends all waits to come
 * before this call of close() returns. */
static void keep_getting_out(int timer, long ns) {
    struct itimerspec at = {.it_value.tv_nsec = ns, .it_interval.tv_nsec = ns};
    syscall(SYS_timer_settime, timer, 0, &at, NULL);
}

static void *run(void *unused) {
    struct sigevent event;
    int timer = -1;

    (void)unused;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = GET_OUT;
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer)) /* which was in librt before glibc 2.34 */
        timer = -1;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!first)
            pthread_cond_wait(&more, &lock);
        struct left *one = first;
        first = one->next;
        pthread_mutex_unlock(&lock);
        if (timer >= 0)
            keep_getting_out(timer, OUT_OF_IT_NS);
        close(one->fd);
        if (timer >= 0)
            keep_getting_out(timer, 0);
        free(one);
    }
    return NULL;
}

static void start(void) {
    struct sigaction action = {.sa_handler = nothing};
    sigset_t all, before;
    pthread_t thread;

    sigaction(GET_OUT, &action, NULL); /* without SA_RESTART */
    sigfillset(&all);
    sigdelset(&all, GET_OUT);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (!pthread_create(&thread, NULL, run, NULL)) {
        pthread_setname_np(thread, "gemini-closes");
        pthread_detach(thread);
        running = true;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool rights_are_sought(void) {
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE) != REFUSED;
}

int rights_refuse(int fd) {
    int off = 0, error = 0;

    if (no_option)
        error = -ENOPROTOOPT;
    else if (setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off))
        error = -errno;
    __atomic_store_n(&state, error ? SOUGHT : REFUSED, __ATOMIC_RELEASE);
    if (error) {
        pthread_mutex_lock(&lock);
        if (!running)
            start();
        pthread_mutex_unlock(&lock);
    }
    return error;
}

void rights_forget_option(void) {
    no_option = true;
}

/* How many bytes may be read without any descriptor; else as rights_recv. */
static int64_t look(int fd, void *to, uint64_t size) {
    struct iovec part = {.iov_base = to, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int on = 1;

    /* An urgent byte that is not read with the others is dropped unseen by who reads those, with what was passed with it.
     * No socket has this of its listener. */
    setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    ssize_t count = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT);

    if (count < 0)
        return -errno;
    return message.msg_flags & MSG_CTRUNC ? -EPERM : count; /* without room for them: they were left out */
}

int64_t rights_recv(int fd, void *to, uint64_t size) {
    if (rights_are_sought()) {
        int64_t count = look(fd, to, size);
        if (count <= 0)
            return count;
        size = (uint64_t)count; /* no more than was looked at: what came since may bear some */
    }
    ssize_t count = recv(fd, to, size, MSG_DONTWAIT);
    return count < 0 ? -errno : count;
}

void rights_leave(int fd) {
    if (rights_are_sought()) {
        struct left *one = malloc(sizeof *one);
        pthread_mutex_lock(&lock);
        if (one && running) {
            *one = (struct left){.next = first, .fd = fd};
            first = one;
            pthread_cond_signal(&more);
            pthread_mutex_unlock(&lock);
            return;
        }
        pthread_mutex_unlock(&lock);
        free(one);
    }
    close(fd);
}

void rights_close(int fd) {
    uint8_t bytes[LOOK_BYTES];
    int64_t count = 0;

    if (rights_are_sought()) {
        shutdown(fd, SHUT_RDWR); /* nothing can come to stand in it from now on */
        for (int looks = 0; looks < LOOKS_MOST && (count = rights_recv(fd, bytes, sizeof bytes)) > 0; looks++)
            ;
    }
    if (count > 0 || count == -EPERM)
        rights_leave(fd);
    else
        close(fd);
}

void rights_end(int fd) {
    if (rights_are_sought()) {
        int waits;

        shutdown(fd, SHUT_RDWR); /* nobody comes to stand in its queue from now on */
        while ((waits = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
            rights_close(waits);
    }
    close(fd);
}
