/*
 * hostbound.c - a program whose host takes time: a kernel of KERNEL_US, HOST_US of work on the processor, the next kernel.
 * It waits for the card after every SYNC_EVERY launches (0: never). With EVERY_US and PAUSE_US it also sleeps for PAUSE_US
 * after each EVERY_US. With PERIOD_US it is a server: requests come at random (exponential, PERIOD_US apart on average,
 * the same in each run), each is SYNC_EVERY launches and one wait, and it sleeps while there is none.
 *
 * Until SIGTERM; then it prints, one a line, how long each iteration took in nanoseconds: from its first launch (of a
 * request: from its arrival) until the wait was over. Host work is measured in processor time of the thread: who has to
 * wait for a processor does not get it for nothing.
 */
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>

#include "bench/spin.h"

enum { MOST = 1 << 20 };

static volatile sig_atomic_t over;
static uint64_t took_ns[MOST];
static unsigned count;

static void on_term(int number) {
    (void)number;
    over = 1;
}

static uint64_t worked_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void work(uint64_t ns) {
    if (!ns)
        return;
    for (uint64_t until_ns = worked_ns() + ns; worked_ns() < until_ns;)
        for (int i = 0; i < 64; i++)
            __builtin_ia32_pause();
}

static void note(uint64_t ns) {
    if (count < MOST)
        took_ns[count++] = ns;
}

/* When the next request comes, after the one at `at_ns`. */
static uint64_t next_arrival(uint64_t at_ns, double period_ns) {
    static uint64_t state = 88172645463325252ull; /* xorshift64, Marsaglia 2003 */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    double part = ((double)(state >> 11) + 1) / 9007199254740993.0;
    return at_ns + (uint64_t)(-log(part) * period_ns);
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: hostbound KERNEL_US HOST_US SYNC_EVERY EVERY_US PAUSE_US PERIOD_US\n");
        return 2;
    }
    uint64_t kernel_ns = strtoull(argv[1], NULL, 10) * 1000, host_ns = strtoull(argv[2], NULL, 10) * 1000;
    uint64_t sync_every = strtoull(argv[3], NULL, 10);
    uint64_t every_ns = strtoull(argv[4], NULL, 10) * 1000, pause_ns = strtoull(argv[5], NULL, 10) * 1000;
    uint64_t period_ns = strtoull(argv[6], NULL, 10) * 1000;
    if (period_ns && !sync_every) {
        fprintf(stderr, "hostbound: a server needs SYNC_EVERY, the launches of a request\n");
        return 2;
    }
    signal(SIGTERM, on_term);
    prctl(PR_SET_TIMERSLACK, 1UL);
    start();
    uint64_t paused_ns = now_ns(), begin_ns = paused_ns, arrival_ns = paused_ns;
    for (uint64_t launched = 0; !over;) {
        if (period_ns && !launched) {
            arrival_ns = begin_ns = next_arrival(arrival_ns, (double)period_ns);
            for (uint64_t now; !over && (now = now_ns()) < arrival_ns;)
                rest_ns(arrival_ns - now < 100000000 ? arrival_ns - now : 100000000);
        } else if (!launched) {
            begin_ns = now_ns();
        }
        work(host_ns);
        launch(kernel_ns);
        if (++launched == sync_every) {
            launched = 0;
            need(cuStreamSynchronize(stream), "cuStreamSynchronize");
            note(now_ns() - begin_ns);
        }
        if (every_ns && now_ns() - paused_ns >= every_ns) {
            rest_ns(pause_ns);
            paused_ns = now_ns();
        }
    }
    for (unsigned i = 0; i < count; i++)
        printf("%llu\n", (unsigned long long)took_ns[i]);
    return 0;
}
