/*
 * wake.c - the floor under every hand-over: how long after a FUTEX_WAKE does the sleeper in another process run?
 * Two processes over one shared page; the sleeper sleeps 1 ms before each wake, so that its CPU has gone idle as it would
 * between quotas. Prints {"p50": .., "p99": ..} in microseconds.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 1000 };

struct shared {
    uint32_t word;
    uint64_t woken_ns[ROUNDS];
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int ascending(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

int main(void) {
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t took_ns[ROUNDS];

    if (shared == MAP_FAILED)
        return 1;
    pid_t child = fork();
    if (child < 0)
        return 1;
    if (child == 0) {
        for (uint32_t i = 0; i < ROUNDS; i++) {
            while (__atomic_load_n(&shared->word, __ATOMIC_ACQUIRE) == i)
                syscall(SYS_futex, &shared->word, FUTEX_WAIT, i, NULL, NULL, 0);
            __atomic_store_n(&shared->woken_ns[i], now_ns(), __ATOMIC_RELEASE);
        }
        _exit(0);
    }
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
        uint64_t at_ns = now_ns();
        __atomic_store_n(&shared->word, i + 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &shared->word, FUTEX_WAKE, 1, NULL, NULL, 0);
        while (!__atomic_load_n(&shared->woken_ns[i], __ATOMIC_ACQUIRE))
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        took_ns[i] = shared->woken_ns[i] - at_ns;
    }
    waitpid(child, NULL, 0);
    qsort(took_ns, ROUNDS, sizeof took_ns[0], ascending);
    printf("{\"p50\": %.1f, \"p99\": %.1f}\n", (double)took_ns[ROUNDS / 2] / 1e3,
        (double)took_ns[ROUNDS * 99 / 100] / 1e3);
    return 0;
}
