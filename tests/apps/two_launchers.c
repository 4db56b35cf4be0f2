/*
 * two_launchers.c - two threads that launch into one stream in turn, as PyTorch's forward and backward passes do.
 * KERNEL_US is a kernel's time on the card, HOST_US the processor's before each launch. EACH launches of one thread, then
 * EACH of the other, and a wait for the card: so it goes until SIGTERM.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "bench/spin.h"

static volatile sig_atomic_t over;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;
static uint64_t kernel_ns, host_ns, each;

static void on_term(int number) {
    (void)number;
    over = 1;
}

static void work(void) {
    for (uint64_t until_ns = now_ns() + host_ns; now_ns() < until_ns;)
        __builtin_ia32_pause();
}

static void *launcher(void *argument) {
    int mine = argument != NULL;
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (;;) {
        pthread_mutex_lock(&lock);
        while (turn != mine && !over)
            pthread_cond_wait(&turned, &lock);
        pthread_mutex_unlock(&lock);
        for (uint64_t i = 0; i < each && !over; i++) {
            work();
            launch(kernel_ns);
        }
        if (mine)
            need(cuStreamSynchronize(stream), "cuStreamSynchronize");
        pthread_mutex_lock(&lock);
        turn = !mine;
        pthread_cond_signal(&turned);
        pthread_mutex_unlock(&lock);
        if (over)
            return NULL;
    }
}

int main(int argc, char **argv) {
    pthread_t other;

    if (argc != 4) {
        fprintf(stderr, "usage: two_launchers KERNEL_US HOST_US EACH\n");
        return 2;
    }
    kernel_ns = strtoull(argv[1], NULL, 10) * 1000;
    host_ns = strtoull(argv[2], NULL, 10) * 1000;
    each = strtoull(argv[3], NULL, 10);
    signal(SIGTERM, on_term);
    start();
    if (pthread_create(&other, NULL, launcher, &lock))
        return 1;
    launcher(NULL);
    pthread_join(other, NULL);
    return 0;
}
