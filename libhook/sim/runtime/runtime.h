/*
 * runtime.h - what the parts of the simulated CUDA runtime share.
 *
 * Theory. NVIDIA's runtime library works with NVIDIA's driver only. This one stands in its place on the simulated
 * driver (and refuses any other). It does what the documentation says of each call by calls of the public driver API,
 * which it finds as the real one does, by dlopen, one dlsym and cuGetProcAddress. So a library that was preloaded to
 * look at the driver's calls sees the same here as there.
 *
 * Nothing happens before the first call: registering kernels only notes where their code is. The first call of a
 * thread that needs a context makes the primary context of its device current.
 */
#ifndef GEMINI_SIM_RUNTIME_H
#define GEMINI_SIM_RUNTIME_H

#include <stdbool.h>
#include <string.h>

#include "libhook/sim/runtime/cudart_abi.h"
#include "libhook/sim/runtime/errors.h"

#if CUDA_MAJOR != 12 && CUDA_MAJOR != 13
#error "CUDA_MAJOR is 12 or 13"
#endif

/* Every driver function that has a prototype, by its symbol; one that the driver lacks answers NOT_SUPPORTED. */
struct runtime_driver {
#define HOOK(symbol, name, since, flavour, class_) __typeof__(symbol) *symbol;
#define PASS(symbol, name, since, flavour, reason) __typeof__(symbol) *symbol;
#include "libhook/driver/cuda_hooks.h"
};
extern struct runtime_driver cu;

struct runtime_thread {
    int device; /* of a thread that has no context yet */
    cudaError_t last;
};
extern _Thread_local struct runtime_thread runtime_thread;

/* The driver is there and started. */
cudaError_t runtime_start(void);

/* And this thread has a current context. */
cudaError_t runtime_ready(void);

/* A stand-in that is not there: says so once a name, on stderr. */
cudaError_t runtime_refuse(const char *name, unsigned char *said);

/* The thread's last error, if it is one; the result itself. */
static inline cudaError_t runtime_end(cudaError_t result) {
    if (__builtin_expect(result != 0, 0))
        runtime_thread.last = result;
    return result;
}

#define EXPORT __attribute__((visibility("default")))
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        cudaError_t try_result = (cudaError_t)(call);                                                                  \
        if (__builtin_expect(try_result != 0, 0))                                                                      \
            return runtime_end(try_result);                                                                            \
    } while (0)
#define NEED(condition, error)                                                                                         \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return runtime_end(error);                                                                                 \
    } while (0)

/* CALL: a function that is one line over the driver, with a current context. START: one that needs no context.
 * STREAM: one that takes a stream, and its variant for programs compiled with per-thread default streams. */
#define CALL(name, parameters, ...)                                                                                    \
    EXPORT cudaError_t name parameters;                                                                                \
    cudaError_t name parameters {                                                                                      \
        TRY(runtime_ready());                                                                                          \
        return runtime_end((cudaError_t)(__VA_ARGS__));                                                                \
    }
#define START(name, parameters, ...)                                                                                   \
    EXPORT cudaError_t name parameters;                                                                                \
    cudaError_t name parameters {                                                                                      \
        TRY(runtime_start());                                                                                          \
        return runtime_end((cudaError_t)(__VA_ARGS__));                                                                \
    }
#define STREAM(name, parameters, ...)                                                                                  \
    CALL(name, parameters, __VA_ARGS__)                                                                                \
    EXPORT cudaError_t name##_ptsz parameters;                                                                         \
    cudaError_t name##_ptsz parameters {                                                                               \
        TRY(runtime_ready());                                                                                          \
        stream = stream ? stream : CU_STREAM_PER_THREAD;                                                               \
        return runtime_end((cudaError_t)(__VA_ARGS__));                                                                \
    }

/* code.c: the driver's handle of what a program gives as a kernel: its host address, or a handle already. */
cudaError_t runtime_kernel(const void *function, CUkernel *kernel);
cudaError_t runtime_symbol(const void *symbol, CUdeviceptr *address, size_t *bytes);

/* device.c: the primary context of a device, taken once. */
cudaError_t runtime_primary(int device, CUcontext *context);

#endif
