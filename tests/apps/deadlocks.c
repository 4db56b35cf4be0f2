/*
 * deadlocks.c - programs whose work waits for work that is not launched yet; a gate that lets go only what has drained
 * would hold them for ever. Each goes round until SIGTERM and prints how often it did.
 *
 *     deadlocks collective              a collective over two GPUs, launched on the one, then on the other
 *     deadlocks waits FILE              waits in its stream for a value in FILE, launches, writes one there ...
 *     deadlocks writes FILE             ... which this other process waits for, having launched and written first
 *     deadlocks capture global|thread|relaxed   captures all the while, and launches beside it
 *     deadlocks together                one call that launches on both GPUs
 *     deadlocks elsewhere               kernels in a stream of the second GPU, while the first is current
 *     deadlocks later HOW N             a stream waits for the host, N kernels of 0.1 ms behind that, launched in two goes
 *                                       15 ms apart; then the host lets it go, and waits for the end. HOW is value, host,
 *                                       or node or captured: the same in a graph, made eleven seconds before; or crowd: ... and
 *                                       a thousand others were made since, and have ended
 *     deadlocks between HOW             a kernel of 1 ms, a wait for the host behind it, and two kernels behind that, launched
 *                                       15 ms apart; then the host lets it go, and waits for the end. HOW is host, value,
 *                                       or event: of another stream, which waits for the host; or none: without the wait.
 *                                       thread: as event, but another thread puts the wait into the stream; graph: the event is
 *                                       waited for in a graph; legacy: the kernels are in the legacy stream, and a blocking one
 *                                       waits for the host; behind: ... in a blocking one, and the legacy one waits for the event
 *     deadlocks stands                  a stream waits for the host, for as long as this runs, a kernel behind that; work
 *                                       goes on in another
 *     deadlocks behind                  eight streams wait for the host, a kernel behind each, and work goes on in another;
 *                                       at SIGTERM as many kernels are launched behind these as are let in within three
 *                                       seconds; prints for how many ms they have, and how many ms of work
 *                                       are there then, before it lets all of them go
 *     deadlocks long HOW                does not wait for its host, but for a moment: HOW is plain: a kernel of 6 s, and so on;
 *                                       or host: a host function that returns at once stands before each; or graphs: in eight
 *                                       streams in turn a graph of such a host function and a kernel of 60 ms
 *     deadlocks endless                 a kernel that does not end (within an hour); does not end either
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "libhook/driver/cuda_abi.h"

#define KERNEL_NS 1000000

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        CUresult result = call;                                                                                        \
        if (result != CUDA_SUCCESS) {                                                                                  \
            fprintf(stderr, "%s: %d\n", #call, result);                                                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const char PTX[] = ".version 5.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry gemini_spin(.param .u64 nanoseconds) { ret; }\n"
                          ".visible .entry gemini_collective(.param .u64 nanoseconds, .param .u64 group, "
                          ".param .u32 peers) { ret; }\n";

static CUcontext context[2];
static CUfunction spin[2], collective[2];
static volatile sig_atomic_t told_to_end;

static void end_it(int signal) {
    (void)signal;
    told_to_end = 1;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void open_device(int device) {
    CUmodule module;

    MUST(cuDevicePrimaryCtxRetain(&context[device], device));
    MUST(cuCtxSetCurrent(context[device]));
    MUST(cuModuleLoadData(&module, PTX));
    MUST(cuModuleGetFunction(&spin[device], module, "gemini_spin"));
    MUST(cuModuleGetFunction(&collective[device], module, "gemini_collective"));
}

static void launch(CUstream stream, uint64_t ns) {
    void *parameters[] = {&ns};
    MUST(cuLaunchKernel(spin[0], 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static long collectives(void) {
    long rounds = 0;

    open_device(1);
    for (; !told_to_end; rounds++) {
        uint64_t ns = KERNEL_NS, group = (uint64_t)getpid() << 32 | (uint64_t)(rounds + 1);
        uint32_t peers = 2;
        void *parameters[] = {&ns, &group, &peers};
        for (int device = 0; device < 2; device++) {
            MUST(cuCtxSetCurrent(context[device]));
            MUST(cuLaunchKernel(collective[device], 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
        }
        for (int device = 0; device < 2; device++) {
            MUST(cuCtxSetCurrent(context[device]));
            MUST(cuCtxSynchronize());
        }
    }
    return rounds;
}

/* FILE is two words: what `writes` has written, and what `waits` has. */
static long in_turns(const char *file, bool waits) {
    int fd = open(file, O_RDWR);
    uint32_t *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CUdeviceptr there;
    CUstream stream;
    uint32_t rounds = 0;

    MUST(cuMemHostRegister_v2(words, 4096, 0));
    MUST(cuMemHostGetDevicePointer_v2(&there, words, 0));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!told_to_end) {
        rounds++;
        if (waits)
            MUST(cuStreamWaitValue32_v2(stream, there, rounds, CU_STREAM_WAIT_VALUE_GEQ));
        launch(stream, KERNEL_NS);
        MUST(cuStreamWriteValue32_v2(stream, waits ? there + 4 : there, rounds, 0));
        if (!waits)
            MUST(cuStreamWaitValue32_v2(stream, there + 4, rounds, CU_STREAM_WAIT_VALUE_GEQ));
        MUST(cuStreamSynchronize(stream));
    }
    words[waits ? 1 : 0] = UINT32_MAX / 4; /* the other one may be one round ahead */
    return rounds;
}

static long together(void) {
    CUDA_LAUNCH_PARAMS list[2];
    uint64_t ns = KERNEL_NS;
    void *parameters[] = {&ns};
    long rounds = 0;

    open_device(1);
    for (int device = 0; device < 2; device++) {
        list[device] = (CUDA_LAUNCH_PARAMS){spin[device], 1, 1, 1, 1, 1, 1, 0, NULL, parameters};
        MUST(cuCtxSetCurrent(context[device]));
        MUST(cuStreamCreate(&list[device].hStream, CU_STREAM_NON_BLOCKING));
    }
    for (; !told_to_end; rounds++) {
        MUST(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
        for (int device = 0; device < 2; device++) {
            MUST(cuCtxSetCurrent(context[device]));
            MUST(cuStreamSynchronize(list[device].hStream));
        }
    }
    return rounds;
}

static long elsewhere(void) {
    uint64_t ns = KERNEL_NS;
    void *parameters[] = {&ns};
    CUstream stream;
    long rounds = 0;

    open_device(1);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuCtxSetCurrent(context[0]));
    for (; !told_to_end; rounds++) {
        MUST(cuLaunchKernel(spin[1], 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
        MUST(cuStreamSynchronize(stream));
    }
    return rounds;
}

static long stands(void) {
    uint32_t *word;
    CUdeviceptr there;
    CUstream waiting, other;
    long rounds = 0;

    MUST(cuMemHostAlloc((void **)&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    MUST(cuMemHostGetDevicePointer_v2(&there, word, 0));
    MUST(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamWaitValue32_v2(waiting, there, 1, CU_STREAM_WAIT_VALUE_GEQ));
    launch(waiting, KERNEL_NS);
    for (; !told_to_end; rounds++) {
        for (int i = 0; i < 20; i++)
            launch(other, KERNEL_NS / 10);
        MUST(cuStreamSynchronize(other));
    }
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    MUST(cuStreamSynchronize(waiting));
    return rounds;
}

#define BEHIND 8
#define BEHIND_NS 10000000ull

static uint64_t behind_since_ns;
static uint32_t *behind_word;
static atomic_long behind_launched;

static void *let_all_go(void *nothing) {
    nanosleep(&(struct timespec){.tv_sec = 3}, NULL);
    printf("%lld %lld ", (long long)((now_ns() - behind_since_ns) / 1000000),
        (long long)(atomic_load(&behind_launched) * (long)(BEHIND_NS / 1000000)));
    __atomic_store_n(behind_word, 1, __ATOMIC_SEQ_CST);
    return nothing;
}

static long behind(void) {
    uint64_t ns = BEHIND_NS;
    void *parameters[] = {&ns};
    CUdeviceptr there;
    CUstream waiting[BEHIND], other;
    pthread_t thread;
    long rounds = 0;

    MUST(cuMemHostAlloc((void **)&behind_word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    MUST(cuMemHostGetDevicePointer_v2(&there, behind_word, 0));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 40; i++) { /* so that the library knows how long they take */
        MUST(cuLaunchKernel(spin[0], 2, 1, 1, 1, 1, 1, 0, other, parameters, NULL));
        MUST(cuStreamSynchronize(other));
    }
    behind_since_ns = now_ns();
    for (int i = 0; i < BEHIND; i++) {
        MUST(cuStreamCreate(&waiting[i], CU_STREAM_NON_BLOCKING));
        MUST(cuStreamWaitValue32_v2(waiting[i], there, 1, CU_STREAM_WAIT_VALUE_GEQ));
        launch(waiting[i], KERNEL_NS);
    }
    for (; !told_to_end; rounds++) {
        launch(other, KERNEL_NS / 10);
        MUST(cuStreamSynchronize(other));
    }
    pthread_create(&thread, NULL, let_all_go, NULL);
    for (int i = 0; !__atomic_load_n(behind_word, __ATOMIC_SEQ_CST) && i < 60 * BEHIND; i++) {
        MUST(cuLaunchKernel(spin[0], 2, 1, 1, 1, 1, 1, 0, waiting[i % BEHIND], parameters, NULL));
        atomic_fetch_add(&behind_launched, 1);
    }
    pthread_join(thread, NULL);
    MUST(cuCtxSynchronize());
    return rounds;
}

static uint32_t let_go; /* the newest round that the host has let go; atomic */

static void wait_until_let_go(void *round) {
    while (__atomic_load_n(&let_go, __ATOMIC_SEQ_CST) < (uint32_t)(uintptr_t)round)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* A graph that waits for the host: for the round that `let` counts, or for the word. */
static uint32_t graphs_begun;

static void wait_for_the_next(void *nothing) {
    (void)nothing;
    wait_until_let_go((void *)(uintptr_t)++graphs_begun);
}

static void graphs_come_and_go(void) {
    enum { CROWD = 1000 };
    CUgraph graph;
    CUgraphNode node;
    static CUgraphExec exec[CROWD];

    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    for (int i = 0; i < CROWD; i++)
        MUST(cuGraphInstantiateWithFlags(&exec[i], graph, 0));
    for (int i = 0; i < CROWD; i++)
        MUST(cuGraphExecDestroy(exec[i]));
    MUST(cuGraphDestroy(graph));
}

static CUgraphExec pausing_graph(const char *how) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUstream stream;

    bool captured = !strcmp(how, "captured") || !strcmp(how, "crowd");

    if (captured) {
        MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        MUST(cuLaunchHostFunc(stream, wait_for_the_next, NULL));
        MUST(cuStreamEndCapture(stream, &graph));
    } else {
        CUDA_HOST_NODE_PARAMS host = {.fn = wait_for_the_next};
        CUgraph inner;
        MUST(cuGraphCreate(&graph, 0));
        MUST(cuGraphCreate(&inner, 0));
        MUST(cuGraphAddHostNode(&node, inner, NULL, 0, &host));
        MUST(cuGraphAddChildGraphNode(&node, graph, NULL, 0, inner));
        MUST(cuGraphDestroy(inner));
    }
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphDestroy(graph));
    if (!strcmp(how, "crowd"))
        graphs_come_and_go();
    if (captured) /* what was put into a stream is remembered for ten seconds */
        nanosleep(&(struct timespec){.tv_sec = 11}, NULL);
    return exec;
}

static long later(const char *how, int count) {
    bool host = !strcmp(how, "host"), value = !strcmp(how, "value");
    CUgraphExec exec = host || value ? NULL : pausing_graph(how);

    CUdeviceptr there;
    CUstream stream;
    uint32_t rounds = 0;
    static _Alignas(4096) uint32_t word[1024];

    MUST(cuMemHostRegister_v2(word, sizeof word, 0));
    MUST(cuMemHostGetDevicePointer_v2(&there, word, 0));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!told_to_end) {
        rounds++;
        if (exec)
            MUST(cuGraphLaunch(exec, stream));
        else if (host)
            MUST(cuLaunchHostFunc(stream, wait_until_let_go, (void *)(uintptr_t)rounds));
        else
            MUST(cuStreamWaitValue32_v2(stream, there, rounds, CU_STREAM_WAIT_VALUE_GEQ));
        for (int i = 0; i < count; i++) {
            if (i == count / 2)
                nanosleep(&(struct timespec){.tv_nsec = 15000000}, NULL);
            launch(stream, 100000);
        }
        __atomic_store_n(&let_go, rounds, __ATOMIC_SEQ_CST);
        __atomic_store_n(word, rounds, __ATOMIC_SEQ_CST);
        MUST(cuStreamSynchronize(stream));
    }
    return rounds;
}

/* Of one grid the library knows one length. */
static void launch_grid(CUstream stream, unsigned grid) {
    uint64_t ns = KERNEL_NS;
    void *parameters[] = {&ns};

    MUST(cuLaunchKernel(spin[0], grid, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static CUstream between_stream;
static CUevent between_event;

static void *waits_for_the_event(void *nothing) {
    MUST(cuCtxSetCurrent(context[0]));
    MUST(cuStreamWaitEvent(between_stream, between_event, 0));
    return nothing;
}

static CUgraphExec graph_that_waits_for_the_event(void) {
    CUgraph graph;
    CUgraphExec exec;

    MUST(cuStreamBeginCapture_v2(between_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(cuStreamWaitEvent(between_stream, between_event, CU_EVENT_WAIT_EXTERNAL));
    launch_grid(between_stream, 2);
    MUST(cuStreamEndCapture(between_stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphDestroy(graph));
    return exec;
}

static long between(const char *how) {
    bool host = !strcmp(how, "host"), value = !strcmp(how, "value"), legacy = !strcmp(how, "legacy");
    bool behind = !strcmp(how, "behind"), thread = !strcmp(how, "thread"), graph = !strcmp(how, "graph");
    bool event = !strcmp(how, "event") || thread || graph || behind;
    CUdeviceptr there;
    CUstream other;
    CUgraphExec exec = NULL;
    pthread_t helper;
    uint32_t rounds = 0;
    static _Alignas(4096) uint32_t word[1024];

    MUST(cuMemHostRegister_v2(word, sizeof word, 0));
    MUST(cuMemHostGetDevicePointer_v2(&there, word, 0));
    between_stream = CU_STREAM_LEGACY;
    if (!legacy)
        MUST(cuStreamCreate(&between_stream, behind ? 0 : CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&other, legacy ? 0 : CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&between_event, CU_EVENT_DISABLE_TIMING));
    if (graph)
        exec = graph_that_waits_for_the_event();
    while (!told_to_end) {
        rounds++;
        launch_grid(between_stream, 1);
        if (host || legacy)
            MUST(cuLaunchHostFunc(legacy ? other : between_stream, wait_until_let_go, (void *)(uintptr_t)rounds));
        else if (value || event)
            MUST(cuStreamWaitValue32_v2(event ? other : between_stream, there, rounds, CU_STREAM_WAIT_VALUE_GEQ));
        if (event)
            MUST(cuEventRecord(between_event, other));
        if (thread) {
            pthread_create(&helper, NULL, waits_for_the_event, NULL);
            pthread_join(helper, NULL);
        } else if (event && !graph) {
            MUST(cuStreamWaitEvent(behind ? CU_STREAM_LEGACY : between_stream, between_event, 0));
        }
        if (graph)
            MUST(cuGraphLaunch(exec, between_stream));
        else
            launch_grid(between_stream, 2);
        nanosleep(&(struct timespec){.tv_nsec = 15000000}, NULL);
        launch_grid(between_stream, 3);
        __atomic_store_n(&let_go, rounds, __ATOMIC_SEQ_CST);
        __atomic_store_n(word, rounds, __ATOMIC_SEQ_CST);
        MUST(cuStreamSynchronize(between_stream));
    }
    return rounds;
}

static void returns_at_once(void *nothing) {
    (void)nothing;
}

static long long_graphs(void) {
    enum { STREAMS = 8 };
    uint64_t ns = 60ull * KERNEL_NS;
    void *parameters[] = {&ns};
    CUDA_HOST_NODE_PARAMS host = {.fn = returns_at_once};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = spin[0],
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 1,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = parameters};
    CUgraph graph;
    CUgraphNode first, second;
    CUgraphExec exec[STREAMS];
    CUstream stream[STREAMS];
    long rounds = 0;

    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddHostNode(&first, graph, NULL, 0, &host));
    MUST(cuGraphAddKernelNode_v2(&second, graph, &first, 1, &kernel));
    for (int i = 0; i < STREAMS; i++) {
        MUST(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
        MUST(cuGraphInstantiateWithFlags(&exec[i], graph, 0));
    }
    for (; !told_to_end; rounds++)
        MUST(cuGraphLaunch(exec[rounds % STREAMS], stream[rounds % STREAMS]));
    return rounds;
}

static long long_kernels(bool behind_host) {
    CUstream stream;
    long rounds = 0;

    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (; !told_to_end; rounds++) {
        if (behind_host)
            MUST(cuLaunchHostFunc(stream, returns_at_once, NULL));
        launch(stream, 6000ull * KERNEL_NS);
        MUST(cuStreamSynchronize(stream));
    }
    return rounds;
}

static long long_ones(const char *how) {
    return !strcmp(how, "graphs") ? long_graphs() : long_kernels(!strcmp(how, "host"));
}

static long endless(void) {
    launch(NULL, 3600ull * 1000000000);
    MUST(cuCtxSynchronize());
    return 1;
}

static CUstreamCaptureMode mode;

static void *captures(void *count) {
    CUstream stream;

    MUST(cuCtxSetCurrent(context[0]));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!told_to_end) {
        CUgraph graph;
        CUgraphExec exec;
        size_t nodes = 0, launched = 0;
        uint64_t until_ns = now_ns() + 50000000;
        MUST(cuStreamBeginCapture_v2(stream, mode));
        for (; now_ns() < until_ns; launched++) {
            launch(stream, 20000);
            nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
        }
        MUST(cuStreamEndCapture(stream, &graph));
        MUST(cuGraphGetNodes(graph, NULL, &nodes));
        if (nodes != launched) {
            fprintf(stderr, "%zu nodes for %zu launches\n", nodes, launched);
            exit(1);
        }
        MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
        MUST(cuGraphLaunch(exec, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuGraphExecDestroy(exec));
        MUST(cuGraphDestroy(graph));
        ++*(long *)count;
    }
    return NULL;
}

static long capturing(const char *name) {
    pthread_t thread;
    CUstream work;
    long count = 0;

    mode = !strcmp(name, "global")   ? CU_STREAM_CAPTURE_MODE_GLOBAL
           : !strcmp(name, "thread") ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                                     : CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cuStreamCreate(&work, CU_STREAM_NON_BLOCKING));
    pthread_create(&thread, NULL, captures, &count);
    while (!told_to_end)
        launch(work, 100000);
    pthread_join(thread, NULL);
    return count;
}

int main(int count, char **argument) {
    if (count < 2)
        return 2;
    signal(SIGTERM, end_it);
    MUST(cuInit(0));
    open_device(0);
    const char *what = argument[1];
    long rounds = !strcmp(what, "collective")  ? collectives()
                  : !strcmp(what, "together")  ? together()
                  : !strcmp(what, "elsewhere") ? elsewhere()
                  : !strcmp(what, "stands")    ? stands()
                  : !strcmp(what, "behind")    ? behind()
                  : !strcmp(what, "endless")   ? endless()
                  : !strcmp(what, "long")      ? long_ones(argument[2])
                  : !strcmp(what, "between")   ? between(argument[2])
                  : !strcmp(what, "later")     ? later(argument[2], atoi(argument[3]))
                  : !strcmp(what, "waits")     ? in_turns(argument[2], true)
                  : !strcmp(what, "writes")    ? in_turns(argument[2], false)
                                               : capturing(argument[2]);
    printf("%ld\n", rounds);
    return 0;
}
