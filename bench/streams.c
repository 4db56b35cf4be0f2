/*
 * streams.c - a program that launches kernels of 200 us, each of one block, into STREAMS streams in turn, and looks at its
 * oldest round before it begins another: two rounds of eight for each stream are in flight at most. Until SIGTERM.
 *
 *     streams STREAMS
 */
#include <sys/prctl.h>

#include "bench/spin.h"

enum { MOST = 32, ROUND = 8, ROUNDS = 2 };
static const uint64_t KERNEL_NS = 200000;

int main(int argc, char **argv) {
    int count = argc == 2 ? atoi(argv[1]) : 0;
    CUstream streams[MOST];
    CUevent ends[ROUNDS][MOST];
    if (count < 1 || count > MOST) {
        fprintf(stderr, "usage: streams STREAMS\n");
        return 2;
    }
    prctl(PR_SET_TIMERSLACK, 1UL);
    start();
    for (int i = 0; i < count; i++) {
        need(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        for (int k = 0; k < ROUNDS; k++)
            need(cuEventCreate(&ends[k][i], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
    for (uint64_t n = 0;; n++) {
        for (int i = 0; i < count && n >= ROUNDS; i++)
            need(cuEventSynchronize(ends[n % ROUNDS][i]), "cuEventSynchronize");
        for (int k = 0; k < ROUND * count; k++) {
            stream = streams[k % count];
            launch(KERNEL_NS);
        }
        for (int i = 0; i < count; i++)
            need(cuEventRecord(ends[n % ROUNDS][i], streams[i]), "cuEventRecord");
    }
}
