/*
 * preempt.c - the floor under a latency tenant beside a batch tenant: two programs that share the card by themselves, with
 * nothing between them but one word of shared memory. No library, no daemon, no accounts: nobody is held to a share.
 *
 *     preempt BURST_US AWAY_US COUNT KERNEL_US
 *
 * The parent is the latency tenant of bench/pauses.c: bursts of BURST_US in kernels of 100 us, a synchronise, AWAY_US of
 * host time. The child is the batch: one kernel of KERNEL_US after another, never more than one behind the one that runs,
 * launched LEAD_US before that ends so that the card does not idle. Before each launch it looks whether the other wants
 * the card; if so it lets what runs end, hands the word over and sleeps until it is given back. So what a burst waits
 * for is what no arbiter can take away where kernels run to their end: one kernel, the wake-up from the batch's own
 * sleep, one futex wake, and the card's switch. First COUNT bursts alone, then COUNT beside the batch. Prints when
 * each burst began (CLOCK_MONOTONIC) and what it took, from before its first launch until the synchronise was done, in
 * nanoseconds, first those alone.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/spin.h"

#define BURST_KERNEL_NS 100000
#define LEAD_US 60 /* a timed sleep and a launch together, on a small VM: with less the card idles between two */
#define WARM_UP 10

enum turn { BATCH, WANTED, LATENCY }; /* whose the card is */

static void hand_over(uint32_t *turn, uint32_t whose) {
    __atomic_store_n(turn, whose, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Sleep while it is this one's. */
static void while_turn(uint32_t *turn, uint32_t whose) {
    while (__atomic_load_n(turn, __ATOMIC_SEQ_CST) == whose)
        syscall(SYS_futex, turn, FUTEX_WAIT, whose, NULL, NULL, 0);
}

static void batch(uint32_t *turn, uint64_t kernel_ns) {
    start();
    for (uint64_t end_ns = 0;;) { /* of what was launched */
        if (__atomic_load_n(turn, __ATOMIC_SEQ_CST) == WANTED) {
            need(cuStreamSynchronize(stream), "cuStreamSynchronize");
            hand_over(turn, LATENCY);
        }
        while_turn(turn, LATENCY);
        launch(kernel_ns);
        uint64_t at_ns = now_ns();
        end_ns = (end_ns > at_ns ? end_ns : at_ns) + kernel_ns;
        if (end_ns > at_ns + LEAD_US * 1000)
            rest_ns(end_ns - at_ns - LEAD_US * 1000);
    }
}

static void bursts(uint32_t *turn, uint64_t burst_ns, uint64_t away_ns, long count, int beside) {
    for (long burst = -WARM_UP; burst < count; burst++) {
        uint64_t start_ns = now_ns();
        if (beside) {
            __atomic_store_n(turn, WANTED, __ATOMIC_SEQ_CST);
            while_turn(turn, WANTED);
        }
        for (uint64_t sum_ns = 0; sum_ns < burst_ns; sum_ns += BURST_KERNEL_NS)
            launch(BURST_KERNEL_NS);
        need(cuStreamSynchronize(stream), "cuStreamSynchronize");
        if (burst >= 0)
            printf("%llu %llu\n", (unsigned long long)start_ns, (unsigned long long)(now_ns() - start_ns));
        if (beside)
            hand_over(turn, BATCH);
        rest_ns(away_ns);
    }
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: preempt BURST_US AWAY_US COUNT KERNEL_US\n");
        return 2;
    }
    uint64_t burst_ns = strtoull(argv[1], NULL, 10) * 1000, away_ns = strtoull(argv[2], NULL, 10) * 1000;
    uint64_t kernel_ns = strtoull(argv[4], NULL, 10) * 1000;
    long count = atol(argv[3]);
    uint32_t *turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (turn == MAP_FAILED)
        return 1;
    *turn = LATENCY;
    prctl(PR_SET_TIMERSLACK, 1UL); /* the child's too */
    pid_t child = fork();
    if (child < 0)
        return 1;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        batch(turn, kernel_ns);
    }
    start();
    bursts(turn, burst_ns, away_ns, count, 0);
    hand_over(turn, BATCH);
    bursts(turn, burst_ns, away_ns, count, 1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
