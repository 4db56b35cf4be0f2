/*
 * pauses.c - a program that comes and goes, and now and then stays away: bursts of BURST_US of GPU time in kernels of 100 us,
 * a synchronise and GAP_US of host time after each; after every STRETCH bursts PAUSE_US instead. Until SIGTERM, or for
 * BURSTS bursts, printing when each began (CLOCK_MONOTONIC) and what it took, from before its first launch until the
 * synchronise was done, in nanoseconds.
 */
#include <sys/prctl.h>

#include "bench/spin.h"

#define KERNEL_US 100

int main(int argc, char **argv) {
    if (argc != 5 && argc != 6) {
        fprintf(stderr, "usage: pauses BURST_US GAP_US STRETCH PAUSE_US [BURSTS]\n");
        return 2;
    }
    long launches = atol(argv[1]) / KERNEL_US, gap_us = atol(argv[2]);
    long stretch = atol(argv[3]), pause_us = atol(argv[4]);
    long bursts = argc == 6 ? atol(argv[5]) : 0;
    prctl(PR_SET_TIMERSLACK, 1UL);
    start();
    for (long burst = 1; !bursts || burst <= bursts; burst++) {
        uint64_t start_ns = now_ns();
        for (long i = 0; i < launches; i++)
            launch(KERNEL_US * 1000);
        need(cuStreamSynchronize(stream), "cuStreamSynchronize");
        if (bursts)
            printf("%llu %llu\n", (unsigned long long)start_ns, (unsigned long long)(now_ns() - start_ns));
        rest_ns((uint64_t)(burst % stretch ? gap_us : pause_us) * 1000);
    }
    return 0;
}
