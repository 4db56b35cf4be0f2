/*
 * streams.c - a program that launches kernels of 200 us, each of one block, into STREAMS streams in turn, and looks at its
 * oldest round before it begins another: two rounds of eight for each stream are in flight at most. Or it fills one stream
 * after the other with a round, and waits for all of it. Until SIGTERM.
 *
 *     streams STREAMS [filled]
 */
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>

#include "bench/spin.h"

enum { MOST = 32, ROUND = 8, ROUNDS = 2 };
static const uint64_t KERNEL_NS = 200000;

static CUstream streams[MOST];

static void fill_each(int count) {
    for (;;) {
        for (int i = 0; i < count; i++) {
            stream = streams[i];
            for (int k = 0; k < ROUND; k++)
                launch(KERNEL_NS);
        }
        for (int i = 0; i < count; i++)
            need(cuStreamSynchronize(streams[i]), "cuStreamSynchronize");
    }
}

int main(int argc, char **argv) {
    int count = argc >= 2 ? atoi(argv[1]) : 0;
    bool filled = argc == 3 && strcmp(argv[2], "filled") == 0;
    CUevent ends[ROUNDS][MOST];
    if (count < 1 || count > MOST || argc > 3 || (argc == 3 && !filled)) {
        fprintf(stderr, "usage: streams STREAMS [filled]\n");
        return 2;
    }
    prctl(PR_SET_TIMERSLACK, 1UL);
    start();
    for (int i = 0; i < count; i++) {
        need(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        for (int k = 0; k < ROUNDS; k++)
            need(cuEventCreate(&ends[k][i], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
    if (filled)
        fill_each(count);
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
