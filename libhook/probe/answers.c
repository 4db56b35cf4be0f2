/* answers.c - probes of what the driver answers: to a thread without a context, during a capture, to what cannot be. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "libhook/probe/probe.h"

static struct {
    struct card card;
    void *event, *other; /* both recorded */
    bool relaxed;
} shared;

static void say_code(const char *call, int code) {
    char name[64];
    snprintf(name, sizeof(name), "no_context_%s", call);
    say(name, code);
}

static void *without_a_context(void *strict) {
    int mode = RELAXED_CAPTURE, capturing;
    float ms;
    int codes[] = {cu.cuEventRecord(shared.event, shared.card.stream), cu.cuEventQuery(shared.event),
        cu.cuEventElapsedTime(&ms, shared.other, shared.event)};
    say_code("record", codes[0]);
    say_code("query", codes[1]);
    say_code("elapsed", codes[2]);
    say_code("record_legacy", cu.cuEventRecord(shared.other, NULL));
    say_code("is_capturing", cu.cuStreamIsCapturing(shared.card.stream, &capturing));
    say_code("is_capturing_legacy", cu.cuStreamIsCapturing(NULL, &capturing));
    say_code("exchange_mode", cu.cuThreadExchangeStreamCaptureMode(&mode));
    *(int *)strict = 0;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        *(int *)strict |= codes[i] == INVALID_CONTEXT;
    return NULL;
}

void probe_no_context(void) {
    pthread_t thread;
    int strict;
    shared.card = open_card();
    NEED(cu.cuEventCreate(&shared.event, 0));
    NEED(cu.cuEventCreate(&shared.other, 0));
    NEED(cu.cuEventRecord(shared.other, shared.card.stream));
    NEED(cu.cuEventRecord(shared.event, shared.card.stream));
    NEED(cu.cuStreamSynchronize(shared.card.stream));
    NEED(pthread_create(&thread, NULL, without_a_context, &strict));
    pthread_join(thread, NULL);
    say_text("strict", strict ? "on" : "off");
}

static void *query_from_beside(void *code) {
    int mode = RELAXED_CAPTURE;
    NEED(cu.cuCtxSetCurrent(shared.card.context));
    if (shared.relaxed)
        NEED(cu.cuThreadExchangeStreamCaptureMode(&mode));
    *(int *)code = cu.cuEventQuery(shared.event);
    return NULL;
}

/* Another thread's question during a capture that forbids what may not be captured: its answer, and the capture's. */
static void query_during_capture(const char *how) {
    pthread_t thread;
    void *graph = NULL;
    char name[64];
    int code;
    NEED(cu.cuStreamBeginCapture_v2(shared.card.stream, GLOBAL_CAPTURE));
    NEED(spin(&shared.card, 1000, shared.card.stream));
    NEED(pthread_create(&thread, NULL, query_from_beside, &code));
    pthread_join(thread, NULL);
    snprintf(name, sizeof(name), "capture_query_%s", how);
    say(name, code);
    snprintf(name, sizeof(name), "capture_end_%s", how);
    say(name, cu.cuStreamEndCapture(shared.card.stream, &graph));
}

void probe_captures(void) {
    void *beside;
    shared.card = open_card();
    NEED(cu.cuEventCreate(&shared.event, NO_TIMING));
    NEED(cu.cuStreamCreate(&beside, NON_BLOCKING));
    NEED(spin(&shared.card, 20000000, beside)); /* outstanding, while the captures last */
    NEED(cu.cuEventRecord(shared.event, beside));
    shared.relaxed = true;
    query_during_capture("relaxed");
    shared.relaxed = false;
    query_during_capture("global");
    NEED(cu.cuCtxSynchronize());
}

void probe_refusals(void) {
    static const char *const names[] = {"alloc", "managed", "pitch", "async", "create"};
    /* CUmemAllocationProp: pinned memory of device 0 */
    const int where[16] = {1, 0, 1, 0};
    const size_t huge = (size_t)1 << 62;
    struct card card = open_card();
    bool always = true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        uint64_t pointer, begin = now_ns();
        size_t pitch;
        char name[64];
        int code = i == 0   ? cu.cuMemAlloc_v2(&pointer, huge)
                   : i == 1 ? cu.cuMemAllocManaged(&pointer, huge, 1)
                   : i == 2 ? cu.cuMemAllocPitch_v2(&pointer, &pitch, huge >> 20, 1 << 20, 4)
                   : i == 3 ? cu.cuMemAllocAsync(&pointer, huge, card.stream)
                            : cu.cuMemCreate(&pointer, huge, where, 0);
        snprintf(name, sizeof(name), "refusal_%s", names[i]);
        say(name, code);
        snprintf(name, sizeof(name), "refusal_%s_ns", names[i]);
        say(name, (double)(now_ns() - begin));
        always = always && code == OUT_OF_MEMORY;
    }
    say("refusals_are_out_of_memory", always);
}
