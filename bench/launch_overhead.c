/*
 * launch_overhead.c - what does an intercepted launch cost more than a bare one, with the gate open?
 *
 * Runs as a tenant under LD_PRELOAD. Batches of launches through the library alternate with batches through the driver's
 * own entry, in one process, so that whatever slows the machine down slows both. The driver's own address comes from its
 * .dynsym on disk, for dlsym is what the library answers. Prints ns per launch of each batch: by the wall clock where one
 * thread launches; where several do, each on a stream of its own, by each thread's CPU time, for they take turns.
 *
 *     launch_overhead BATCHES LAUNCHES KERNEL_NS THREADS [COLD_KIB]
 *
 * A simulated launch takes 50 ns, and leaves what the library needs in the processor's nearest caches. A real one takes 3 us
 * there, and has its own code and data in them. COLD_KIB is so much of each that is run and read before each launch.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

static const char spin_ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                               ".visible .entry gemini_spin(.param .u64 gemini_spin_param_0)\n{\n"
                               "    .reg .pred %p<2>;\n    .reg .b64 %rd<5>;\n"
                               "    ld.param.u64 %rd1, [gemini_spin_param_0];\n    mov.u64 %rd2, %globaltimer;\n"
                               "$spin:\n    mov.u64 %rd3, %globaltimer;\n    sub.u64 %rd4, %rd3, %rd2;\n"
                               "    setp.lt.u64 %p1, %rd4, %rd1;\n    @%p1 bra $spin;\n    ret;\n}\n";

typedef int launch_fn(
    void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static clockid_t the_clock = CLOCK_MONOTONIC;

static double now_ns(void) {
    struct timespec now;
    clock_gettime(the_clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void fail(const char *what, int code) {
    fprintf(stderr, "launch_overhead: %s: %d\n", what, code);
    exit(1);
}

/* The address of `name` in the library behind `handle`, past every dlsym. */
static void *bare(void *handle, const char *name) {
    struct link_map *map;
    struct stat stat;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
        fail("dlinfo", 0);
    int fd = open(map->l_name, O_RDONLY);
    if (fd < 0 || fstat(fd, &stat) != 0)
        fail(map->l_name, fd);
    const char *image = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    const Elf64_Ehdr *head = (const void *)image;
    const Elf64_Shdr *sections = (const void *)(image + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM)
            continue;
        const Elf64_Sym *symbols = (const void *)(image + sections[i].sh_offset);
        const char *names = image + sections[sections[i].sh_link].sh_offset;
        for (size_t j = 0; j < sections[i].sh_size / sizeof(*symbols); j++)
            if (symbols[j].st_shndx != SHN_UNDEF && strcmp(names + symbols[j].st_name, name) == 0)
                return (char *)map->l_addr + symbols[j].st_value;
    }
    fail(name, 0);
    return NULL;
}

enum { LINE = 64 };
static unsigned char *cold_code, *cold_data; /* a jump to the next in each line; NULL: nothing of it is wanted */
static size_t cold_bytes;

static void make_cold(size_t kib) {
    cold_bytes = kib * 1024;
    unsigned char *both = mmap(NULL, 2 * cold_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (both == MAP_FAILED)
        fail("mmap", 0);
    cold_code = both, cold_data = both + cold_bytes;
    for (size_t at = 0; at < cold_bytes; at += LINE)
        memcpy(cold_code + at, at + LINE < cold_bytes ? "\xe9\x3b\0\0" : "\xc3\0\0\0", 5);
    memset(cold_data, 1, cold_bytes);
    if (mprotect(cold_code, cold_bytes, PROT_READ | PROT_EXEC) != 0)
        fail("mprotect", 0);
}

static void be_cold(void) {
    unsigned read = 0;
    for (size_t at = 0; at < cold_bytes; at += LINE)
        read += cold_data[at];
    __asm__ volatile("" : : "r"(read));
    ((void (*)(void))(void *)cold_code)();
}

static double batch(launch_fn *launch, void *function, void *stream, int launches, uint64_t kernel_ns) {
    void *arguments[] = {&kernel_ns};
    double begin = now_ns();
    for (int i = 0; i < launches; i++) {
        if (cold_code)
            be_cold();
        int code = launch(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
        if (code)
            fail("cuLaunchKernel", code);
    }
    return (now_ns() - begin) / launches;
}

#define CALL(symbol, prototype, ...)                                                                                   \
    do {                                                                                                               \
        int code = ((int(*) prototype)dlsym(library, #symbol))(__VA_ARGS__);                                           \
        if (code)                                                                                                      \
            fail(#symbol, code);                                                                                       \
    } while (0)

static void *library, *context, *function;
static launch_fn *entry[2]; /* the driver's own, and what a program gets */
static int batches, launches;
static uint64_t kernel_ns;

struct worker {
    pthread_t thread;
    double *ns[2]; /* of each batch, as in `entry` */
};

static void *work(void *argument) {
    struct worker *worker = argument;
    void *stream;
    CALL(cuCtxSetCurrent, (void *), context);
    CALL(cuStreamCreate, (void **, unsigned), &stream, 1);
    for (int i = -(batches / 10 + 5); i < batches; i++) /* the first ones only warm up */
        for (int step = 0; step < 2; step++) {          /* who goes first alternates */
            int which = (i + step) & 1;
            double ns = batch(entry[which], function, stream, launches, kernel_ns);
            CALL(cuStreamSynchronize, (void *), stream);
            if (i >= 0)
                worker->ns[which][i] = ns;
        }
    return NULL;
}

static void print(const char *name, const struct worker *workers, int threads, int which) {
    printf(", \"%s\": [", name);
    for (int t = 0; t < threads; t++)
        for (int i = 0; i < batches; i++)
            printf("%s%.2f", t || i ? ", " : "", workers[t].ns[which][i]);
    printf("]");
}

int main(int argc, char **argv) {
    if (argc != 5 && argc != 6) {
        fprintf(stderr, "usage: launch_overhead BATCHES LAUNCHES KERNEL_NS THREADS [COLD_KIB]\n");
        return 2;
    }
    batches = atoi(argv[1]), launches = atoi(argv[2]), kernel_ns = strtoull(argv[3], NULL, 10);
    int threads = atoi(argv[4]), device;
    void *module;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        fail(dlerror(), 0);
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGet, (int *, int), &device, 0);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
    CALL(cuCtxSetCurrent, (void *), context);
    CALL(cuModuleLoadData, (void **, const void *), &module, spin_ptx);
    CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "gemini_spin");
    entry[0] = (launch_fn *)bare(library, "cuLaunchKernel");
    entry[1] = (launch_fn *)dlsym(library, "cuLaunchKernel");
    if (argc == 6 && atoi(argv[5]) > 0)
        make_cold((size_t)atoi(argv[5]));
    if (threads > 1)
        the_clock = CLOCK_THREAD_CPUTIME_ID;
    struct worker *workers = calloc((size_t)threads, sizeof(*workers));
    for (int t = 0; t < threads; t++) {
        for (int which = 0; which < 2; which++)
            workers[t].ns[which] = calloc((size_t)batches, sizeof(double));
        pthread_create(&workers[t].thread, NULL, work, &workers[t]);
    }
    for (int t = 0; t < threads; t++)
        pthread_join(workers[t].thread, NULL);
    printf("{\"intercepted\": %s", entry[1] != entry[0] ? "true" : "false");
    print("bare_ns", workers, threads, 0);
    print("hooked_ns", workers, threads, 1);
    printf("}\n");
    return 0;
}
