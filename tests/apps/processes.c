/*
 * processes.c - CUDA work in processes made in every way: `processes MODE`. It opens the driver itself.
 *
 *     plain         one process
 *     fork-before   a child forked before the first CUDA call; both work
 *     fork-after    a child forked after it, which starts CUDA anew; both work
 *     fork-threads  four children, forked by two threads while two others launch; all work
 *     fork-start    a child forked by a thread while another starts the library (built with FORK_AT_START); both work
 *     fork-options  the same, while the other thread has the library read its environment
 *     vfork spawn exec   the program is started once more in that way after it has worked (exec: by itself)
 *     threads       16 threads make their first call at the same moment
 *     reopen        the driver is closed by dlclose and opened again, ten times
 *     handler       the handler of a signal that the thread itself raises between two calls does the work
 *     devices       work on each device; prints "device UUID-BYTES-IN-HEX" for each
 *     secure        as plain; prints "secure" first where the kernel says that the process is (AT_SECURE)
 *
 * Each process that has done its work prints "worked PID". Exit status 0 where all went well, else a line on stderr.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KERNEL_NS = 50 * 1000, LAUNCHES = 40, THREADS = 16 };

extern char **environ;

static const char image[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                            ".visible .entry gemini_spin(.param .u64 nanoseconds)\n{ ret; }\n";
static void *driver;
#ifdef THREAD_LOCAL_BYTES /* of each thread's stack */
static __thread volatile char thread_local_bytes[THREAD_LOCAL_BYTES];
#endif

#define CALL(symbol, prototype, ...)                                                                                   \
    do {                                                                                                               \
        int(*call) prototype = (int(*) prototype)dlsym(driver, #symbol);                                               \
        int code = call ? call(__VA_ARGS__) : -1;                                                                      \
        if (code) {                                                                                                    \
            fprintf(stderr, "processes: %d: %s: %d\n", (int)getpid(), #symbol, code);                                  \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static int open_driver(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        fprintf(stderr, "processes: %s\n", dlerror());
    return !driver;
}

static int work_on(int device, int launches) {
    void *context, *module, *function, *stream;
    uint64_t ns = KERNEL_NS, pointer;
    void *parameters[] = {&ns};
    CALL(cuInit, (unsigned), 0);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
    CALL(cuCtxSetCurrent, (void *), context);
    CALL(cuMemAlloc_v2, (uint64_t *, size_t), &pointer, 1 << 20);
    CALL(cuModuleLoadData, (void **, const void *), &module, image);
    CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "gemini_spin");
    CALL(cuStreamCreate, (void **, unsigned), &stream, 0);
    for (int i = 0; i < launches; i++)
        CALL(cuLaunchKernel,
            (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
            function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    CALL(cuStreamSynchronize, (void *), stream);
    CALL(cuMemFree_v2, (uint64_t), pointer);
    return 0;
}

static int work(void) {
    if (work_on(0, LAUNCHES))
        return 1;
    printf("worked %d\n", (int)getpid());
    return fflush(stdout);
}

static int status_of(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return 1;
    return WEXITSTATUS(status);
}

static int fork_before(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(work());
    return work() | status_of(child);
}

static int fork_after(void) {
    if (work())
        return 1;
    pid_t child = fork();
    if (child == 0)
        _exit(work());
    return status_of(child) | work_on(0, LAUNCHES);
}

static int stop;

static void *launch_on(void *failed) {
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
        if (work_on(0, 4))
            *(int *)failed = 1;
    return NULL;
}

static void *fork_two(void *failed) {
    pid_t child[2];
    for (int i = 0; i < 2; i++) {
        child[i] = fork();
        if (child[i] == 0)
            _exit(work());
    }
    for (int i = 0; i < 2; i++)
        if (status_of(child[i]))
            *(int *)failed = 1;
    return NULL;
}

static int fork_threads(void) {
    pthread_t thread[4];
    int failed[4] = {0}, any = work();
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, i < 2 ? launch_on : fork_two, &failed[i]);
    for (int i = 3; i >= 0; i--) {
        pthread_join(thread[i], NULL);
        if (i == 2)
            __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
        any |= failed[i];
    }
    return any;
}

#ifdef FORK_AT_START
static pid_t early_child;
static const char *moment;

static void *fork_early(void *nothing) {
    early_child = fork();
    if (early_child == 0) {
        alarm(100); /* one that hangs is told, and does not stay */
        _exit(work());
    }
    return nothing;
}

static void fork_once(const char *now) {
    static int called;
    pthread_t thread;
    if (moment && strcmp(moment, now) == 0 && !called++ && pthread_create(&thread, NULL, fork_early, NULL) == 0)
        pthread_join(thread, NULL);
}

/* The library calls it in the middle of its start. */
int eventfd(unsigned int count, int flags) {
    fork_once("fork-start");
    return (int)syscall(SYS_eventfd2, count, flags);
}

/* And this before. */
char *getenv(const char *name) {
    size_t length = strlen(name);
    if (strcmp(name, "GEMINI_LOG") == 0)
        fork_once("fork-options");
    for (char **one = environ; one && *one; one++)
        if (strncmp(*one, name, length) == 0 && (*one)[length] == '=')
            return *one + length + 1;
    return NULL;
}

static int fork_start(const char *when) {
    moment = when;
    int status = work();
    return status | (early_child > 0 ? status_of(early_child) : 1);
}
#endif

static int started(const char *how) {
    char *const words[] = {"processes", "plain", NULL};
    pid_t child = -1;
    if (work())
        return 1;
    if (strcmp(how, "exec") == 0) {
        execv("/proc/self/exe", words);
        return 1;
    }
    if (strcmp(how, "spawn") == 0) {
        if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ))
            return 1;
    } else {
        child = vfork();
        if (child == 0) {
            execv("/proc/self/exe", words);
            _exit(1);
        }
    }
    return status_of(child) | work_on(0, LAUNCHES);
}

static pthread_barrier_t barrier;

static void *first_call(void *failed) {
    pthread_barrier_wait(&barrier);
    *(int *)failed = work_on(0, LAUNCHES);
    return NULL;
}

static int threads(void) {
    pthread_t thread[THREADS];
    int failed[THREADS], any = 0;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, first_call, &failed[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        any |= failed[i];
    }
    if (!any)
        printf("worked %d\n", (int)getpid());
    return any;
}

static int reopen(void) {
    for (int i = 0; i < 10; i++)
        if (work_on(0, 4) || dlclose(driver) || open_driver())
            return 1;
    return work();
}

static int handled = 1;

static void handle(int number) {
    (void)number;
    handled = work_on(0, LAUNCHES);
}

static int handler(void) {
    struct sigaction action = {.sa_handler = handle};
    if (work_on(0, 4) || sigaction(SIGUSR1, &action, NULL) || raise(SIGUSR1) || handled)
        return 1;
    return work();
}

static int devices(void) {
    int count;
    unsigned char uuid[16];
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGetCount, (int *), &count);
    for (int device = 0; device < count; device++) {
        CALL(cuDeviceGetUuid, (void *, int), uuid, device);
        if (work_on(device, LAUNCHES * (device + 1)))
            return 1;
        printf("device ");
        for (int i = 0; i < 16; i++)
            printf("%02x", uuid[i]);
        printf("\n");
    }
    printf("worked %d\n", (int)getpid());
    return 0;
}

int main(int argc, char **argv) {
    const char *mode = argc == 2 ? argv[1] : "";
#ifdef THREAD_LOCAL_BYTES
    thread_local_bytes[argc] = 1;
#endif
    if (open_driver())
        return 1;
    if (strcmp(mode, "fork-before") == 0)
        return fork_before();
    if (strcmp(mode, "fork-after") == 0)
        return fork_after();
    if (strcmp(mode, "fork-threads") == 0)
        return fork_threads();
#ifdef FORK_AT_START
    if (strcmp(mode, "fork-start") == 0 || strcmp(mode, "fork-options") == 0)
        return fork_start(mode);
#endif
    if (strcmp(mode, "threads") == 0)
        return threads();
    if (strcmp(mode, "reopen") == 0)
        return reopen();
    if (strcmp(mode, "handler") == 0)
        return handler();
    if (strcmp(mode, "devices") == 0)
        return devices();
    if (strcmp(mode, "vfork") == 0 || strcmp(mode, "spawn") == 0 || strcmp(mode, "exec") == 0)
        return started(mode);
    if (strcmp(mode, "secure") == 0 && getauxval(AT_SECURE))
        printf("secure\n");
    return work();
}
