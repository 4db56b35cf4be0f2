/*
 * lengths.c - a program of which nothing foretells how long its next kernel takes. One function, or FUNCTIONS of them in
 * turn, each with one grid, and a kernel of 1 us behind each launch; it never waits for the card. Until SIGTERM.
 *
 *     lengths grow FUNCTIONS       20 launches of each take 20 us, the others 5 ms
 *     lengths change FUNCTIONS     20 us in one second and 5 ms in the next
 *     lengths steady FUNCTIONS     100 us, always; no kernels of 1 us
 *     lengths sparse               one kernel of 0.5 ms every 40 ms
 *     lengths first FUNCTIONS      each for the first time, with 10 known launches of 100 us before it, then the same again,
 *                                  all known; prints the nanoseconds that each took until all was over, and ends
 */
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>

#include "bench/spin.h"

enum { MOST = 4096, GRID = 132, KNOWN = 10 };
static const uint64_t SHORT_NS = 20000, LONG_NS = 5000000, STEADY_NS = 100000, TINY_NS = 1000;
static const uint64_t SPARSE_NS = 500000, PERIOD_NS = 40000000;

static CUfunction functions[MOST];

/* Each module has a function of its own. */
static void make_functions(int count) {
    static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                              ".visible .entry gemini_spin(.param .u64 gemini_spin_param_0)\n{\n    ret;\n}\n";
    for (int i = 0; i < count; i++) {
        CUmodule module;
        need(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
        need(cuModuleGetFunction(&functions[i], module, "gemini_spin"), "cuModuleGetFunction");
    }
}

static void launch_of(CUfunction one, uint64_t kernel_ns) {
    void *arguments[] = {&kernel_ns};
    need(cuLaunchKernel(one, GRID, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
}

static uint64_t first(int count) {
    uint64_t begin_ns = now_ns();
    for (int i = 0; i < count; i++) {
        for (int n = 0; n < KNOWN; n++)
            launch(STEADY_NS);
        launch_of(functions[i], STEADY_NS);
    }
    need(cuStreamSynchronize(stream), "cuStreamSynchronize");
    return now_ns() - begin_ns;
}

int main(int argc, char **argv) {
    int count = argc == 3 ? atoi(argv[2]) : 1;
    if (argc < 2 || argc > 3 || count < 1 || count > MOST) {
        fprintf(stderr, "usage: lengths grow|change|steady|sparse|first [FUNCTIONS]\n");
        return 2;
    }
    prctl(PR_SET_TIMERSLACK, 1UL);
    start();
    make_functions(count);
    const char *how = argv[1];
    if (!strcmp(how, "first")) {
        for (int n = 0; n < 10 * KNOWN; n++) /* until the one that is to be known is known well */
            launch(STEADY_NS);
        need(cuStreamSynchronize(stream), "cuStreamSynchronize");
        uint64_t unknown_ns = first(count), known_ns = first(count);
        printf("%llu %llu\n", (unsigned long long)unknown_ns, (unsigned long long)known_ns);
        return 0;
    }
    uint64_t begin_ns = now_ns();
    for (uint64_t n = 0;; n++) {
        CUfunction one = functions[n % (uint64_t)count];
        if (!strcmp(how, "sparse")) {
            launch(SPARSE_NS);
            rest_ns(PERIOD_NS);
        } else if (!strcmp(how, "steady")) {
            launch_of(one, STEADY_NS);
        } else {
            bool brief = !strcmp(how, "grow") ? n / (uint64_t)count < 20 : (now_ns() - begin_ns) / 1000000000 % 2 == 0;
            launch_of(one, brief ? SHORT_NS : LONG_NS);
            launch(TINY_NS);
        }
    }
}
