/*
 * wake.c - the floor under every hand-over: how long until who sleeps in another process runs?
 * Processes over one shared page and a socket. Who sleeps has slept for a while before each wake, so that the processor
 * has gone idle as it would between quotas. Prints, in microseconds,
 *     {"p50": .., "p99": ..,             from FUTEX_WAKE to the sleeper, which slept 1 ms
 *      "way": {"p50": .., "p99": ..}}    from a word on a socket to a second process that hears it (epoll, recv) and
 *                                        wakes a third one: the way of a token, every 4.5 ms, with nothing decided
 *                                        on it
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 1000, WAYS = 400, WAKE_PAUSE_NS = 1000000, WAY_PAUSE_NS = 4500000 };

struct shared {
    uint32_t word;
    uint64_t woken_ns; /* 0: not yet */
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void rest_ns(long ns) {
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static int ascending(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void show(uint64_t *took_ns, size_t count) {
    qsort(took_ns, count, sizeof took_ns[0], ascending);
    printf("\"p50\": %.1f, \"p99\": %.1f", (double)took_ns[count / 2] / 1e3, (double)took_ns[count * 99 / 100] / 1e3);
}

static void wake(struct shared *shared) {
    __atomic_add_fetch(&shared->word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &shared->word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* A process of its own, which ends with this one. */
static pid_t child_of(pid_t parent) {
    pid_t child = fork();

    if (child < 0)
        exit(1);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
    }
    return child;
}

static void sleep_and_tell(struct shared *shared) {
    for (uint32_t seen = __atomic_load_n(&shared->word, __ATOMIC_SEQ_CST);;) {
        syscall(SYS_futex, &shared->word, FUTEX_WAIT, seen, NULL, NULL, 0);
        uint32_t word = __atomic_load_n(&shared->word, __ATOMIC_SEQ_CST);
        if (word == seen)
            continue;
        seen = word;
        __atomic_store_n(&shared->woken_ns, now_ns(), __ATOMIC_RELEASE);
    }
}

static void pass_on(struct shared *shared, int fd) {
    struct epoll_event event = {.events = EPOLLIN};
    uint64_t word;
    int epoll = epoll_create1(0);

    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    while (epoll_wait(epoll, &event, 1, -1) >= 0)
        if (recv(fd, &word, sizeof word, MSG_DONTWAIT) == sizeof word)
            wake(shared);
    _exit(0);
}

/* From `begin` to the sleeper's first look at the clock. */
static uint64_t took(struct shared *shared, int fd, long pause_ns) {
    uint64_t woken_ns, word = 1;

    rest_ns(pause_ns);
    __atomic_store_n(&shared->woken_ns, 0, __ATOMIC_RELEASE);
    uint64_t at_ns = now_ns();
    if (fd < 0)
        wake(shared);
    else if (send(fd, &word, sizeof word, 0) < 0)
        exit(1);
    while (!(woken_ns = __atomic_load_n(&shared->woken_ns, __ATOMIC_ACQUIRE)))
        rest_ns(50000);
    return woken_ns - at_ns;
}

int main(void) {
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t wakes_ns[ROUNDS], ways_ns[WAYS];
    pid_t self = getpid(), sleeper, between;
    int fds[2];

    if (shared == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
        return 1;
    if ((sleeper = child_of(self)) == 0)
        sleep_and_tell(shared);
    if ((between = child_of(self)) == 0)
        pass_on(shared, fds[1]);
    rest_ns(50000000);
    for (int i = 0; i < ROUNDS; i++)
        wakes_ns[i] = took(shared, -1, WAKE_PAUSE_NS);
    for (int i = 0; i < WAYS; i++)
        ways_ns[i] = took(shared, fds[0], WAY_PAUSE_NS);
    kill(sleeper, SIGKILL);
    kill(between, SIGKILL);
    while (wait(NULL) > 0)
        ;
    printf("{");
    show(wakes_ns, ROUNDS);
    printf(", \"way\": {");
    show(ways_ns, WAYS);
    printf("}}\n");
    return 0;
}
