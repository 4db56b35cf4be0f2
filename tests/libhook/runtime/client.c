/*
 * client.c - a process that launches through the real gate and agent, on a driver of a hundred lines.
 *
 * The driver here is one device that runs everything in order: enough to see when work ran and which calls were made,
 * and it enforces the rules of stream capture that matter to us. Linked with the library's own sources (all but
 * the driver/ folder and most of hooks/, whose symbols stand here). A scenario is named on the command line; each interval of
 * work goes to the file in CLIENT_TIMELINE as two 64-bit words, with its thread in a third. SIGTERM ends those that last,
 * so that a test need not know how much is done within how long.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libhook/driver/real.h"
#include "libhook/driver/real_nvml.h"
#include "libhook/hooks/load.h"
#include "libhook/hooks/memory.h"
#include "libhook/runtime/agent.h"
#include "libhook/runtime/agent_memory.h"
#include "libhook/runtime/context.h"
#include "libhook/runtime/gate.h"

/* ---- the driver ---- */

struct event {
    uint64_t at_ns;
};

#define STREAMS 64
struct stream {
    uint64_t end_ns;
    int capturing; /* 0, 1, 2: broken */
    CUstreamCaptureMode mode;
    bool destroyed;
};

static pthread_mutex_t device = PTHREAD_MUTEX_INITIALIZER;
static uint64_t device_end_ns;
static struct stream legacy, streams[STREAMS];
static int stream_count;
static __thread struct stream own;
static struct stream *owns[STREAMS]; /* the threads' own streams */
static int own_count;
static __thread bool own_known;
static __thread CUstreamCaptureMode thread_mode;
static int global_captures;
static int syncs;
static int timeline = -1;

static struct stream *at(CUstream stream) {
    if (stream == CU_STREAM_LEGACY || !stream)
        return &legacy;
    if (stream != CU_STREAM_PER_THREAD)
        return (struct stream *)stream;
    if (!own_known) {
        own_known = true;
        owns[own_count++] = &own;
    }
    return &own;
}

static void unsafe_call(void) { /* under the lock */
    if (!global_captures || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return;
    for (int i = 0; i < stream_count; i++)
        if (streams[i].capturing)
            streams[i].capturing = 2;
}

static uint64_t ready_ns(struct stream *stream) { /* when what precedes a new item on this stream is over */
    uint64_t ns = stream->end_ns > legacy.end_ns ? stream->end_ns : legacy.end_ns;
    if (stream == &legacy) {
        for (int i = 0; i < stream_count; i++)
            ns = streams[i].end_ns > ns ? streams[i].end_ns : ns;
        for (int i = 0; i < own_count; i++)
            ns = owns[i]->end_ns > ns ? owns[i]->end_ns : ns;
    }
    return ns;
}

static CUresult fake_launch(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
    unsigned int by, unsigned int bz, unsigned int shared, CUstream handle, void **parameters, void **extra) {
    (void)function, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)parameters, (void)extra;
    pthread_mutex_lock(&device);
    struct stream *stream = at(handle);
    if (stream->capturing) {
        pthread_mutex_unlock(&device);
        return stream->capturing == 1 ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    uint64_t start_ns = gate_now(), before_ns = ready_ns(stream);
    start_ns = before_ns > start_ns ? before_ns : start_ns;
    start_ns = device_end_ns > start_ns ? device_end_ns : start_ns;
    /* The grid's width is the kernel's length in nanoseconds; or the shared memory, which is no part of its name. */
    stream->end_ns = device_end_ns = start_ns + (shared ? shared : gx);
    uint64_t entry[3] = {start_ns, device_end_ns, (uint64_t)gettid()};
    pthread_mutex_unlock(&device);
    if (timeline >= 0 && write(timeline, entry, sizeof entry) != sizeof entry)
        return CUDA_ERROR_UNKNOWN;
    return CUDA_SUCCESS;
}

/* No word of this driver's can be waited for: launches wait at the closed gate. */
static CUresult fake_host_register(void *pointer, size_t bytes, unsigned int flags) {
    (void)pointer, (void)bytes, (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult fake_event_create(CUevent *event, unsigned int flags) {
    (void)flags;
    *event = calloc(1, sizeof(struct event));
    return CUDA_SUCCESS;
}

static CUresult fake_event_record(CUevent handle, CUstream stream_handle) {
    pthread_mutex_lock(&device);
    struct stream *stream = at(stream_handle);
    CUresult result = CUDA_SUCCESS;
    if (stream->destroyed)
        abort(); /* the real driver would crash */
    if (stream == &legacy && global_captures) {
        for (int i = 0; i < stream_count; i++)
            if (streams[i].capturing)
                streams[i].capturing = 2;
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    } else if (stream->capturing) {
        stream->capturing = 2; /* not so in the real driver; but nothing of ours may get into a capture */
    } else {
        uint64_t now_ns = gate_now(), before_ns = ready_ns(stream);
        ((struct event *)handle)->at_ns = before_ns > now_ns ? before_ns : now_ns;
    }
    pthread_mutex_unlock(&device);
    return result;
}

static int standstill; /* each such query of work that is not over finds its thread stopped until it is; 0: none */

static CUresult fake_event_query(CUevent handle) {
    static int unfinished;

    pthread_mutex_lock(&device);
    unsafe_call();
    uint64_t at_ns = ((struct event *)handle)->at_ns, now_ns = gate_now();
    bool stands = standstill && at_ns > now_ns && ++unfinished % standstill == 0;
    pthread_mutex_unlock(&device);
    if (stands)
        nanosleep(&(struct timespec){.tv_nsec = (long)((at_ns - now_ns) % 1000000000)}, NULL);
    return gate_now() >= at_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult fake_event_elapsed(float *milliseconds, CUevent start, CUevent end) {
    int64_t ns = (int64_t)(((struct event *)end)->at_ns - ((struct event *)start)->at_ns);
    *milliseconds = (float)((double)ns * 1e-6);
    return CUDA_SUCCESS;
}

static CUresult fake_stream_synchronize(CUstream handle) {
    uint64_t end_ns = ready_ns(at(handle)), now_ns;
    syncs++;
    while ((now_ns = gate_now()) < end_ns) {
        struct timespec left = {.tv_nsec = (long)((end_ns - now_ns) % 1000000000)};
        nanosleep(&left, NULL);
    }
    return CUDA_SUCCESS;
}

static CUresult fake_is_capturing(CUstream handle, CUstreamCaptureStatus *status) {
    if (handle == CU_STREAM_LEGACY && global_captures)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = (CUstreamCaptureStatus)at(handle)->capturing;
    return CUDA_SUCCESS;
}

static CUresult fake_begin_capture(CUstream handle, CUstreamCaptureMode mode) {
    pthread_mutex_lock(&device);
    at(handle)->capturing = 1;
    at(handle)->mode = mode;
    global_captures += mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    pthread_mutex_unlock(&device);
    return CUDA_SUCCESS;
}

static CUresult fake_end_capture(CUstream handle, CUgraph *graph) {
    pthread_mutex_lock(&device);
    int was = at(handle)->capturing;
    at(handle)->capturing = 0;
    global_captures -= at(handle)->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    pthread_mutex_unlock(&device);
    *graph = NULL;
    return was == 1 ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

static CUresult fake_exchange_mode(CUstreamCaptureMode *mode) {
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static CUresult fake_stream_destroy(CUstream handle) {
    at(handle)->destroyed = true;
    return CUDA_SUCCESS;
}

static CUresult fake_current(CUcontext *context) {
    *context = (CUcontext)0x1000;
    return CUDA_SUCCESS;
}

static CUresult fake_device(CUdevice *device) {
    *device = 0;
    return CUDA_SUCCESS;
}

static CUresult fake_context_of(CUstream stream, CUcontext *context) {
    (void)stream;
    return fake_current(context);
}

struct real_driver real = {
    .cuStreamGetCtx = fake_context_of,
    .cuLaunchKernel = fake_launch,
    .cuLaunchKernel_ptsz = fake_launch,
    .cuMemHostRegister_v2 = fake_host_register,
    .cuEventCreate = fake_event_create,
    .cuEventRecord = fake_event_record,
    .cuEventQuery = fake_event_query,
    .cuEventElapsedTime = fake_event_elapsed,
    .cuStreamSynchronize = fake_stream_synchronize,
    .cuStreamIsCapturing = fake_is_capturing,
    .cuStreamBeginCapture_v2 = fake_begin_capture,
    .cuStreamEndCapture = fake_end_capture,
    .cuThreadExchangeStreamCaptureMode = fake_exchange_mode,
    .cuStreamDestroy_v2 = fake_stream_destroy,
    .cuCtxGetCurrent = fake_current,
    .cuCtxGetDevice = fake_device,
};

bool real_loaded(void) { /* cards have no UUID here: CUDA's ordinals are their own indices */
    return false;
}

const struct real_nvml *real_nvml(bool load) {
    (void)load;
    return NULL;
}

bool memory_pools_used, memory_graphs_used;
void memory_settle_pools(bool shrink) {
    (void)shrink;
}
void memory_settle_graphs(void) {
}

void load_before_launch(CUfunction function) {
    (void)function;
}

static CUstream new_stream(void) {
    return (CUstream)&streams[__atomic_fetch_add(&stream_count, 1, __ATOMIC_RELAXED)];
}

/* ---- the program ---- */

static int fake_devices(uint8_t uuid[16][16]) {
    memset(uuid, 0, 256);
    memcpy(uuid[0], "0123456789abcdef", 16);
    return 1;
}

static uint64_t held_bytes = 4096;
static uint64_t fake_held(int ordinal) {
    return ordinal ? 0 : held_bytes;
}
static uint64_t fake_credit(int ordinal, uint64_t bytes) {
    return ordinal || bytes < 100 ? 0 : 100;
}

static CUfunction kernel(unsigned int which) {
    return (CUfunction)(uintptr_t)(0x5000 + which * 64);
}

static CUresult launch(CUstream stream, unsigned int ns) {
    return cuLaunchKernel(kernel(0), ns, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static volatile sig_atomic_t told_to_end;
static void end_it(int signal) {
    (void)signal;
    told_to_end = 1;
}

static void pause_ns(uint64_t ns) {
    struct timespec duration = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    while (nanosleep(&duration, &duration))
        ;
}

static int busy(int count, char **argument) { /* KERNEL_NS */
    unsigned int ns = (unsigned int)strtoul(argument[0], NULL, 10);
    (void)count;
    uint64_t launches = 0;
    for (; !told_to_end; launches++)
        launch(CU_STREAM_LEGACY, ns);
    printf("{\"launches\": %lu}\n", launches);
    return 0;
}

static int shrinking(int count, char **argument) { /* LONG_NS COUNT SHORT_NS SYNC: so many are long, all others short */
    (void)count;
    unsigned int long_ns = (unsigned int)atoi(argument[0]), short_ns = (unsigned int)atoi(argument[2]);
    for (int i = 0; !told_to_end; i++) {
        cuLaunchKernel(
            kernel(0), 1, 1, 1, 1, 1, 1, i < atoi(argument[1]) ? long_ns : short_ns, CU_STREAM_LEGACY, NULL, NULL);
        if (atoi(argument[3]))
            cuStreamSynchronize(CU_STREAM_LEGACY);
    }
    return 0;
}

static int bursts(int count, char **argument) { /* COUNT KERNELS KERNEL_NS GAP_NS */
    int kernels = atoi(argument[1]);
    (void)count;
    for (int i = 0; i < atoi(argument[0]) && !told_to_end; i++) {
        for (int j = 0; j < kernels; j++)
            launch(CU_STREAM_LEGACY, (unsigned int)atoi(argument[2]));
        cuStreamSynchronize(CU_STREAM_LEGACY);
        pause_ns(strtoull(argument[3], NULL, 10));
    }
    printf("{\"syncs\": %d}\n", syncs);
    return 0;
}

static int silent(int count, char **argument) { /* KERNEL_NS: launch, and then never come back */
    (void)count;
    launch(strcmp(argument[1], "own") ? new_stream() : CU_STREAM_PER_THREAD, (unsigned int)atoi(argument[0]));
    while (!told_to_end)
        pause_ns(1000000000);
    return 0;
}

static void *one_of_eight(void *number) {
    static CUstream shared;
    int i = (int)(intptr_t)number;
    CUstream mine = new_stream();
    if (i == 0)
        shared = mine;
    for (unsigned int n = 0; !told_to_end; n++) {
        CUstream stream = i % 4 == 0 ? CU_STREAM_LEGACY : i % 4 == 1 ? CU_STREAM_PER_THREAD : mine;
        if (i % 4 == 3 && n % 2 && shared)
            stream = shared; /* two streams of this thread, and a stream of two threads */
        launch(stream, 20000 + (unsigned int)i * 5000);
        if (i % 2 && n % 16 == 15)
            pause_ns(300000 * (uint64_t)i);
    }
    return NULL;
}

static int eight(int count, char **argument) {
    pthread_t thread[8];
    (void)count, (void)argument;
    for (intptr_t i = 0; i < 8; i++)
        pthread_create(&thread[i], NULL, one_of_eight, (void *)i);
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    printf("{}\n");
    return 0;
}

static int captured; /* 0: under way */
static void *capturing(void *stream) {
    CUgraph graph;
    cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    while (!told_to_end) {
        cuLaunchKernel(kernel(1), 1000, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        pause_ns(1000000);
    }
    captured = cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS ? 1 : 2;
    return NULL;
}

static int capture(int count, char **argument) {
    pthread_t thread;
    CUstream stream = new_stream(), work = new_stream();
    (void)count, (void)argument;
    pthread_create(&thread, NULL, capturing, stream);
    uint64_t launches = 0;
    for (; !told_to_end; launches++)
        launch(launches % 2 ? work : CU_STREAM_PER_THREAD, 100000);
    pthread_join(thread, NULL);
    printf("{\"valid\": %s, \"launches\": %lu}\n", captured == 1 ? "true" : "false", launches);
    return 0;
}

static int forking(int count, char **argument) {
    (void)count, (void)argument;
    launch(CU_STREAM_LEGACY, 1000);
    pid_t child = fork();
    if (!child) {
        launch(CU_STREAM_LEGACY, 2000);
        cuStreamSynchronize(CU_STREAM_LEGACY);
        pause_ns(300000000);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    launch(CU_STREAM_LEGACY, 1000);
    printf("{\"child\": %d}\n", status);
    return 0;
}

static int awaited; /* the work that waits for its peer was launched */
static void *waits_for_peer(void *flag) { /* reaches the gate only after it was closed */
    while (!__atomic_load_n(&awaited, __ATOMIC_ACQUIRE) || __atomic_load_n(&gates[0].ticket, __ATOMIC_ACQUIRE))
        pause_ns(1000000);
    launch(CU_STREAM_PER_THREAD, 1000);
    __atomic_store_n((int *)flag, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static int valve(int count, char **argument) { /* a long kernel that "waits" for another thread's launch */
    pthread_t thread;
    int flag = 0;
    (void)count, (void)argument;
    pthread_create(&thread, NULL, waits_for_peer, &flag);
    CUstream stream = new_stream();
    launch(stream, 1000);
    cuStreamSynchronize(stream);
    launch(stream, 4000000000); /* without a valve the peer comes when it is over */
    __atomic_store_n(&awaited, 1, __ATOMIC_RELEASE);
    uint64_t end_ns = gate_now() + 60000000000;
    while (!__atomic_load_n(&flag, __ATOMIC_SEQ_CST) && gate_now() < end_ns)
        pause_ns(1000000);
    ((struct stream *)stream)->end_ns = 0; /* the peer came: the kernel is over */
    printf("{\"peer_came\": %d}\n", flag);
    return 0;
}

static int streams_end(int count, char **argument) { /* streams made, used and destroyed */
    (void)count, (void)argument;
    int used = 0;
    while (used < STREAMS - 1) {
        CUstream stream = new_stream();
        for (int i = 0; i < 50; i++)
            launch(stream, 50000);
        cuStreamDestroy_v2(stream);
        used++;
    }
    printf("{\"streams\": %d}\n", used);
    return 0;
}

static int memory(int count, char **argument) {
    uint64_t credit = 0, limit = 0, used = 0;
    (void)count, (void)argument;
    int first = agent_memory_reserve(0, 1000, &credit);
    int second = agent_memory_reserve(0, 5000, NULL);
    agent_memory_release(0, 600);
    int third = agent_memory_figures(0, true, &limit, &used);
    int other = agent_memory_reserve(5, 1, NULL);
    printf("{\"first\": %d, \"credit\": %lu, \"second\": %d, \"third\": %d, \"limit\": %lu, \"used\": %lu, \"other\": "
           "%d}\n",
        first, credit, second, third, limit, used, other);
    fflush(stdout);
    pause_ns(300000000);
    return 0;
}

static bool answered;
static void *asks_for_memory(void *nothing) {
    answered = agent_memory_reserve(0, 1000, NULL) == 0;
    pthread_testcancel();
    return nothing;
}

static void *launches_once(void *nothing) {
    launch(CU_STREAM_LEGACY, 1000000);
    pthread_testcancel();
    return nothing;
}

static bool ends_cancelled(void *(*run)(void *)) {
    pthread_t thread;
    void *result = NULL;
    pthread_create(&thread, NULL, run, NULL);
    pthread_cancel(thread); /* before it waits or while it does: the same, for the request stays */
    pthread_join(thread, &result);
    return result == PTHREAD_CANCELED;
}

static int cancelled(int count, char **argument) { /* threads that are cancelled while they wait for the daemon */
    (void)count, (void)argument;
    bool first = ends_cancelled(asks_for_memory), second = ends_cancelled(launches_once);
    int after = agent_memory_reserve(0, 2000, NULL);
    printf("{\"answered\": %d, \"first\": %d, \"second\": %d, \"after\": %d}\n", answered, first, second, after);
    return 0;
}

static int compare(const void *a, const void *b) {
    return *(const double *)a < *(const double *)b ? -1 : 1;
}

static CUresult nothing(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
    unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **parameters, void **extra) {
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;
    (void)parameters, (void)extra;
    return CUDA_SUCCESS;
}

static int cost(int count, char **argument) { /* what the open gate adds to a launch, in batches of 1,000 */
    double with[200], without[200];
    (void)count, (void)argument;
    for (int i = 0; i < 20; i++)
        launch(CU_STREAM_LEGACY, 1000);
    cuStreamSynchronize(CU_STREAM_LEGACY);
    __typeof__(real.cuLaunchKernel) volatile bare = nothing;
    real.cuLaunchKernel = nothing;
    for (int batch = 0; batch < 200; batch++) {
        uint64_t a = gate_now();
        for (int i = 0; i < 1000; i++)
            launch(CU_STREAM_LEGACY, 1000);
        uint64_t b = gate_now();
        for (int i = 0; i < 1000; i++)
            bare(kernel(0), 1000, 1, 1, 1, 1, 1, 0, CU_STREAM_LEGACY, NULL, NULL);
        uint64_t c = gate_now();
        with[batch] = (double)(b - a) / 1000;
        without[batch] = (double)(c - b) / 1000;
    }
    qsort(with, 200, sizeof *with, compare);
    qsort(without, 200, sizeof *without, compare);
    printf("{\"with_ns\": %.2f, \"without_ns\": %.2f}\n", with[100], without[100]);
    return 0;
}

static const struct scenario {
    const char *name;
    int (*run)(int count, char **argument);
} SCENARIOS[] = {{"busy", busy}, {"bursts", bursts}, {"shrinking", shrinking}, {"silent", silent}, {"eight", eight},
    {"capture", capture}, {"fork", forking}, {"valve", valve}, {"streams", streams_end}, {"memory", memory},
    {"cost", cost}, {"cancelled", cancelled}};

int main(int count, char **argument) {
    static const struct agent_callbacks CALLBACKS = {
        .take_credit = fake_credit, .memory_held = fake_held, .devices = fake_devices};
    const char *file = getenv("CLIENT_TIMELINE");

    signal(SIGTERM, end_it);
    agent_init(&CALLBACKS);
    if (getenv("CLIENT_STANDSTILL"))
        standstill = atoi(getenv("CLIENT_STANDSTILL"));
    if (file)
        timeline = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    for (size_t i = 0; count > 1 && i < sizeof SCENARIOS / sizeof *SCENARIOS; i++)
        if (!strcmp(argument[1], SCENARIOS[i].name)) {
            int status = SCENARIOS[i].run(count - 2, argument + 2);
            fflush(stdout);
            if (getenv("CLIENT_LINGER")) /* so that the last Return is sent */
                pause_ns(strtoull(getenv("CLIENT_LINGER"), NULL, 10));
            return status;
        }
    return 2;
}
