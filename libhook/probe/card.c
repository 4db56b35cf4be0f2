/* card.c - probes of the card itself: who it is, what a context takes of it, how fast its clock and its copies are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libhook/probe/probe.h"

enum { MULTIPROCESSORS = 16, MAJOR = 75, MINOR = 76, MIB = 1 << 20 };

/* Cards whose data sheet the simulated driver has; it tells how long kernels take. */
static const struct {
    const char *in_name, *profile;
} sheets[] = {{"H200", "h200"}, {"A100", "a100"}, {"NVIDIA L4 ", "l4"}, {"RTX 4090", "rtx4090"}};

void probe_card(void) {
    char name[128] = "", version[32];
    int value = 0;
    size_t bytes;
    uint64_t begin = now_ns();
    void *context;
    open_driver();
    say("init_ns", (double)(now_ns() - begin));
    NEED(cu.cuDeviceGetName(name, sizeof(name) - 1, 0));
    say_text("card_name", name);
    for (size_t i = 0; i < sizeof(sheets) / sizeof(sheets[0]); i++)
        if (strstr(name, sheets[i].in_name) != NULL)
            say_text("data_sheet", sheets[i].profile);
    NEED(cu.cuDriverGetVersion(&value));
    snprintf(version, sizeof(version), "%d.%d", value / 1000, value % 1000 / 10);
    say_text("driver", version);
    NEED(cu.cuDeviceTotalMem_v2(&bytes, 0));
    say("memory_bytes", (double)bytes);
    cu.cuDeviceGetAttribute(&value, MULTIPROCESSORS, 0);
    say("multiprocessors", value);
    cu.cuDeviceGetAttribute(&value, MAJOR, 0);
    say("capability_major", value);
    cu.cuDeviceGetAttribute(&value, MINOR, 0);
    say("capability_minor", value);
    begin = now_ns();
    NEED(cu.cuDevicePrimaryCtxRetain(&context, 0));
    say("context_ns", (double)(now_ns() - begin));
}

/* nvml.h: what a process has, and a card. */
struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned instances[2];
};

static struct {
    void *device;
    int (*memory)(void *, unsigned long long[3]);
    int (*processes)(void *, unsigned *, struct process *);
} nvml;

static bool open_nvml(void) {
    char bus[32];
    void *handle = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void) = handle == NULL ? NULL : (int (*)(void))dlsym(handle, "nvmlInit_v2");
    int (*find)(const char *, void **) =
        handle == NULL ? NULL : (int (*)(const char *, void **))dlsym(handle, "nvmlDeviceGetHandleByPciBusId_v2");
    if (init == NULL || find == NULL || init() != 0 || cu.cuDeviceGetPCIBusId(bus, sizeof(bus), 0) != 0 ||
        find(bus, &nvml.device) != 0)
        return false;
    nvml.memory = (__typeof__(nvml.memory))dlsym(handle, "nvmlDeviceGetMemoryInfo");
    nvml.processes = (__typeof__(nvml.processes))dlsym(handle, "nvmlDeviceGetComputeRunningProcesses_v3");
    return nvml.memory != NULL;
}

/* Bytes that the card has given out, and of them to us; -1: nobody says. */
static double used_by_all(void) {
    unsigned long long total_free_used[3];
    return nvml.memory(nvml.device, total_free_used) == 0 ? (double)total_free_used[2] : -1;
}

static double used_by_us(void) {
    static struct process list[512];
    unsigned count = sizeof(list) / sizeof(list[0]);
    if (nvml.processes == NULL || nvml.processes(nvml.device, &count, list) != 0)
        return -1;
    for (unsigned i = 0; i < count; i++)
        if (list[i].pid == (unsigned)getpid() && list[i].bytes != ~0ull)
            return (double)list[i].bytes;
    return -1;
}

void probe_memory(void) {
    open_driver();
    if (!open_nvml()) {
        say("nvml", 0);
        return;
    }
    say("nvml", 1);
    double before = used_by_all();
    void *context;
    NEED(cu.cuDevicePrimaryCtxRetain(&context, 0));
    double all = used_by_all() - before, ours = used_by_us();
    say("nvml_lists_our_pid", ours >= 0);
    say("context_bytes_by_card", all);
    say("context_bytes", ours >= 0 ? ours : all);
    struct card card = open_card();
    (void)card;
    say("context_grown_bytes", (ours >= 0 ? used_by_us() : used_by_all() - before) - (ours >= 0 ? ours : all));
}

void probe_copies(void) {
    struct card card = open_card();
    enum { LARGE = 32 * MIB, TURNS = 5, SMALL = 64, AHEAD_NS = 80000000 };
    uint64_t there, also;
    void *here, *begin, *end;
    double taken[3][TURNS];
    NEED(cu.cuMemAlloc_v2(&there, LARGE));
    NEED(cu.cuMemAlloc_v2(&also, LARGE));
    NEED(cu.cuMemHostAlloc(&here, LARGE, 0));
    NEED(cu.cuEventCreate(&begin, 0));
    NEED(cu.cuEventCreate(&end, 0));
    for (int turn = 0; turn < TURNS; turn++)
        for (int kind = 0; kind < 3; kind++) {
            NEED(spin(&card, AHEAD_NS, card.stream)); /* what the host takes to submit is done by then */
            NEED(cu.cuEventRecord(begin, card.stream));
            NEED(kind == 0   ? cu.cuMemcpyHtoDAsync_v2(there, here, LARGE, card.stream)
                 : kind == 1 ? cu.cuMemcpyDtoDAsync_v2(also, there, LARGE, card.stream)
                             : cu.cuMemcpyHtoDAsync_v2(there, here, SMALL, card.stream));
            NEED(cu.cuEventRecord(end, card.stream));
            NEED(cu.cuStreamSynchronize(card.stream));
            taken[kind][turn] = elapsed_ns(begin, end);
        }
    double latency = median(taken[2], TURNS);
    say("copy_latency_ns", latency);
    say("host_bytes_per_s", LARGE * 1e9 / (median(taken[0], TURNS) - latency));
    say("device_bytes_per_s", LARGE * 1e9 / (median(taken[1], TURNS) - latency));
}

/* Always the same arithmetic: what it takes tells the clock. */
static const char work_ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry probe_clock()\n{\n"
    "    .reg .pred %p<2>;\n    .reg .b32 %r<3>;\n    mov.u32 %r1, 0;\n    mov.u32 %r2, %clock;\n"
    "$again:\n    mad.lo.u32 %r2, %r2, %r2, %r1;\n    add.u32 %r1, %r1, 1;\n"
    "    setp.lt.u32 %p1, %r1, 20000;\n    @%p1 bra $again;\n"
    "    setp.eq.u32 %p1, %r2, 7;\n    @%p1 bra $again;\n    ret;\n}\n";

void probe_clock(void) {
    struct card card = open_card();
    enum { RECORDS = 400 };
    static double taken[RECORDS];
    void *module, *work, *begin, *end;
    uint64_t started, settled_ns = 0;
    int count = 0;
    NEED(cu.cuModuleLoadData(&module, work_ptx));
    NEED(cu.cuModuleGetFunction(&work, module, "probe_clock"));
    NEED(cu.cuEventCreate(&begin, 0));
    NEED(cu.cuEventCreate(&end, 0));
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL); /* idle, so that the clock falls */
    for (started = now_ns(); count < RECORDS && now_ns() - started < 1000000000u; count++) {
        NEED(cu.cuEventRecord(begin, card.stream));
        NEED(cu.cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, card.stream, NULL, NULL));
        NEED(cu.cuEventRecord(end, card.stream));
        NEED(cu.cuStreamSynchronize(card.stream));
        taken[count] = elapsed_ns(begin, end);
        if (count > 0 && taken[count] < 0.95 * taken[count - 1])
            settled_ns = now_ns() - started;
    }
    double first = taken[0];
    say("clock_first_to_median", first / median(taken, (size_t)count));
    say("clock_settled_after_ns", (double)settled_ns);
}
