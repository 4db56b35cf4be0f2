/*
 * legal.c - random programs that CUDA allows and that know what they must come to: the fuzzer of order and of hangs.
 *
 *     legal SEED STEPS THREADS [PROGRESS]
 *     legal peer DESCRIPTOR: the other process of such a program
 *
 * Each thread has streams of its own, and memory for each of them. What it puts into the streams (kernels, sets, copies,
 * host functions, waits for a value, events that others wait for, graphs) it carries out at once on a copy of that memory
 * of its own. So it knows what the card's memory must have in the end, what each copy to the host must bring, and in which
 * order host functions come. It ends with 1 where anything else is so, or where any call has an answer but success.
 *
 * Some host functions and waits stand still until the thread has launched more, and has slept: whoever keeps these launches
 * for the end of what is in flight never comes to it. Some programs have a second process, for whose kernels their streams wait
 * on the device. PROGRESS is a file whose first words count the threads' steps.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libhook/driver/cuda_abi.h"

#define THREADS_MAX 8
#define LANES 5
#define BYTES 2048
#define SLOTS 256
#define SLOT_BYTES 256
#define PAUSES 2
#define GRAPHS 4
#define BEHIND_MOST 60 /* calls behind a pause: a queue of the driver takes 1,024 entries */
#define EVENTS 6

struct road {
    CUstream stream;
    CUcontext context;
    CUdeviceptr memory;
    uint8_t shadow[BYTES];
    uint32_t called; /* host functions; by the driver's thread */
    uint32_t calls;  /* ... that were put there */
    bool owned;
};

struct parcel {
    uint8_t wanted[SLOT_BYTES];
    uint8_t *host;
    size_t bytes;
    bool used;
};

struct call {
    struct road *lane;
    const struct parcel *slot;
    uint32_t number;
    uint32_t *let_go;
};

struct pause {
    uint32_t *word; /* pinned */
    CUdeviceptr there;
    uint32_t round;
    uint32_t *called; /* what a function waits for; it frees that */
    bool stands;
};

struct graph {
    CUgraphExec exec;
    struct road *lane;
    size_t at, bytes;
    uint8_t value;
    bool sets, fetches, calls, pauses;
    uint8_t *host;
    struct pause *pause;
    uint32_t begun; /* by the driver's thread */
    uint32_t let_go;
    uint32_t launched;
};

struct player {
    int number;
    uint64_t state, hash;
    struct road lanes[LANES];
    struct parcel slots[SLOTS];
    int slot_count;
    uint8_t *pinned;
    struct pause pauses[PAUSES];
    struct graph graphs[GRAPHS];
    CUevent events[EVENTS];
    bool recorded[EVENTS];
    int standing, behind;
    uint64_t step;
    CUcontext other;
    CUmemoryPool pool;
};

static const char PTX[] = ".version 8.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry gemini_spin(.param .u64 nanoseconds) { ret; }\n";
static struct {
    uint32_t *words; /* what is asked of the other process, and what it has done; none: it is not there */
    CUdeviceptr there;
    uint32_t asked;
    pid_t process;
} peer;
static CUcontext primary;
static CUfunction spin, other_spin;
static CUstream everybodys;
static int thread_count;
static uint64_t steps, seed;
static volatile uint64_t *progress;
static uint32_t wrong; /* atomic */
static pthread_barrier_t meeting;

static __attribute__((format(printf, 2, 3))) void fail(const struct player *p, const char *format, ...) {
    va_list list;

    va_start(list, format);
    flockfile(stdout);
    printf("seed %llu thread %d step %llu: ", (unsigned long long)seed, p ? p->number : -1,
        (unsigned long long)(p ? p->step : 0));
    vprintf(format, list);
    printf("\n");
    fflush(stdout);
    funlockfile(stdout);
    va_end(list);
    _exit(1);
}

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        CUresult result_of_call = call;                                                                                \
        if (result_of_call != CUDA_SUCCESS)                                                                            \
            fail(p, "line %d: %s: %d", __LINE__, #call, result_of_call);                                               \
    } while (0)

static uint64_t draw(struct player *p, uint64_t below) { /* xorshift64* */
    p->state ^= p->state >> 12;
    p->state ^= p->state << 25;
    p->state ^= p->state >> 27;
    return ((p->state * 0x2545F4914F6CDD1Dull) >> 11) % below;
}

static void rest_ns(uint64_t ns) {
    struct timespec duration = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    nanosleep(&duration, NULL);
}

static struct road *any_lane(struct player *p) {
    return &p->lanes[draw(p, LANES)];
}

static void enter(struct player *p, const struct road *lane) {
    MUST(cuCtxSetCurrent(lane->context));
}

/* ---- what is checked ---- */

static void check_slots(struct player *p) {
    for (int i = 0; i < p->slot_count; i++) {
        struct parcel *slot = &p->slots[i];
        if (memcmp(slot->host, slot->wanted, slot->bytes))
            fail(p, "a copy to the host brought something else (slot %d)", i);
    }
    p->slot_count = 0;
}

static void check_lane(struct player *p, struct road *lane) {
    uint8_t seen[BYTES];

    enter(p, lane);
    MUST(cuMemcpyDtoH_v2(seen, lane->memory, BYTES));
    for (int i = 0; i < BYTES; i++)
        if (seen[i] != lane->shadow[i])
            fail(p, "memory of lane %d: byte %d is %d, not %d", (int)(lane - p->lanes), i, seen[i], lane->shadow[i]);
    if (__atomic_load_n(&lane->called, __ATOMIC_ACQUIRE) != lane->calls)
        fail(p, "lane %d: %u host functions, not %u", (int)(lane - p->lanes), lane->called, lane->calls);
}

/* In the driver's thread. */
static void called(void *argument) {
    struct call *call = argument;

    if (__atomic_load_n(&call->lane->called, __ATOMIC_ACQUIRE) != call->number)
        __atomic_store_n(&wrong, 1, __ATOMIC_RELEASE);
    if (call->slot && memcmp(call->slot->host, call->slot->wanted, call->slot->bytes))
        __atomic_store_n(&wrong, 2, __ATOMIC_RELEASE);
    if (call->let_go)
        while (!__atomic_load_n(call->let_go, __ATOMIC_ACQUIRE))
            rest_ns(50000);
    free(call->let_go);
    __atomic_store_n(&call->lane->called, call->number + 1, __ATOMIC_RELEASE);
    free(call);
}

static void called_by_graph(void *argument) {
    struct graph *graph = argument;
    uint32_t round = ++graph->begun;

    while (graph->pauses && __atomic_load_n(&graph->let_go, __ATOMIC_ACQUIRE) < round)
        rest_ns(50000);
    if (graph->sets && graph->fetches)
        for (size_t i = 0; i < graph->bytes; i++)
            if (graph->host[i] != graph->value)
                __atomic_store_n(&wrong, 3, __ATOMIC_RELEASE);
}

/* ---- pauses ---- */

static void let_go(struct player *p) {
    if (!p->standing)
        return;
    if (draw(p, 3) == 0)
        rest_ns(draw(p, 2) ? 1000000 * (1 + draw(p, 30)) : 1000 * draw(p, 2000));
    for (int i = 0; i < PAUSES; i++)
        if (p->pauses[i].stands) {
            if (p->pauses[i].called)
                __atomic_store_n(p->pauses[i].called, 1, __ATOMIC_SEQ_CST);
            else
                __atomic_store_n(p->pauses[i].word, p->pauses[i].round, __ATOMIC_SEQ_CST);
            p->pauses[i].stands = false;
        }
    for (int i = 0; i < GRAPHS; i++)
        __atomic_store_n(&p->graphs[i].let_go, p->graphs[i].launched, __ATOMIC_RELEASE);
    p->standing = p->behind = 0;
}

static void call_host(struct player *p, struct road *lane, const struct parcel *slot, uint32_t *let_go_by) {
    struct call *call = malloc(sizeof *call);

    *call = (struct call){lane, slot, lane->calls++, let_go_by};
    MUST(cuLaunchHostFunc(lane->stream, called, call));
}

static void pauses(struct player *p) {
    struct road *lane = any_lane(p);
    struct pause *pause = &p->pauses[draw(p, PAUSES)];

    if (pause->stands)
        return;
    enter(p, lane);
    pause->stands = true;
    pause->called = draw(p, 2) ? calloc(1, sizeof *pause->called) : NULL;
    p->standing++;
    if (pause->called) {
        call_host(p, lane, NULL, pause->called);
        return;
    }
    pause->round++;
    MUST(cuStreamWaitValue32_v2(lane->stream, pause->there, pause->round, CU_STREAM_WAIT_VALUE_GEQ));
}

/* ---- waiting ---- */

static void wait_for_all(struct player *p) {
    let_go(p);
    for (int i = 0; i < LANES; i++) {
        enter(p, &p->lanes[i]);
        MUST(cuStreamSynchronize(p->lanes[i].stream));
    }
    check_slots(p);
    if (__atomic_load_n(&wrong, __ATOMIC_ACQUIRE))
        fail(p, "a host function saw something else: %u", wrong);
}

static void waits(struct player *p) {
    struct road *lane = any_lane(p);

    switch (draw(p, 6)) {
    case 0:
        let_go(p);
        enter(p, lane);
        MUST(cuStreamSynchronize(lane->stream));
        check_lane(p, lane);
        break;
    case 1:
        enter(p, lane);
        if (thread_count == 1) {
            let_go(p);
            MUST(cuCtxSynchronize());
        }
        break;
    case 2: {
        enter(p, lane);
        CUresult result = cuStreamQuery(lane->stream);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
            fail(p, "cuStreamQuery: %d", result);
        break;
    }
    case 3:
        if (draw(p, 4) == 0)
            rest_ns(1000 * draw(p, 20000));
        break;
    default: wait_for_all(p);
    }
}

/* ---- work ---- */

static uint64_t some_ns(struct player *p) {
    switch (draw(p, 40)) {
    case 0: return 1000000 * (1 + draw(p, 4));
    case 1: return 100000 * (1 + draw(p, 9));
    case 2: return draw(p, 20) ? 1000 : 20000000;
    default: return 1000 * (1 + draw(p, 60));
    }
}

static void kernel(struct player *p, CUstream stream, bool other) {
    static const unsigned GRIDS[] = {1, 1, 1, 2, 3, 132};
    static const uint64_t STEADY[] = {5000, 20000, 50000, 100000, 300000, 20000};
    uint64_t which = draw(p, sizeof GRIDS / sizeof *GRIDS), ns = draw(p, 6) ? STEADY[which] : some_ns(p);
    void *parameters[] = {&ns};

    MUST(cuLaunchKernel(other ? other_spin : spin, GRIDS[which], 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
}

static bool is_other(const struct player *p, const struct road *lane) {
    return p->other && lane->context == p->other;
}

static void kernels(struct player *p) {
    struct road *lane = any_lane(p);
    int count = draw(p, 4) ? 1 : draw(p, 20) ? (int)draw(p, 8) : p->standing ? 8 : (int)draw(p, 150);

    enter(p, lane);
    for (int i = 0; i < count; i++)
        kernel(p, lane->stream, is_other(p, lane));
    p->behind += count / 4;
}

static void kernels_in_everybodys(struct player *p) {
    MUST(cuCtxSetCurrent(primary));
    kernel(p, everybodys, false);
}

static void part(struct player *p, size_t *at, size_t *bytes) {
    *bytes = 1 + draw(p, SLOT_BYTES);
    *at = draw(p, BYTES - *bytes);
}

static void sets(struct player *p) {
    struct road *lane = any_lane(p);
    size_t at, bytes;
    uint8_t value = (uint8_t)draw(p, 256);

    part(p, &at, &bytes);
    enter(p, lane);
    MUST(cuMemsetD8Async(lane->memory + at, value, bytes, lane->stream));
    memset(lane->shadow + at, value, bytes);
}

static struct parcel *free_slot(struct player *p) {
    if (p->slot_count == SLOTS)
        wait_for_all(p);
    return &p->slots[p->slot_count++];
}

static void copies(struct player *p) {
    struct road *lane = any_lane(p);
    size_t at, bytes, to;
    struct parcel *slot;

    part(p, &at, &bytes);
    enter(p, lane);
    switch (draw(p, 5)) {
    case 0:
        slot = free_slot(p);
        enter(p, lane);
        for (size_t i = 0; i < bytes; i++)
            slot->host[i] = slot->wanted[i] = (uint8_t)draw(p, 256);
        slot->bytes = bytes;
        MUST(cuMemcpyHtoDAsync_v2(lane->memory + at, slot->host, bytes, lane->stream));
        memcpy(lane->shadow + at, slot->wanted, bytes);
        break;
    case 1:
    case 2:
        slot = free_slot(p);
        enter(p, lane);
        slot->bytes = bytes;
        memcpy(slot->wanted, lane->shadow + at, bytes);
        MUST(cuMemcpyDtoHAsync_v2(slot->host, lane->memory + at, bytes, lane->stream));
        if (draw(p, 2))
            call_host(p, lane, slot, NULL);
        break;
    default:
        to = draw(p, BYTES - bytes);
        if (to + bytes > at && at + bytes > to)
            return;
        MUST(cuMemcpyDtoDAsync_v2(lane->memory + to, lane->memory + at, bytes, lane->stream));
        memcpy(lane->shadow + to, lane->shadow + at, bytes);
    }
}

struct waiting {
    const struct player *p;
    const struct road *lane;
    CUevent event;
};

static void *wait_elsewhere(void *argument) {
    const struct waiting *waiting = argument;
    const struct player *p = waiting->p;

    MUST(cuCtxSetCurrent(waiting->lane->context));
    MUST(cuStreamWaitEvent(waiting->lane->stream, waiting->event, 0));
    return NULL;
}

static void order(struct player *p, struct road *first, struct road *then) {
    CUevent event;
    pthread_t thread;

    enter(p, first);
    MUST(cuEventCreate(&event, draw(p, 2) ? CU_EVENT_DISABLE_TIMING : CU_EVENT_DEFAULT));
    MUST(cuEventRecord(event, first->stream));
    enter(p, then);
    if (then->owned && draw(p, 8) == 0) { /* another thread may say so */
        if (pthread_create(&thread, NULL, wait_elsewhere, &(struct waiting){p, then, event}))
            fail(p, "no thread");
        pthread_join(thread, NULL);
    } else {
        MUST(cuStreamWaitEvent(then->stream, event, 0));
    }
    MUST(cuEventDestroy_v2(event));
}

/* From one lane's memory to another's, in the order in which it stands here. */
static void across(struct player *p) {
    struct road *from = any_lane(p), *to = any_lane(p);
    size_t at, bytes;

    if (from == to || from->context != to->context)
        return;
    part(p, &at, &bytes);
    order(p, from, to);
    MUST(cuMemcpyDtoDAsync_v2(to->memory + at, from->memory + at, bytes, to->stream));
    memcpy(to->shadow + at, from->shadow + at, bytes);
    order(p, to, from);
}

static void marks(struct player *p) {
    struct road *lane = any_lane(p);
    int which = (int)draw(p, EVENTS), other = (int)draw(p, EVENTS);
    float milliseconds;

    if (lane->context != primary)
        return;
    enter(p, lane);
    switch (draw(p, 4)) {
    case 0:
    case 1:
        MUST(cuEventRecord(p->events[which], lane->stream));
        p->recorded[which] = true;
        break;
    case 2:
        let_go(p);
        MUST(cuEventSynchronize(p->events[which]));
        if (p->recorded[which] && p->recorded[other]) {
            MUST(cuEventSynchronize(p->events[other]));
            MUST(cuEventElapsedTime(&milliseconds, p->events[which], p->events[other]));
        }
        break;
    default: {
        CUresult result = cuEventQuery(p->events[which]);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
            fail(p, "cuEventQuery: %d", result);
    }
    }
}

static void host_functions(struct player *p) {
    struct road *lane = any_lane(p);

    enter(p, lane);
    call_host(p, lane, NULL, NULL);
}

/* ---- graphs ---- */

static void forget(struct player *p, struct graph *graph) {
    if (!graph->exec)
        return;
    if (draw(p, 2)) /* else its last launch may be under way */
        wait_for_all(p);
    if (graph->calls) { /* what it calls is here */
        let_go(p);
        enter(p, graph->lane);
        MUST(cuStreamSynchronize(graph->lane->stream));
        if (graph->begun != graph->launched)
            fail(p, "a graph called its function %u times, not %u", graph->begun, graph->launched);
    }
    enter(p, graph->lane);
    MUST(cuGraphExecDestroy(graph->exec));
    uint8_t *host = graph->host;
    *graph = (struct graph){.host = host};
}

static void make_graph(struct player *p, struct graph *graph) {
    struct road *lane = any_lane(p);
    CUgraph made;
    CUstream beside;
    CUdeviceptr kept;
    CUevent begun, ended;
    CUstreamCaptureMode mode = thread_count > 1 && draw(p, 2) ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                               : thread_count > 1             ? CU_STREAM_CAPTURE_MODE_RELAXED
                                                              : (CUstreamCaptureMode)draw(p, 3);

    if (lane->context != primary || !lane->owned)
        return;
    forget(p, graph);
    wait_for_all(p);
    enter(p, lane);
    MUST(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&begun, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventCreate(&ended, CU_EVENT_DISABLE_TIMING));
    *graph = (struct graph){.host = graph->host, .lane = lane, .value = (uint8_t)draw(p, 256)};
    part(p, &graph->at, &graph->bytes);
    graph->sets = draw(p, 4);
    bool keeps = draw(p, 3) == 0;
    graph->fetches = draw(p, 2);
    graph->calls = draw(p, 3) == 0;
    graph->pauses = graph->calls && draw(p, 2);
    bool forks = draw(p, 2);
    MUST(cuStreamBeginCapture_v2(lane->stream, mode));
    if (draw(p, 4) == 0) /* of whichever stream had it recorded last when the graph is launched */
        MUST(cuStreamWaitEvent(lane->stream, p->events[draw(p, EVENTS)], CU_EVENT_WAIT_EXTERNAL));
    if (forks) {
        MUST(cuEventRecord(begun, lane->stream));
        MUST(cuStreamWaitEvent(beside, begun, 0));
        kernel(p, beside, false);
    }
    for (uint64_t i = draw(p, 6); i; i--)
        kernel(p, lane->stream, false);
    if (graph->sets)
        MUST(cuMemsetD8Async(lane->memory + graph->at, graph->value, graph->bytes, lane->stream));
    if (keeps) { /* memory of the graph's own; the simulated card takes it back when the graph is launched */
        MUST(cuMemAllocAsync(&kept, graph->bytes, lane->stream));
        kernel(p, lane->stream, false);
        MUST(cuMemFreeAsync(kept, lane->stream));
    }
    if (graph->fetches)
        MUST(cuMemcpyDtoHAsync_v2(graph->host, lane->memory + graph->at, graph->bytes, lane->stream));
    if (graph->calls)
        MUST(cuLaunchHostFunc(lane->stream, called_by_graph, graph));
    kernel(p, lane->stream, false);
    if (forks) {
        kernel(p, beside, false);
        MUST(cuEventRecord(ended, beside));
        MUST(cuStreamWaitEvent(lane->stream, ended, 0));
    }
    MUST(cuStreamEndCapture(lane->stream, &made));
    MUST(cuGraphInstantiateWithFlags(&graph->exec, made, 0));
    MUST(cuGraphDestroy(made));
    MUST(cuEventDestroy_v2(begun));
    MUST(cuEventDestroy_v2(ended));
    MUST(cuStreamDestroy_v2(beside));
    if (draw(p, 4) == 0)
        MUST(cuGraphUpload(graph->exec, lane->stream));
}

static void graphs(struct player *p) {
    struct graph *graph = &p->graphs[draw(p, GRAPHS)];

    if (!graph->exec || draw(p, 25) == 0) {
        make_graph(p, graph);
        return;
    }
    enter(p, graph->lane);
    for (uint64_t i = 1 + draw(p, 4); i; i--) {
        graph->launched++;
        MUST(cuGraphLaunch(graph->exec, graph->lane->stream));
    }
    if (graph->pauses)
        p->standing++;
    if (graph->sets)
        memset(graph->lane->shadow + graph->at, graph->value, graph->bytes);
}

/* ---- what comes and goes ---- */

/* A pool's memory, which one stream writes and another reads, and frees. (What is freed in a stream's order the simulated card
 * takes back at once: it is written and read only where that is waited for.) */
static void pooled(struct player *p) {
    struct road *from = any_lane(p), *to = any_lane(p);
    CUdeviceptr pointer;
    size_t at, bytes;
    uint8_t value = (uint8_t)draw(p, 256);
    bool reads = draw(p, 3) == 0;

    if (from->context != primary || to->context != primary)
        return;
    part(p, &at, &bytes);
    enter(p, from);
    MUST(cuMemAllocFromPoolAsync(&pointer, bytes + draw(p, 4 << 20), p->pool, from->stream));
    if (reads)
        MUST(cuMemsetD8Async(pointer, value, bytes, from->stream));
    kernel(p, from->stream, false);
    if (from != to)
        order(p, from, to);
    kernel(p, to->stream, false);
    if (reads) {
        MUST(cuMemcpyDtoDAsync_v2(to->memory + at, pointer, bytes, to->stream));
        memset(to->shadow + at, value, bytes);
        let_go(p);
        MUST(cuStreamSynchronize(to->stream));
    }
    MUST(cuMemFreeAsync(pointer, to->stream));
    if (draw(p, 8) == 0)
        MUST(cuMemPoolTrimTo(p->pool, draw(p, 2) ? 0 : 1 << 20));
}

static void memory(struct player *p) {
    struct road *lane = any_lane(p);
    CUdeviceptr pointer;
    size_t bytes = 1 + draw(p, 8 << 20);

    enter(p, lane);
    switch (draw(p, 3)) {
    case 0:
        MUST(cuMemAllocAsync(&pointer, bytes, lane->stream));
        kernel(p, lane->stream, is_other(p, lane));
        MUST(cuMemFreeAsync(pointer, lane->stream));
        break;
    case 1:
        MUST(cuMemAlloc_v2(&pointer, bytes));
        let_go(p);
        MUST(cuMemFree_v2(pointer));
        break;
    default: {
        size_t free_bytes, total;
        MUST(cuMemGetInfo_v2(&free_bytes, &total));
    }
    }
}

/* A lane's stream goes with work in it, and a new one takes its place. */
static void streams(struct player *p) {
    struct road *lane = any_lane(p), behind = *lane;

    if (!lane->owned)
        return;
    for (int i = 0; i < GRAPHS; i++)
        if (p->graphs[i].exec && p->graphs[i].lane == lane)
            return;
    enter(p, lane);
    MUST(cuStreamCreateWithPriority(
        &lane->stream, draw(p, 2) || thread_count > 1 ? CU_STREAM_NON_BLOCKING : 0, draw(p, 2) ? 0 : -1));
    order(p, &behind, lane);
    MUST(cuStreamDestroy_v2(behind.stream));
}

static void contexts(struct player *p) {
    CUcontext popped;

    if (draw(p, 4) == 0) {
        MUST(cuCtxPushCurrent_v2(primary));
        kernel(p, draw(p, 2) ? everybodys : p->lanes[0].stream, false);
        MUST(cuCtxPopCurrent_v2(&popped));
    }
}

static void forks(struct player *p) {
    int status;

    if (draw(p, 20))
        return;
    pid_t child = fork();
    if (!child)
        _exit(7);
    if (child > 0 && (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7))
        fail(p, "a child ended with %d", status);
}

/* ---- another process ---- */

static uint32_t *words_of(int descriptor, CUdeviceptr *there) {
    const struct player *p = NULL;
    uint32_t *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);

    if (words == MAP_FAILED)
        fail(p, "no memory for the words");
    MUST(cuMemHostRegister_v2(words, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    MUST(cuMemHostGetDevicePointer_v2(there, words, 0));
    return words;
}

static _Noreturn void be_the_peer(int descriptor) {
    const struct player *p = NULL;
    struct player self = {.state = 1};
    CUmodule module;
    CUstream stream;
    CUdeviceptr there;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    MUST(cuCtxSetCurrent(primary));
    MUST(cuModuleLoadData(&module, PTX));
    MUST(cuModuleGetFunction(&spin, module, "gemini_spin"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    words_of(descriptor, &there);
    for (uint32_t round = 1;; round++) {
        MUST(cuStreamWaitValue32_v2(stream, there, round, CU_STREAM_WAIT_VALUE_GEQ));
        kernel(&self, stream, false);
        MUST(cuStreamWriteValue32_v2(stream, there + 4, round, 0));
        MUST(cuStreamSynchronize(stream));
    }
}

static void begin_the_peer(char *program) {
    const struct player *p = NULL;
    char number[16];
    int descriptor = memfd_create("words", 0);

    if (descriptor < 0 || ftruncate(descriptor, 4096))
        fail(p, "no file for the words");
    snprintf(number, sizeof number, "%d", descriptor);
    peer.process = fork();
    if (!peer.process) {
        execl(program, program, "peer", number, NULL);
        _exit(1);
    }
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    MUST(cuCtxSetCurrent(primary));
    peer.words = words_of(descriptor, &peer.there);
}

static void end_the_peer(void) {
    if (peer.process > 0) {
        kill(peer.process, SIGKILL);
        waitpid(peer.process, NULL, 0);
    }
}

/* One stream asks for a kernel there, another waits for it. */
static void meets(struct player *p) {
    struct road *asks = &p->lanes[1], *lane = any_lane(p);

    if (!peer.words || lane->context != primary)
        return;
    enter(p, asks);
    peer.asked++;
    MUST(cuStreamWriteValue32_v2(asks->stream, peer.there, peer.asked, 0));
    if (lane != asks)
        order(p, asks, lane);
    MUST(cuStreamWaitValue32_v2(lane->stream, peer.there + 4, peer.asked, CU_STREAM_WAIT_VALUE_GEQ));
}

static void (*const MOVES[])(struct player *p) = {kernels, kernels, kernels, kernels, kernels_in_everybodys, sets, sets,
    copies, copies, copies, across, across, marks, host_functions, pauses, pauses, graphs, graphs, memory, pooled,
    meets, streams, contexts, waits, waits, forks};

static void begin(struct player *p) {
    CUmodule module;

    MUST(cuCtxSetCurrent(primary));
    if (thread_count == 1 && seed % 3 == 0) {
        MUST(cuCtxCreate_v2(&p->other, 0, 0));
        MUST(cuModuleLoadData(&module, PTX));
        MUST(cuModuleGetFunction(&other_spin, module, "gemini_spin"));
    }
    MUST(cuCtxSetCurrent(primary));
    MUST(cuMemPoolCreate(&p->pool, &(CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}}));
    MUST(cuMemHostAlloc((void **)&p->pinned, (SLOTS + GRAPHS) * SLOT_BYTES, CU_MEMHOSTALLOC_PORTABLE));
    for (int i = 0; i < SLOTS; i++)
        p->slots[i].host = p->pinned + (size_t)i * SLOT_BYTES;
    for (int i = 0; i < GRAPHS; i++)
        p->graphs[i].host = p->pinned + (size_t)(SLOTS + i) * SLOT_BYTES;
    for (int i = 0; i < PAUSES; i++) {
        MUST(cuMemHostAlloc((void **)&p->pauses[i].word, 4096, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
        MUST(cuMemHostGetDevicePointer_v2(&p->pauses[i].there, p->pauses[i].word, 0));
    }
    for (int i = 0; i < EVENTS; i++)
        MUST(cuEventCreate(&p->events[i], CU_EVENT_DEFAULT));
    for (int i = 0; i < LANES; i++) {
        struct road *lane = &p->lanes[i];
        lane->context = p->other && i == LANES - 1 ? p->other : primary;
        enter(p, lane);
        if (i == 0 && draw(p, 2)) {
            lane->stream = thread_count == 1 && draw(p, 2) ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
        } else {
            lane->owned = true;
            MUST(cuStreamCreate(&lane->stream, draw(p, 2) || thread_count > 1 ? CU_STREAM_NON_BLOCKING : 0));
        }
        MUST(cuMemAlloc_v2(&lane->memory, BYTES));
        MUST(cuMemsetD8Async(lane->memory, 0, BYTES, lane->stream));
        MUST(cuStreamSynchronize(lane->stream));
    }
}

static void *play(void *argument) {
    struct player *p = argument;

    begin(p);
    pthread_barrier_wait(&meeting);
    for (p->step = 0; p->step < steps; p->step++) {
        MOVES[draw(p, sizeof MOVES / sizeof *MOVES)](p);
        progress[p->number] = p->step;
        if (p->standing && (++p->behind > BEHIND_MOST || draw(p, 12) == 0))
            let_go(p);
    }
    wait_for_all(p);
    for (int i = 0; i < LANES; i++)
        check_lane(p, &p->lanes[i]);
    for (int i = 0; i < GRAPHS; i++)
        forget(p, &p->graphs[i]);
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < BYTES; j++)
            p->hash = (p->hash ^ p->lanes[i].shadow[j]) * 0x9E3779B97F4A7C15ull;
    pthread_barrier_wait(&meeting);
    return NULL;
}

int main(int count, char **words) {
    static struct player players[THREADS_MAX];
    static uint64_t none[512];
    pthread_t threads[THREADS_MAX];
    const struct player *p = NULL;
    CUmodule module;

    if (count == 3 && !strcmp(words[1], "peer"))
        be_the_peer(atoi(words[2]));
    if (count < 4)
        return 2;
    seed = strtoull(words[1], NULL, 10);
    steps = strtoull(words[2], NULL, 10);
    thread_count = atoi(words[3]);
    thread_count = thread_count < 1 ? 1 : thread_count > THREADS_MAX ? THREADS_MAX : thread_count;
    progress = none;
    if (count > 4) {
        int file = open(words[4], O_RDWR | O_CREAT, 0600);
        if (file < 0 || ftruncate(file, 4096))
            return 2;
        progress = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    if (thread_count == 1 && seed % 4 == 3)
        begin_the_peer(words[0]);
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    MUST(cuCtxSetCurrent(primary));
    MUST(cuModuleLoadData(&module, PTX));
    MUST(cuModuleGetFunction(&spin, module, "gemini_spin"));
    MUST(cuStreamCreate(&everybodys, CU_STREAM_NON_BLOCKING));
    pthread_barrier_init(&meeting, NULL, (unsigned)thread_count);
    for (int i = 0; i < thread_count; i++) {
        players[i].number = i;
        players[i].state = (seed * 0x9E3779B97F4A7C15ull ^ (uint64_t)(i + 1) * 0xD6E8FEB86659FD93ull) | 1;
        pthread_create(&threads[i], NULL, play, &players[i]);
    }
    for (int i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
    end_the_peer();
    for (int i = 0; i < thread_count; i++)
        printf("%d %016llx\n", i, (unsigned long long)players[i].hash);
    return 0;
}
