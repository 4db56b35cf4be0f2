/*
 * Starting up, errors, and the life of the process: cuInit takes the seat at the machine; a forked child has none until
 * it calls cuInit itself (a real driver does not support CUDA in such a child at all).
 */
#include <stdio.h>
#include <stdlib.h>

#include "libhook/sim/driver/event_shared.h"
#include "libhook/sim/driver/heap.h"
#include "libhook/sim/driver/host.h"
#include "libhook/sim/driver/pool.h"
#include "libhook/sim/driver/queue.h"

/* By this name other simulated libraries know that the driver is one: they refuse to work on any other. */
extern const char geminiSimulatedDriver[] __attribute__((visibility("default")));
const char geminiSimulatedDriver[] = "simulated";

int strict_calls;
struct driver driver = {.lock = PTHREAD_MUTEX_INITIALIZER};
_Thread_local struct thread thread __attribute__((tls_model("initial-exec")));

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

static void forget(void) {
    if (!driver.initialised)
        return;
    host_forget();
    front_forget();
    event_shared_forget();
    context_forget_all();
    queue_forget_all();
    pool_forget_all();
    heap_forget_all();
    slab_forget_all();
    sim_forget(&driver.seat);
    memset(&driver, 0, sizeof(driver));
    memset(&thread, 0, sizeof(thread));
    strict_calls = 0;
    driver_ended = false;
    pthread_mutex_init(&driver.lock, NULL);
    pthread_mutex_init(&start_lock, NULL);
}

/* ---- fatal_exit ---- */

bool driver_ended;
static pthread_t ending_thread;

static void ends(void) {
    if (!driver.initialised || !spec()->fatal_exit)
        return;
    ending_thread = pthread_self();
    __atomic_store_n(&driver_ended, true, __ATOMIC_RELEASE);
}

void driver_called_after_end(void) {
    if (!pthread_equal(ending_thread, pthread_self()))
        abort();
}

CUresult cuInit(unsigned int flags) {
    static bool watching_forks;
    char why[256];
    CUresult result = CUDA_SUCCESS;
    NEED(flags == 0, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&start_lock);
    if (!driver.initialised) {
        const char *text = getenv("GEMINI_SIM");
        driver.spec_text = text ? text : "";
        if (sim_sit(&driver.seat, driver.spec_text, true, why, sizeof(why))) {
            fprintf(stderr, "simulated driver: %s\n", why);
            result = CUDA_ERROR_NO_DEVICE;
        } else {
            if (!watching_forks)
                pthread_atfork(NULL, NULL, forget);
            if (!watching_forks)
                atexit(ends);
            watching_forks = true;
            visible_devices(getenv("CUDA_VISIBLE_DEVICES"));
            driver.initialised = driver.devices > 0;
            if (!driver.initialised) {
                sim_rise(&driver.seat);
                result = CUDA_ERROR_NO_DEVICE;
            } else {
                strict_calls = (int)spec()->strict;
            }
        }
    }
    pthread_mutex_unlock(&start_lock);
    return result;
}

/* A process that ends in an orderly way leaves the machine at once; any other is found dead by the rest. Threads may
 * still be inside of the driver, so nothing is unmapped. */
__attribute__((destructor)) static void leave(void) {
    if (driver.initialised)
        sim_leave(&driver.seat);
}

CUresult cuDriverGetVersion(int *version) {
    struct sim_spec wanted;
    char why[256];
    NEED(version, CUDA_ERROR_INVALID_VALUE);
    if (driver.initialised)
        *version = (int)spec()->driver_version;
    else if (sim_spec_parse(getenv("GEMINI_SIM"), &wanted, NULL, why, sizeof(why)))
        return CUDA_ERROR_NO_DEVICE;
    else
        *version = (int)wanted.driver_version;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
    NEED(name, CUDA_ERROR_INVALID_VALUE);
    switch (error) {
#define NAME(code, value, words)                                                                                       \
    case code: *name = #code; return CUDA_SUCCESS;
        CUDA_ERRORS(NAME)
    default: *name = NULL; return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuGetErrorString(CUresult error, const char **words) {
    NEED(words, CUDA_ERROR_INVALID_VALUE);
    switch (error) {
#define WORDS(code, value, text)                                                                                       \
    case code: *words = text; return CUDA_SUCCESS;
        CUDA_ERRORS(WORDS)
    default: *words = NULL; return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Private tables belong to NVIDIA's own libraries; there is nothing honest to answer. */
CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    NEED(table && id, CUDA_ERROR_INVALID_VALUE);
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
