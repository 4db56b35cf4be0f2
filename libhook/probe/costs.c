/* costs.c - probes of time: what calls cost the host, what lies between two kernels, and how processes take turns. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libhook/probe/probe.h"

enum { CALLS = 200, BATCHES = 9 };

void probe_costs(void) {
    struct card card = open_card();
    void *begin, *end;
    double launch[BATCHES], record[BATCHES], query[BATCHES], elapsed[BATCHES], gap[BATCHES], timed[BATCHES];
    double back[BATCHES];
    float ms;
    NEED(cu.cuEventCreate(&begin, 0));
    NEED(cu.cuEventCreate(&end, 0));
    for (int batch = 0; batch < BATCHES; batch++) {
        uint64_t at = now_ns();
        for (int i = 0; i < CALLS; i++)
            NEED(spin(&card, 0, card.stream));
        launch[batch] = (double)(now_ns() - at) / CALLS;
        NEED(cu.cuStreamSynchronize(card.stream));
        NEED(cu.cuEventRecord(begin, card.stream));
        at = now_ns();
        for (int i = 0; i < CALLS; i++)
            NEED(cu.cuEventRecord(end, card.stream));
        record[batch] = (double)(now_ns() - at) / CALLS;
        NEED(cu.cuStreamSynchronize(card.stream));
        at = now_ns();
        for (int i = 0; i < CALLS; i++)
            NEED(cu.cuEventQuery(end));
        query[batch] = (double)(now_ns() - at) / CALLS;
        at = now_ns();
        for (int i = 0; i < CALLS; i++)
            NEED(cu.cuEventElapsedTime(&ms, begin, end));
        elapsed[batch] = (double)(now_ns() - at) / CALLS;
        /* Kernels of a known length, behind a longer one, so that the card never waits for the host. */
        enum { KERNELS = 50, KERNEL_NS = 20000 };
        for (int with_events = 0; with_events < 2; with_events++) {
            void *between;
            NEED(cu.cuEventCreate(&between, 0));
            NEED(spin(&card, 2000000, card.stream));
            NEED(cu.cuEventRecord(begin, card.stream));
            for (int i = 0; i < KERNELS; i++) {
                NEED(spin(&card, KERNEL_NS, card.stream));
                if (with_events)
                    NEED(cu.cuEventRecord(between, card.stream));
            }
            NEED(cu.cuEventRecord(end, card.stream));
            NEED(cu.cuStreamSynchronize(card.stream));
            (with_events ? timed : gap)[batch] = elapsed_ns(begin, end) / KERNELS - KERNEL_NS;
        }
        at = now_ns();
        NEED(spin(&card, 200000, card.stream));
        NEED(cu.cuStreamSynchronize(card.stream));
        back[batch] = (double)(now_ns() - at) - 200000;
    }
    say("launch_ns", median(launch, BATCHES));
    say("record_ns", median(record, BATCHES));
    say("query_ns", median(query, BATCHES));
    say("elapsed_ns", median(elapsed, BATCHES));
    say("gap_ns", median(gap, BATCHES));
    say("gap_with_event_ns", median(timed, BATCHES));
    say("launch_and_synchronise_ns", median(back, BATCHES));
}

void probe_queue(void) {
    struct card card = open_card();
    int launches = 0;
    NEED(spin(&card, 300000000, card.stream));
    for (uint64_t before = now_ns(), after; launches < 100000; launches++, before = after) {
        NEED(spin(&card, 0, card.stream));
        after = now_ns();
        if (after - before > 20000000)
            break;
    }
    say("launches_until_one_blocks", launches);
    NEED(cu.cuStreamSynchronize(card.stream));
}

void probe_loading(void) {
    enum { FUNCTIONS = 16 };
    static const char *const targets[] = {"50", "75", "80", "90"}, *const versions[] = {"6.0", "6.3", "7.0", "7.8"};
    struct card card = open_card();
    static char image[FUNCTIONS * 80 + 200];
    void *module, *functions[FUNCTIONS];
    double first[FUNCTIONS], later[FUNCTIONS];
    for (int i = 0; i < 4; i++) {
        char name[40];
        snprintf(image, sizeof(image),
            ".version %s\n.target sm_%s\n.address_size 64\n.visible .entry one()\n{ ret; }\n", versions[i], targets[i]);
        snprintf(name, sizeof(name), "ptx_sm_%s", targets[i]);
        say(name, cu.cuModuleLoadData(&module, image));
    }
    size_t length = (size_t)snprintf(image, sizeof(image), ".version 6.0\n.target sm_50\n.address_size 64\n");
    for (int i = 0; i < FUNCTIONS; i++)
        length += (size_t)snprintf(image + length, sizeof(image) - length, ".visible .entry f%d()\n{ ret; }\n", i);
    NEED(cu.cuModuleLoadData(&module, image));
    for (int i = 0; i < FUNCTIONS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%d", i);
        NEED(cu.cuModuleGetFunction(&functions[i], module, name));
    }
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < FUNCTIONS; i++) {
            uint64_t at = now_ns();
            NEED(cu.cuLaunchKernel(functions[i], 1, 1, 1, 1, 1, 1, 0, card.stream, NULL, NULL));
            (turn == 0 ? first : later)[i] = (double)(now_ns() - at);
            NEED(cu.cuStreamSynchronize(card.stream));
        }
    double cost = median(first, FUNCTIONS) - median(later, FUNCTIONS);
    say("first_launch_ns", cost > 0 ? cost : 0);
}

/* Always with work behind what is running, until somebody ends it. */
static void be_busy(const struct card *card, uint64_t kernel_ns) {
    void *done[2];
    for (int i = 0; i < 2; i++) {
        NEED(cu.cuEventCreate(&done[i], NO_TIMING));
        NEED(cu.cuEventRecord(done[i], card->stream));
    }
    for (int turn = 0;; turn ^= 1) {
        for (int i = 0; i < 100; i++)
            NEED(spin(card, kernel_ns, card->stream));
        NEED(cu.cuEventRecord(done[turn], card->stream));
        NEED(cu.cuEventSynchronize(done[turn ^ 1]));
    }
}

/* Two processes that always have work. Each sees by its own events when it did not run: for the other's slice and two
 * switches. What it ran between two such breaks is a slice. */
void probe_slices(void) {
    enum { KERNELS = 2000, KERNEL_NS = 50000 };
    static void *events[KERNELS + 1];
    static double slices[KERNELS], breaks[KERNELS];
    int slice_count = 0, break_count = 0;
    pid_t other = fork();
    struct card card = open_card();
    if (other == 0)
        be_busy(&card, KERNEL_NS);
    for (int i = 0; i <= KERNELS; i++)
        NEED(cu.cuEventCreate(&events[i], 0));
    for (uint64_t at = now_ns(); now_ns() - at < 1500000000u;) { /* until both are at work */
        for (int i = 0; i < 100; i++)
            NEED(spin(&card, KERNEL_NS, card.stream));
        NEED(cu.cuStreamSynchronize(card.stream));
    }
    for (int i = 0; i <= KERNELS; i++) {
        NEED(cu.cuEventRecord(events[i], card.stream));
        if (i < KERNELS)
            NEED(spin(&card, KERNEL_NS, card.stream));
    }
    NEED(cu.cuStreamSynchronize(card.stream));
    kill(other, SIGKILL);
    double ran = 0;
    for (int i = 0; i < KERNELS; i++) {
        double took = elapsed_ns(events[i], events[i + 1]);
        ran += KERNEL_NS;
        if (took < 3 * KERNEL_NS)
            continue;
        breaks[break_count++] = took - KERNEL_NS;
        if (break_count > 1)
            slices[slice_count++] = ran;
        ran = 0;
    }
    say("slices_seen", slice_count);
    if (slice_count < 5)
        return; /* they run side by side, or the other never came */
    double slice = 0, away = 0; /* means: a kernel that was broken off counts for both sides */
    for (int i = 0; i < slice_count; i++)
        slice += slices[i] / slice_count;
    for (int i = 1; i < break_count; i++)
        away += breaks[i] / (break_count - 1);
    say("slice_ns", slice);
    say("switch_ns", away > slice ? (away - slice) / 2 : 0);
}
