/*
 * load.c - gemini-load, the load generator: a plain CUDA driver-API program, the same on a real and on a simulated GPU.
 *
 * It opens libcuda.so.1 as any program does and knows nothing of tenants: what it suffers under LD_PRELOAD, every program
 * suffers. Its kernel, gemini_spin, runs for as many nanoseconds as its first argument says; a simulated driver knows the
 * kernel by that name, a real one compiles the PTX below.
 *
 * Work is a row of launches, by default asynchronous and back to back, for a loop that synchronises after every kernel
 * hides throttling. --burst/--gap-us make a program that comes and goes: N launches, a synchronise, G us of host time.
 * Samples go into log-linear histograms (64 steps an octave, 1.6 %), so a run of any length needs the same memory.
 * gpu_seconds counts finished kernels times their asked duration. SIGINT and SIGTERM end the run as its time would.
 *
 * --stamps FILE makes a real GPU write its own timeline: each kernel stores when it began and ended by %globaltimer, which
 * all processes on a card share, and the pairs of 64-bit numbers are written to FILE at the end. A simulated GPU executes
 * nothing and leaves them 0; it has an observer instead. --bursts FILE writes such pairs for each burst, as the program
 * saw it: before its first launch, after its synchronise, by CLOCK_MONOTONIC.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "libhook/sim/load/options.h"

#define SPIN(parameters, registers, store)                                                                             \
    ".version 6.0\n"                                                                                                   \
    ".target sm_50\n"                                                                                                  \
    ".address_size 64\n"                                                                                               \
    ".visible .entry gemini_spin(.param .u64 gemini_spin_param_0" parameters ")\n"                                     \
    "{\n"                                                                                                              \
    "    .reg .pred %p<2>;\n"                                                                                          \
    "    .reg .b64 %rd<" registers ">;\n"                                                                              \
    "    ld.param.u64 %rd1, [gemini_spin_param_0];\n"                                                                  \
    "    mov.u64 %rd2, %globaltimer;\n"                                                                                \
    "$spin:\n"                                                                                                         \
    "    mov.u64 %rd3, %globaltimer;\n"                                                                                \
    "    sub.u64 %rd4, %rd3, %rd2;\n"                                                                                  \
    "    setp.lt.u64 %p1, %rd4, %rd1;\n"                                                                               \
    "    @%p1 bra $spin;\n" store "    ret;\n"                                                                         \
    "}\n"
static const char spin_ptx[] = SPIN("", "5", "");
static const char stamping_ptx[] = SPIN(", .param .u64 gemini_spin_param_1", "6",
    "    ld.param.u64 %rd5, [gemini_spin_param_1];\n"
    "    st.global.u64 [%rd5], %rd2;\n"
    "    st.global.u64 [%rd5+8], %rd3;\n");

/* The driver's functions: one list gives the pointers and their look-up. The ABI is spelt here and not taken from the
 * library's header, so that a mistake there does not hide itself. Handles are opaque pointers, CUdeviceptr is 64 bits. */
#define DRIVER(X)                                                                                                      \
    X(cuInit, (unsigned))                                                                                              \
    X(cuGetErrorName, (int, const char **))                                                                            \
    X(cuDeviceGet, (int *, int))                                                                                       \
    X(cuDeviceGetName, (char *, int, int))                                                                             \
    X(cuDevicePrimaryCtxRetain, (void **, int))                                                                        \
    X(cuCtxSetCurrent, (void *))                                                                                       \
    X(cuCtxSynchronize, (void))                                                                                        \
    X(cuModuleLoadData, (void **, const void *))                                                                       \
    X(cuModuleGetFunction, (void **, void *, const char *))                                                            \
    X(cuLaunchKernel,                                                                                                  \
        (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))      \
    X(cuStreamCreate, (void **, unsigned))                                                                             \
    X(cuStreamSynchronize, (void *))                                                                                   \
    X(cuStreamBeginCapture_v2, (void *, int))                                                                          \
    X(cuStreamEndCapture, (void *, void **))                                                                           \
    X(cuGraphInstantiate_v2, (void **, void *, void **, char *, size_t))                                               \
    X(cuGraphLaunch, (void *, void *))                                                                                 \
    X(cuMemHostAlloc, (void **, size_t, unsigned))                                                                     \
    X(cuMemAlloc_v2, (uint64_t *, size_t))

static struct {
#define MEMBER(name, arguments) int(*name) arguments;
    DRIVER(MEMBER)
#undef MEMBER
} cu;

enum { MAX_BURSTS = 1 << 16 }; /* 1 MiB; what comes after them is not told one by one */
enum { MAX_STAMPS = 1 << 22 }; /* 64 MiB of pinned memory; later kernels all share the last place */
enum { MAX_CODES = 16, HISTOGRAM = 64 * 60 };

struct worker {
    pthread_t thread;
    uint64_t launches, first_ns, last_ns;
    uint64_t launch_ns[HISTOGRAM], burst_ns[HISTOGRAM];
};

static struct {
    void *context, *function;
    atomic_bool stop;
    uint64_t (*stamps)[2]; /* pinned: the kernels write begin and end; NULL without --stamps */
    atomic_ulong stamped;
    uint64_t bursts[MAX_BURSTS][2]; /* of all threads, when each began and when it ended */
    atomic_ulong burst_count;
    uint64_t deadline_ns;
    pthread_mutex_t lock; /* of the error counts */
    struct {
        int code;
        uint64_t count;
    } errors[MAX_CODES];
} run = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t when_ns) {
    struct timespec when = {.tv_sec = (time_t)(when_ns / 1000000000u), .tv_nsec = (long)(when_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR && !run.stop)
        ;
}

/* Histogram: exact below 64, above it 64 steps an octave. */
static void sample(uint64_t *histogram, uint64_t value) {
    int shift = value < 64 ? 0 : 58 - __builtin_clzll(value);
    uint64_t index = shift ? (uint64_t)shift * 64 + (value >> (shift - 1)) - 64 : value;
    histogram[index < HISTOGRAM ? index : HISTOGRAM - 1]++;
}

static double percentile(const uint64_t *histogram, double part) {
    uint64_t total = 0, seen = 0;
    for (int i = 0; i < HISTOGRAM; i++)
        total += histogram[i];
    if (total == 0)
        return NAN;
    uint64_t rank = (uint64_t)ceil((double)total * part);
    for (int i = 0; i < HISTOGRAM; i++) {
        seen += histogram[i];
        if (seen >= rank && seen > 0)
            return i < 64 ? i : ldexp(64 + i % 64 + 0.5, i / 64 - 1);
    }
    return NAN;
}

static void note_burst(uint64_t began_ns, uint64_t ended_ns) {
    unsigned long index = atomic_fetch_add_explicit(&run.burst_count, 1, memory_order_relaxed);
    if (index < MAX_BURSTS) {
        run.bursts[index][0] = began_ns;
        run.bursts[index][1] = ended_ns;
    }
}

static const char *error_name(int code) {
    const char *name = NULL;
    return cu.cuGetErrorName && cu.cuGetErrorName(code, &name) == 0 && name ? name : "CUDA_ERROR_UNKNOWN";
}

/* Count a failure; returns whether `code` is one. */
static bool failed(int code) {
    if (code == 0)
        return false;
    pthread_mutex_lock(&run.lock);
    for (int i = 0; i < MAX_CODES; i++)
        if (run.errors[i].count == 0 || run.errors[i].code == code) {
            run.errors[i].code = code;
            run.errors[i].count++;
            break;
        }
    pthread_mutex_unlock(&run.lock);
    return true;
}

static void on_signal(int number) {
    (void)number;
    run.stop = true;
}

static bool ended(uint64_t at_ns) {
    return run.stop || (run.deadline_ns && at_ns >= run.deadline_ns);
}

static int launch(void *stream) {
    uint64_t kernel_ns = (uint64_t)llround(load_options.kernel_us * 1000);
    uint64_t place = 0;
    if (run.stamps) {
        unsigned long index = atomic_fetch_add_explicit(&run.stamped, 1, memory_order_relaxed);
        place = (uintptr_t)run.stamps[index < MAX_STAMPS ? index : MAX_STAMPS - 1];
    }
    void *arguments[] = {&kernel_ns, &place};
    return cu.cuLaunchKernel(run.function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

/* A graph of load_options.graph launches, captured on `stream`; NULL when that failed (counted). */
static void *capture(void *stream) {
    void *graph = NULL, *executable = NULL;
    if (failed(cu.cuStreamBeginCapture_v2(stream, 1 /* thread local */)))
        return NULL;
    for (long i = 0; i < load_options.graph; i++)
        failed(launch(stream));
    if (failed(cu.cuStreamEndCapture(stream, &graph)))
        return NULL;
    return failed(cu.cuGraphInstantiate_v2(&executable, graph, NULL, NULL, 0)) ? NULL : executable;
}

static void *work(void *argument) {
    struct worker *self = argument;
    void *streams[MAX_STREAMS] = {NULL}, *graph = NULL;
    long stream_count = load_options.streams, in_burst = 0, unsynchronised = 0, next = 0;
    prctl(PR_SET_TIMERSLACK, 1L);
    if (failed(cu.cuCtxSetCurrent(run.context)))
        return NULL;
    if (load_options.legacy || load_options.per_thread) {
        streams[0] = load_options.per_thread ? (void *)2 : NULL;
        stream_count = 1;
    } else
        for (long i = 0; i < stream_count; i++)
            if (failed(cu.cuStreamCreate(&streams[i], 1 /* non-blocking */)))
                return NULL;
    if (load_options.graph && !(graph = capture(streams[0])))
        return NULL;

    uint64_t at_ns = now_ns(), burst_began_ns = at_ns;
    self->first_ns = at_ns;
    while (!ended(at_ns)) {
        void *stream = streams[next++ % stream_count];
        int code = graph ? cu.cuGraphLaunch(graph, stream) : launch(stream);
        uint64_t after_ns = now_ns();
        if (failed(code))
            break; /* errors of a context are sticky: going on would only count them again */
        sample(self->launch_ns, after_ns - at_ns);
        self->launches += graph ? (uint64_t)load_options.graph : 1;
        at_ns = after_ns;
        in_burst++;
        unsynchronised++;
        bool burst_ends = load_options.burst && in_burst >= load_options.burst;
        if (burst_ends || (load_options.sync_every && unsynchronised >= load_options.sync_every)) {
            for (long i = 0; i < stream_count; i++)
                if (failed(cu.cuStreamSynchronize(streams[i])))
                    run.stop = true;
            unsynchronised = 0;
            at_ns = now_ns();
            if (burst_ends || !load_options.burst) {
                sample(self->burst_ns, at_ns - burst_began_ns);
                note_burst(burst_began_ns, at_ns);
                in_burst = 0;
                if (load_options.gap_us > 0) {
                    sleep_until(at_ns + (uint64_t)(load_options.gap_us * 1000));
                    at_ns = now_ns();
                }
                burst_began_ns = at_ns;
            }
        }
    }
    for (long i = 0; i < stream_count; i++)
        failed(cu.cuStreamSynchronize(streams[i]));
    self->last_ns = now_ns();
    return NULL;
}

static void number(FILE *out, const char *text, double value) {
    if (isnan(value))
        fprintf(out, "%snull", text);
    else
        fprintf(out, "%s%.6g", text, value);
}

static int report(const struct worker *workers, const char *device) {
    static struct worker sum;
    uint64_t first_ns = UINT64_MAX, last_ns = 0;
    for (long i = 0; i < load_options.threads; i++) {
        if (workers[i].last_ns == 0)
            continue;
        sum.launches += workers[i].launches;
        first_ns = workers[i].first_ns < first_ns ? workers[i].first_ns : first_ns;
        last_ns = workers[i].last_ns > last_ns ? workers[i].last_ns : last_ns;
        for (int j = 0; j < HISTOGRAM; j++) {
            sum.launch_ns[j] += workers[i].launch_ns[j];
            sum.burst_ns[j] += workers[i].burst_ns[j];
        }
    }
    double seconds = last_ns > first_ns ? (double)(last_ns - first_ns) / 1e9 : 0;
    double gpu_seconds = (double)sum.launches * load_options.kernel_us / 1e6;
    if (!load_options.json)
        printf("%s: %lu launches of %g us in %.3f s, %.3f s of GPU time (%.1f %%)\n", device,
            (unsigned long)sum.launches, load_options.kernel_us, seconds, gpu_seconds,
            seconds > 0 ? 100 * gpu_seconds / seconds : 0);
    bool wrong = run.errors[0].count > 0;
    for (int i = 0; i < MAX_CODES && run.errors[i].count; i++)
        fprintf(
            stderr, "gemini-load: %s, %lu times\n", error_name(run.errors[i].code), (unsigned long)run.errors[i].count);
    if (!load_options.json)
        return wrong;
    FILE *out = strcmp(load_options.json, "-") == 0 ? stdout : fopen(load_options.json, "w");
    if (!out) {
        fprintf(stderr, "gemini-load: --json %s: %s; name a file that can be written\n", load_options.json,
            strerror(errno));
        return 2;
    }
    fprintf(out,
        "{\"device\": \"%s\", \"launches\": %lu, \"seconds\": %.6f, \"gpu_seconds\": %.6f, \"kernel_us\": %g, ", device,
        (unsigned long)sum.launches, seconds, gpu_seconds, load_options.kernel_us);
    number(out, "\"launch_ns\": {\"p50\": ", percentile(sum.launch_ns, 0.5));
    number(out, ", \"p99\": ", percentile(sum.launch_ns, 0.99));
    number(out, "}, \"burst_ms\": {\"p50\": ", percentile(sum.burst_ns, 0.5) / 1e6);
    number(out, ", \"p99\": ", percentile(sum.burst_ns, 0.99) / 1e6);
    fprintf(out, "}, \"errors\": {");
    for (int i = 0; i < MAX_CODES && run.errors[i].count; i++)
        fprintf(
            out, "%s\"%s\": %lu", i ? ", " : "", error_name(run.errors[i].code), (unsigned long)run.errors[i].count);
    fprintf(out, "}}\n");
    if (fflush(out) != 0 || (out != stdout && fclose(out) != 0)) {
        fprintf(stderr, "gemini-load: --json %s: %s\n", load_options.json, strerror(errno));
        return 2;
    }
    return wrong;
}

/* Write pairs of times to the file that an option named, if it did. Returns 0, or 2 with one line. */
static int write_pairs(const char *option, const char *name, uint64_t (*pairs)[2], size_t count) {
    if (!name)
        return 0;
    FILE *out = fopen(name, "wb");
    bool written = out && fwrite(pairs, sizeof(*pairs), count, out) == count;
    if (!out || fclose(out) != 0 || !written) {
        fprintf(stderr, "gemini-load: --%s %s: %s; name a file that can be written\n", option, name, strerror(errno));
        return 2;
    }
    return 0;
}

static int write_times(void) {
    size_t stamped = run.stamped < MAX_STAMPS ? run.stamped : MAX_STAMPS;
    size_t bursts = run.burst_count < MAX_BURSTS ? run.burst_count : MAX_BURSTS;
    int first = write_pairs("stamps", run.stamps ? load_options.stamps : NULL, run.stamps, stamped);
    int second = write_pairs("bursts", load_options.bursts, run.bursts, bursts);
    return first ? first : second;
}

/* Returns 0, or says in one line what is missing. */
static int open_driver(char *name, int size) {
    void *module, *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "gemini-load: %s; install NVIDIA's driver, or use the simulated one (gemini load --sim)\n",
            dlerror());
        return 3;
    }
#define FIND(symbol, arguments)                                                                                        \
    if (!(*(void **)&cu.symbol = dlsym(library, #symbol))) {                                                           \
        fprintf(stderr, "gemini-load: libcuda.so.1 has no %s; a driver of CUDA 11 or later is needed\n", #symbol);     \
        return 3;                                                                                                      \
    }
    DRIVER(FIND)
#undef FIND
    int device, code;
    const char *step = "cuInit";
    if ((code = cu.cuInit(0)) == 0 &&
        (step = "cuDeviceGet", code = cu.cuDeviceGet(&device, (int)load_options.device)) == 0 &&
        (step = "cuDeviceGetName", code = cu.cuDeviceGetName(name, size, device)) == 0 &&
        (step = "cuDevicePrimaryCtxRetain", code = cu.cuDevicePrimaryCtxRetain(&run.context, device)) == 0 &&
        (step = "cuCtxSetCurrent", code = cu.cuCtxSetCurrent(run.context)) == 0 &&
        (step = "cuModuleLoadData",
            code = cu.cuModuleLoadData(&module, load_options.stamps ? stamping_ptx : spin_ptx)) == 0 &&
        (step = "cuModuleGetFunction", code = cu.cuModuleGetFunction(&run.function, module, "gemini_spin")) == 0)
        return 0;
    fprintf(stderr, "gemini-load: %s of device %ld failed: %s; try gemini check\n", step, load_options.device,
        error_name(code));
    return 3;
}

int main(int argc, char **argv) {
    char device[256] = "";
    load_parse(argc, argv);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}; /* a second one kills */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    int status = open_driver(device, sizeof(device));
    if (status)
        return status;
    uint64_t memory = 0;
    if (load_options.alloc_bytes)
        failed(cu.cuMemAlloc_v2(&memory, (size_t)load_options.alloc_bytes));
    if (load_options.stamps && failed(cu.cuMemHostAlloc((void **)&run.stamps, MAX_STAMPS * sizeof(*run.stamps), 1)))
        run.stamps = NULL;
    if (load_options.seconds > 0)
        run.deadline_ns = now_ns() + (uint64_t)(load_options.seconds * 1e9);
    struct worker *workers = calloc((size_t)load_options.threads, sizeof(*workers));
    if (!workers)
        return 3;
    for (long i = 0; i < load_options.threads; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            fprintf(stderr, "gemini-load: no thread %ld: %s\n", i, strerror(errno));
            return 3;
        }
    for (long i = 0; i < load_options.threads; i++)
        pthread_join(workers[i].thread, NULL);
    int times_failed = write_times();
    status = report(workers, device);
    return times_failed ? times_failed : status;
}
