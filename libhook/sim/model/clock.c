#define _GNU_SOURCE
#include "libhook/sim/model/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <time.h>

enum { SPIN_NS = 5 * 1000 }; /* a sleeper is woken late by about as much on a quiet machine */

uint64_t sim_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sim_sleep(uint64_t until_ns) {
    static _Thread_local bool precise;
    if (!precise) {
        prctl(PR_SET_TIMERSLACK, 1);
        precise = true;
    }
    if (until_ns > sim_now() + SPIN_NS) {
        uint64_t wake_ns = until_ns - SPIN_NS;
        struct timespec at = {(time_t)(wake_ns / 1000000000u), (long)(wake_ns % 1000000000u)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
            ;
    }
    while (sim_now() < until_ns)
        __builtin_ia32_pause();
}
