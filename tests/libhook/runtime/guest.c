/*
 * guest.c - a program linked against libcuda, run under the preloaded library on the simulated driver.
 *
 *     guest threads                eight threads on legacy, per-thread and created streams, shared and own
 *     guest capture                one thread captures in global mode all the while, another launches
 *     guest warm                   launches, and more of the same captured on the same stream, which takes 150 ms
 *     guest allocate N             N bytes of memory, and then waits for a signal
 *     guest contexts               contexts made, used and destroyed with work in flight
 *     guest pauses                 kernels with a host function behind each that takes 150 ms
 *     guest sparse                 a kernel of 0.5 ms every 40 ms, and never a synchronisation
 *     guest sparse kernel          the same, of a kernel of a library instead of a function of a module
 *     guest lengths                one function and grid, of 20 us many times and of 5 ms some times, over and over
 *     guest lengths SHORT LONG     the same with so many of each, a million at most
 *     guest sight                  a function that was never seen, of 300 ms, and a known one behind it; prints whether the
 *                                  first was still at work (600) when the second was out
 *     guest ahead                  4000 kernels of 0.1 ms, launched without waiting for any; prints how often the thread slept
 *     guest behind own             work in the thread's own default stream, then nothing but a capture in a blocking stream
 *     guest behind legacy          a capture in a stream that blocks nobody; work in the legacy stream, then nothing
 *     guest behind same            work in a stream that another thread then captures
 *     guest held FILE [HOW]        eight kernels of 100 us, waited for, over and over; how many launches and how many waits
 *                                  returned stands in the file as two 64-bit words; ipc: it lets others wait for an event of its,
 *                                  late: from when work is held; own: in the per-thread stream; group: launched on a list of
 *                                  devices; closed: says what is refused where work is held that can never be let go;
 *                                  bare: the same without any descriptor; away: forty, and 3 ms on the host before it waits;
 *                                  grows: the same 100 times, then with kernels of 10 ms once, then with another function
 *     guest copies                 ten kernels of 20 us and 16 MB from the host in one stream, over and over
 *     guest leaves                 work in flight, and an exit() that takes 300 ms from when all handlers but one ran
 *     guest replays MILLISECONDS   one graph of a kernel of 50 us, over and over; prints how often
 *     guest updates MILLISECONDS   the same, updated before each launch
 *
 * SIGTERM ends those without a number, so that a test need not know how much is done within how long.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "libhook/driver/cuda_abi.h"

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        CUresult result = call;                                                                                        \
        if (result != CUDA_SUCCESS) {                                                                                  \
            fprintf(stderr, "%s: %d\n", #call, result);                                                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const char PTX[] = ".version 5.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry gemini_spin(.param .u64 gemini_spin_param_0) { ret; }\n";

static CUcontext context;
static CUfunction spin;
static uint64_t end_ns;
static CUstream shared;

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

static void pause_us(long us) {
    struct timespec duration = {.tv_nsec = us * 1000};
    nanosleep(&duration, NULL);
}

/* A function that nothing is known of. */
static void load(void) {
    CUmodule module;
    MUST(cuModuleLoadData(&module, PTX));
    MUST(cuModuleGetFunction(&spin, module, "gemini_spin"));
}

static CUresult launch(CUstream stream, uint64_t ns) {
    void *parameters[] = {&ns};
    return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static CUresult launch_own(uint64_t ns) {
    void *parameters[] = {&ns};
    return cuLaunchKernel_ptsz(spin, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

static void *one_of_eight(void *number) {
    long i = (long)(intptr_t)number;
    CUstream mine;

    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&mine, i & 1 ? CU_STREAM_NON_BLOCKING : 0));
    for (unsigned int n = 0; !told_to_end; n++) {
        uint64_t ns = 20000 + 5000 * (uint64_t)i;
        if (i % 4 == 0)
            MUST(launch(NULL, ns));
        else if (i % 4 == 1)
            MUST(launch_own(ns));
        else
            MUST(launch(i % 4 == 3 && n % 2 ? shared : mine, ns));
        if (i >= 4 && n % 16 == 15)
            pause_us(300 * i); /* away from the gate while it closes */
    }
    MUST(cuStreamDestroy_v2(mine));
    return NULL;
}

static int threads(void) {
    pthread_t thread[8];

    MUST(cuStreamCreate(&shared, 0));
    for (long i = 0; i < 8; i++)
        pthread_create(&thread[i], NULL, one_of_eight, (void *)i);
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    MUST(cuCtxSynchronize());
    return 0;
}

static void *captures(void *unused) {
    CUstream stream, joined;
    CUevent fork_event, join_event;
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0;

    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, 0));
    MUST(cuStreamCreate(&joined, 0));
    MUST(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    MUST(launch(joined, 10000)); /* real work on a stream that is about to join */
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(cuEventRecord(fork_event, stream));
    MUST(cuStreamWaitEvent(joined, fork_event, 0));
    size_t launched = 0;
    for (; !told_to_end; launched++) {
        MUST(launch(launched % 2 ? stream : joined, 1000));
        pause_us(1000);
    }
    MUST(cuEventRecord(join_event, joined));
    MUST(cuStreamWaitEvent(stream, join_event, 0));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphGetNodes(graph, NULL, &nodes));
    if (nodes != launched) { /* nothing of ours got in, nothing of theirs was lost */
        fprintf(stderr, "%zu nodes for %zu launches\n", nodes, launched);
        exit(1);
    }
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    return unused;
}

static int capture(void) {
    pthread_t thread;
    CUstream work;

    MUST(cuStreamCreate(&work, CU_STREAM_NON_BLOCKING));
    pthread_create(&thread, NULL, captures, NULL);
    while (!told_to_end)
        MUST(launch(work, 100000));
    pthread_join(thread, NULL);
    return 0;
}

static int warm(void) {
    CUstream stream;
    CUgraph graph;

    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!told_to_end) {
        for (int n = 0; n < 50; n++)
            MUST(launch(stream, 1000));
        MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (int n = 0; n < 3; n++)
            MUST(launch(stream, 1000));
        pause_us(150000);
        MUST(cuStreamEndCapture(stream, &graph));
        MUST(cuGraphDestroy(graph));
    }
    MUST(cuStreamSynchronize(stream));
    return 0;
}

static int allocate(size_t bytes) {
    CUdeviceptr pointer;

    MUST(cuMemAlloc_v2(&pointer, bytes));
    return pause();
}

static int contexts(void) {
    while (!told_to_end) {
        CUcontext own;
        CUstream stream;
        MUST(cuCtxCreate_v2(&own, 0, 0));
        load();
        MUST(cuStreamCreate(&stream, 0));
        for (int n = 0; n < 20; n++)
            MUST(launch(n % 2 ? stream : NULL, 50000));
        MUST(cuCtxDestroy_v2(own));
    }
    return 0;
}

static void take_a_while(void *unused) {
    (void)unused;
    pause_us(150000);
}

static int pauses(void) {
    CUstream stream;

    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!told_to_end) {
        MUST(launch(stream, 1000000));
        MUST(cuLaunchHostFunc(stream, take_a_while, NULL));
        pause_us(200000);
    }
    MUST(cuStreamSynchronize(stream));
    return 0;
}

static int sparse(bool of_library) {
    CUstream stream;
    CUlibrary library;
    CUkernel kernel;

    if (of_library) {
        MUST(cuLibraryLoadData(&library, PTX, NULL, NULL, 0, NULL, NULL, 0));
        MUST(cuLibraryGetKernel(&kernel, library, "gemini_spin"));
        spin = (CUfunction)kernel;
    }
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!told_to_end) {
        MUST(launch(stream, 500000));
        pause_us(40000);
    }
    MUST(cuStreamSynchronize(stream));
    return 0;
}

static bool launched;
static void *captures_behind(void *stream) {
    CUgraph graph;

    MUST(cuCtxSetCurrent(context));
    while (!__atomic_load_n(&launched, __ATOMIC_ACQUIRE))
        ;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(launch(stream, 1000));
    while (!told_to_end)
        pause_us(1000);
    MUST(cuStreamEndCapture(stream, &graph));
    return NULL;
}

/* What is launched is much of one kind, of which the last is not the last of a chunk: nothing of it has an event. */
/* As many blocks as the simulated card has multiprocessors: a persistent kernel, which has one grid for all sizes. */
static CUresult launch_blocks(CUstream stream, unsigned int blocks, uint64_t ns) {
    void *parameters[] = {&ns};
    return cuLaunchKernel(spin, blocks, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static int lengths(uint64_t brief, uint64_t lasting) {
    CUstream stream;

    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (uint64_t n = 0; !told_to_end; n++) {
        MUST(launch_blocks(stream, 132, n % (brief + lasting) < brief ? 20000 : 5000000));
        MUST(launch(stream, 1000));
    }
    MUST(cuStreamSynchronize(stream));
    return 0;
}

static int sight(void) {
    CUstream stream;

    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int n = 0; n < 100; n++)
        MUST(launch(stream, 1000));
    MUST(cuStreamSynchronize(stream));
    CUfunction known = spin;
    load();
    MUST(launch(stream, 300000000));
    spin = known;
    MUST(launch(stream, 1000));
    printf("%d\n", (int)cuStreamQuery(stream));
    MUST(cuStreamSynchronize(stream));
    return 0;
}

static int ahead(void) {
    struct rusage before, after;
    CUstream stream;

    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int n = 0; n < 100; n++)
        MUST(launch(stream, 100000));
    MUST(cuStreamSynchronize(stream));
    getrusage(RUSAGE_THREAD, &before);
    for (int n = 0; n < 4000; n++)
        MUST(launch(stream, 100000));
    getrusage(RUSAGE_THREAD, &after);
    printf("%ld\n", after.ru_nvcsw - before.ru_nvcsw);
    MUST(cuStreamSynchronize(stream));
    return 0;
}

static int behind(bool own, bool same) {
    pthread_t thread;
    CUstream stream;

    MUST(cuStreamCreate(&stream, own ? 0 : CU_STREAM_NON_BLOCKING));
    CUstream ours = same ? stream : NULL;
    for (int i = 0; i < 8; i++) {
        MUST(own ? launch_own(20000) : launch(ours, 20000));
        MUST(own ? cuStreamSynchronize_ptsz(NULL) : cuStreamSynchronize(ours));
    }
    launched = !own && !same;
    pthread_create(&thread, NULL, captures_behind, stream);
    if (!own && !same)
        pause_us(20000);
    for (int i = 0; i < 53; i++)
        MUST(own ? launch_own(20000) : launch(ours, 20000));
    __atomic_store_n(&launched, true, __ATOMIC_RELEASE);
    while (!told_to_end)
        pause_us(1000);
    pthread_join(thread, NULL);
    return 0;
}

static CUresult launch_group(CUstream stream, uint64_t ns) {
    void *parameters[] = {&ns};
    CUDA_LAUNCH_PARAMS one = {.function = spin,
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 1,
        .blockDimY = 1,
        .blockDimZ = 1,
        .hStream = stream,
        .kernelParams = parameters};

    return cuLaunchCooperativeKernelMultiDevice(&one, 1, 0);
}

/* Of 0.8 ms of work; the gate is closed for 100 ms. */
static bool is_held(CUstream stream) {
    pause_us(20000);
    return cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
}

static void nothing(void *data) {
    (void)data;
}

/* What is held can never be let go, for there will be no socket. Says so in the file, and then what calls answer. */
static int say_what_is_refused(CUstream stream, uint64_t *counts, rlim_t descriptors) {
    struct rlimit few = {descriptors, descriptors};

    if (setrlimit(RLIMIT_NOFILE, &few))
        return 1;
    __atomic_store_n(&counts[0], UINT64_MAX, __ATOMIC_SEQ_CST);
    CUresult host = cuLaunchHostFunc(stream, nothing, NULL);
    CUresult capture = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUresult end = cuDevicePrimaryCtxReset_v2(0);
    printf("%d %d %d\n", host, capture, end);
    fflush(stdout);
    _exit(0); /* the driver's own end would wait for what is held */
}

static int held(const char *path, const char *how) {
    enum { GROWN = 100 };
    bool own = !strcmp(how, "own");
    CUstream stream = NULL;
    bool late = !strcmp(how, "late"), bare = !strcmp(how, "bare"), closed = bare || !strcmp(how, "closed");
    CUipcEventHandle handle;
    CUevent event;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, 16))
        return 1;
    uint64_t *counts = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (counts == MAP_FAILED)
        return 1;
    if (!own)
        MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (!strcmp(how, "ipc")) {
        MUST(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
        MUST(cuIpcGetEventHandle(&handle, event));
    }
    bool grows = !strcmp(how, "grows"), away = grows || !strcmp(how, "away");
    while (!told_to_end) {
        uint64_t round = counts[1] % (GROWN + 1), ns = grows && round == GROWN ? 10000000 : 100000;
        if (grows && !round)
            load();
        for (int i = 0; i < (away ? 40 : 8); i++) {
            MUST(own ? launch_own(ns) : !strcmp(how, "group") ? launch_group(stream, ns) : launch(stream, ns));
            __atomic_add_fetch(&counts[0], 1, __ATOMIC_SEQ_CST);
        }
        if (away)
            pause_us(3000);
        if ((late || closed) && is_held(stream)) {
            if (closed)
                return say_what_is_refused(stream, counts, bare ? 0 : 3);
            uint64_t before_ns = now_ns();
            MUST(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
            MUST(cuIpcGetEventHandle(&handle, event));
            printf("%llu %llu\n", (unsigned long long)before_ns, (unsigned long long)now_ns());
            return 0;
        }
        MUST(own ? cuStreamSynchronize_ptsz(NULL) : cuStreamSynchronize(stream));
        __atomic_add_fetch(&counts[1], 1, __ATOMIC_SEQ_CST);
    }
    return 0;
}

static int copies(void) {
    const size_t bytes = 16 << 20;
    CUstream stream;
    CUdeviceptr here;
    void *there;

    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc_v2(&here, bytes));
    MUST(cuMemHostAlloc(&there, bytes, 0));
    for (int n = 0; !told_to_end; n++) {
        MUST(cuMemcpyHtoDAsync_v2(here, there, bytes, stream));
        for (int k = 0; k < 10; k++)
            MUST(launch(stream, 20000));
        if (n % 8 == 7)
            MUST(cuStreamSynchronize(stream));
    }
    MUST(cuStreamSynchronize(stream));
    return 0;
}

static void linger(void) {
    pause_us(300000);
}

static int leaves(void) {
    CUstream stream;

    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(launch(stream, 100000000));
    exit(0);
}

static int graphs(bool updated) {
    uint64_t ns = 50000;
    void *parameters[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = spin,
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 1,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = parameters};
    CUgraphExecUpdateResultInfo info;
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUstream stream;
    int launches = 0;

    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &kernel));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (; now_ns() < end_ns; launches++) {
        if (updated)
            MUST(cuGraphExecUpdate_v2(exec, graph, &info));
        MUST(cuGraphLaunch(exec, stream));
    }
    MUST(cuStreamSynchronize(stream));
    printf("%d\n", launches);
    return 0;
}

int main(int count, char **argument) {
    if (count < 2)
        return 2;
    signal(SIGTERM, end_it);
    if (!strcmp(argument[1], "leaves"))
        atexit(linger); /* before the driver's own, so it runs after that */
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    load();
    end_ns = now_ns() + (count > 2 ? strtoull(argument[2], NULL, 10) * 1000000 : 0);
    int status =
        !strcmp(argument[1], "threads")                 ? threads()
        : !strcmp(argument[1], "capture")               ? capture()
        : !strcmp(argument[1], "warm")                  ? warm()
        : !strcmp(argument[1], "allocate") && count > 2 ? allocate((size_t)atoi(argument[2]))
        : !strcmp(argument[1], "contexts")              ? contexts()
        : !strcmp(argument[1], "pauses")                ? pauses()
        : !strcmp(argument[1], "sparse")                ? sparse(count > 2)
        : !strcmp(argument[1], "lengths")
            ? count > 3 ? lengths(strtoull(argument[2], NULL, 10), strtoull(argument[3], NULL, 10)) : lengths(20, 20)
        : !strcmp(argument[1], "sight") ? sight()
        : !strcmp(argument[1], "ahead") ? ahead()
        : !strcmp(argument[1], "behind") && count > 2
            ? behind(!strcmp(argument[2], "own"), !strcmp(argument[2], "same"))
        : !strcmp(argument[1], "held") && count > 2 ? held(argument[2], count > 3 ? argument[3] : "")
        : !strcmp(argument[1], "copies")            ? copies()
        : !strcmp(argument[1], "leaves")            ? leaves()
        : !strcmp(argument[1], "replays")           ? graphs(false)
        : !strcmp(argument[1], "updates")           ? graphs(true)
                                                    : 2;
    pause_us(20000); /* the last Return is sent */
    return status;
}
