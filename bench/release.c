/*
 * release.c - how long after a store does the card go on that waited for it? A process without CUDA stores; another one has
 * in its stream, over and over: a wait for the word, a write of the same number behind it. The first one sees when that
 * number comes.
 *
 * usage: release ROUNDS HOW. HOW is `store`, or `wake`: the storer also wakes who sleeps on the word as on a futex. Prints,
 * one a line: nanoseconds from the store until the written number was seen. The last line is the processor time that the
 * waiting process took, nanoseconds a round.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/spin.h"

enum { PAGE = 4096 };

struct shared {
    _Atomic uint32_t ready, go, done;
    uint64_t used_ns;
};

static uint64_t used_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static void waiter(struct shared *shared, uint32_t rounds) {
    CUdeviceptr go = (CUdeviceptr)&shared->go, done = (CUdeviceptr)&shared->done;
    start();
    need(cuMemHostRegister_v2(shared, PAGE, 0), "cuMemHostRegister");
    uint64_t before_ns = used_ns();
    for (uint32_t i = 1; i <= rounds; i++) {
        need(cuStreamWaitValue32_v2(stream, go, i, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32");
        need(cuStreamWriteValue32_v2(stream, done, i, 0), "cuStreamWriteValue32");
        shared->used_ns = used_ns() - before_ns;
        atomic_store(&shared->ready, i);
        need(cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
}

int main(int argc, char **argv) {
    uint32_t rounds = argc == 3 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    if (!rounds || (strcmp(argv[2], "store") != 0 && strcmp(argv[2], "wake") != 0)) {
        fprintf(stderr, "usage: release ROUNDS store|wake\n");
        return 2;
    }
    struct shared *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        waiter(shared, rounds);
        return 0;
    }
    prctl(PR_SET_TIMERSLACK, 1UL);
    int status;
    for (uint32_t i = 1; i <= rounds; i++) {
        while (atomic_load(&shared->ready) != i) {
            if (waitpid(child, &status, WNOHANG))
                return 1;
            rest_ns(50000);
        }
        rest_ns(300000 + (uint64_t)(i % 7) * 30000); /* at no fixed distance to the card's own looks */
        uint64_t stored_ns = now_ns();
        atomic_store(&shared->go, i);
        if (strcmp(argv[2], "wake") == 0)
            syscall(SYS_futex, &shared->go, FUTEX_WAKE, 1, NULL, NULL, 0);
        while (atomic_load(&shared->done) != i)
            __builtin_ia32_pause();
        printf("%llu\n", (unsigned long long)(now_ns() - stored_ns));
    }
    waitpid(child, &status, 0);
    printf("%llu\n", (unsigned long long)(shared->used_ns / rounds));
    return status != 0;
}
