/*
 * launch_overhead.c - what does an intercepted launch cost more than a bare one, with the gate open?
 *
 * Runs as a tenant under LD_PRELOAD. Batches of launches through the library alternate with batches through the driver's
 * own entry, in one process, on one stream, so that whatever slows the machine down slows both. The driver's own
 * address comes from its .dynsym on disk, for dlsym is what the library answers. Prints ns per launch of each batch.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
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

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
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

static double batch(launch_fn *launch, void *function, void *stream, int launches, uint64_t kernel_ns) {
    void *arguments[] = {&kernel_ns};
    double begin = now_ns();
    for (int i = 0; i < launches; i++) {
        int code = launch(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
        if (code)
            fail("cuLaunchKernel", code);
    }
    return (now_ns() - begin) / launches;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: launch_overhead BATCHES LAUNCHES KERNEL_NS\n");
        return 2;
    }
    int batches = atoi(argv[1]), launches = atoi(argv[2]), device, code;
    uint64_t kernel_ns = strtoull(argv[3], NULL, 10);
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context, *module, *function, *stream;
    if (!library)
        fail(dlerror(), 0);
#define CALL(symbol, prototype, ...)                                                                                   \
    if ((code = ((int(*) prototype)dlsym(library, #symbol))(__VA_ARGS__)) != 0)                                        \
    fail(#symbol, code)
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGet, (int *, int), &device, 0);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
    CALL(cuCtxSetCurrent, (void *), context);
    CALL(cuModuleLoadData, (void **, const void *), &module, spin_ptx);
    CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "gemini_spin");
    CALL(cuStreamCreate, (void **, unsigned), &stream, 1);
    launch_fn *hooked = (launch_fn *)dlsym(library, "cuLaunchKernel");
    launch_fn *driver = (launch_fn *)bare(library, "cuLaunchKernel");
    printf("{\"intercepted\": %s, \"bare_ns\": [", hooked != driver ? "true" : "false");
    double *hooked_ns = calloc((size_t)batches, sizeof(double));
    int warm = batches / 10 + 5, printed = 0;
    for (int i = -warm; i < batches; i++) {
        double ns[2];
        for (int step = 0; step < 2; step++) { /* who goes first alternates */
            int which = (i + step) & 1;
            ns[which] = batch(which ? hooked : driver, function, stream, launches, kernel_ns);
            CALL(cuStreamSynchronize, (void *), stream);
        }
        if (i >= 0) {
            printf("%s%.2f", printed++ ? ", " : "", ns[0]);
            hooked_ns[i] = ns[1];
        }
    }
    printf("], \"hooked_ns\": [");
    for (int i = 0; i < batches; i++)
        printf("%s%.2f", i ? ", " : "", hooked_ns[i]);
    printf("]}\n");
    return 0;
}
