/*
 * real.c - find the driver that the application uses, and every function of the table in it.
 *
 * Where from, in this order, for each symbol:
 *   1. RTLD_NEXT: the next definition after this library in the global scope. That is libcuda where the program is
 *      linked against it, or another interposer that was preloaded behind us and must keep its place.
 *   2. The libcuda.so.1 that is already loaded (RTLD_NOLOAD), for programs that opened it RTLD_LOCAL: RTLD_NEXT cannot
 *      see that one.
 *   3. The driver's own cuGetProcAddress, asked for exactly the version in which the row's ABI came, for functions
 *      that a driver has but does not export by that name.
 *
 * It may not: load a library that the application did not load, take a lock, allocate, or change errno.
 */
#define _GNU_SOURCE
#include "libhook/driver/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "libhook/driver/rows.h"

/* Flags of cuGetProcAddress (cuda.h, CUdriverProcAddress_flags). */
enum { ASK_LEGACY_STREAM = 1, ASK_PER_THREAD_STREAM = 2 };

#define HOOK(symbol, name, since, flavour, class_) void real_stub_##symbol(void);
#define PASS(symbol, name, since, flavour, reason) void real_stub_##symbol(void);
#include "libhook/driver/cuda_hooks.h"

struct real_driver real = {
#define HOOK(symbol, name, since, flavour, class_) .symbol = (__typeof__(symbol) *)real_stub_##symbol,
#define PASS(symbol, name, since, flavour, reason) .symbol = (__typeof__(symbol) *)real_stub_##symbol,
#include "libhook/driver/cuda_hooks.h"
};

enum { POINTERS = sizeof(struct real_driver) / sizeof(void *) };

/* Both are written with the same values by whichever threads look first; `loaded` last, with release. */
static int loaded;
static void *driver_handle;

/* Stubs call it by the row's number; see stubs.S. */
void *real_bind(uintptr_t row) __attribute__((visibility("hidden")));

CUresult real_missing(void) {
    return CUDA_ERROR_NOT_FOUND;
}

static CUresult no_driver(void) {
    return CUDA_ERROR_NO_DEVICE;
}

/* The next definition in either of the C library's versions. Looked up once: a version that is not there is a search of
 * every library. */
static void *next_version(const char *name, const char *old_version, void **kept) {
    void *found = __atomic_load_n(kept, __ATOMIC_ACQUIRE);
    if (found == NULL) {
        found = dlvsym(RTLD_NEXT, name, "GLIBC_2.34");
        if (found == NULL)
            found = dlvsym(RTLD_NEXT, name, old_version);
        __atomic_store_n(kept, found, __ATOMIC_RELEASE);
    }
    return found;
}

real_dlsym_function *real_dlsym(void) {
    static void *kept;
    return (real_dlsym_function *)next_version("dlsym", "GLIBC_2.2.5", &kept);
}

real_dlopen_function *real_dlopen(void) {
    static void *kept;
    return (real_dlopen_function *)next_version("dlopen", "GLIBC_2.2.5", &kept);
}

real_dlmopen_function *real_dlmopen(void) {
    static void *kept;
    return (real_dlmopen_function *)next_version("dlmopen", "GLIBC_2.3.4", &kept);
}

/* The dynamic loader takes the return address for the caller's identity: the call must stand here, and must not be
 * turned into a jump, or RTLD_NEXT would mean "after whoever called us". */
static __attribute__((noinline)) void *next_symbol(const char *name) {
    void *found = real_dlsym()(RTLD_NEXT, name);
    __asm__ volatile("" ::: "memory");
    return found;
}

static void *handle_symbol(void *handle, const char *name) {
    return handle == NULL ? NULL : real_dlsym()(handle, name);
}

/* Steps 1 and 2. A search of the whole global scope is not cheap: where cuInit is not there, nothing is. */
static void *find(void *handle, bool in_global_scope, const char *name) {
    void *found = in_global_scope ? next_symbol(name) : NULL;
    return found != NULL ? found : handle_symbol(handle, name);
}

/* A driver that is not bound inside itself may answer with our own exported function, which leads back to here. */
static bool is_own(void *function) {
    Dl_info there, here;
    return dladdr(function, &there) != 0 && dladdr((void *)real_missing, &here) != 0 &&
           there.dli_fbase == here.dli_fbase;
}

/* Step 3. `ask` is the driver's cuGetProcAddress_v2, or NULL where it has version 1 only. */
static void *ask_driver(
    const struct row *row, __typeof__(cuGetProcAddress_v2) *ask, __typeof__(cuGetProcAddress) *ask_v1) {
    cuuint64_t flags = row->flavour == PER_THREAD ? ASK_PER_THREAD_STREAM : ASK_LEGACY_STREAM;
    CUdriverProcAddressQueryResult status;
    void *found = NULL;
    CUresult result = CUDA_ERROR_NOT_FOUND;
    if (ask != NULL)
        result = ask(row_name(row), &found, row->since, flags, &status);
    else if (ask_v1 != NULL)
        result = ask_v1(row_name(row), &found, row->since, flags);
    return result == CUDA_SUCCESS && found != NULL && !is_own(found) ? found : NULL;
}

static void fill(void *handle, bool in_global_scope) {
    void **pointers = (void **)&real;
    __typeof__(cuGetProcAddress_v2) *ask = (__typeof__(ask))find(handle, in_global_scope, "cuGetProcAddress_v2");
    __typeof__(cuGetProcAddress) *ask_v1 = (__typeof__(ask_v1))find(handle, in_global_scope, "cuGetProcAddress");
    for (const struct row *row = rows; row < rows + ROWS_CUDA; row++) {
        if (row->pointer == ROW_NO_POINTER)
            continue;
        void *found = find(handle, in_global_scope, row_symbol(row));
        if (found == NULL)
            found = ask_driver(row, ask, ask_v1);
        __atomic_store_n(&pointers[row->pointer], found != NULL ? found : (void *)real_missing, __ATOMIC_RELAXED);
    }
}

bool real_loaded(void) {
    return __atomic_load_n(&loaded, __ATOMIC_ACQUIRE) != 0;
}

bool real_load(const char *hint) {
    if (real_loaded())
        return true;
    if (real_dlsym() == NULL || real_dlopen() == NULL)
        return false;
    int saved_errno = errno;
    void *handle = real_dlopen()("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (handle == NULL && hint != NULL)
        handle = real_dlopen()(hint, RTLD_NOW | RTLD_NOLOAD);
    void *next = next_symbol("cuInit");
    if (handle == NULL && next != NULL) {
        Dl_info where;
        if (dladdr(next, &where) != 0)
            handle = real_dlopen()(where.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    }
    bool found = handle != NULL || next != NULL;
    if (found) {
        fill(handle, next != NULL);
        __atomic_store_n(&driver_handle, handle, __ATOMIC_RELAXED);
        __atomic_store_n(&loaded, 1, __ATOMIC_RELEASE);
    }
    dlerror(); /* what we looked for in vain is not the application's error */
    errno = saved_errno;
    return found;
}

void *real_pointer(const struct row *row) {
    return real_loaded() && row->pointer != ROW_NO_POINTER
               ? __atomic_load_n(&((void **)&real)[row->pointer], __ATOMIC_RELAXED)
               : NULL;
}

void *real_symbol(const char *name) {
    if (!real_load(NULL))
        return NULL;
    int saved_errno = errno;
    void *found = handle_symbol(__atomic_load_n(&driver_handle, __ATOMIC_RELAXED), name);
    if (found == NULL) {
        found = next_symbol(name);
        if (found == NULL)
            dlerror();
    }
    errno = saved_errno;
    return found;
}

void *real_bind(uintptr_t row) {
    if (!real_load(NULL))
        return (void *)no_driver;
    return row < POINTERS ? __atomic_load_n(&((void **)&real)[row], __ATOMIC_RELAXED) : (void *)real_missing;
}
