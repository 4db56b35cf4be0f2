/*
 * probe.h - what the probes share: the driver's functions, how an answer is given, and a kernel that runs as long as told.
 *
 * A probe is a function that runs in a process of its own, so that one that crashes or hangs costs its own answers alone.
 * It knows nothing of Gemini, and includes nothing of it: the ABI is spelt here, so that a mistake in the library's header
 * does not hide itself.
 */
#ifndef GEMINI_PROBE_H
#define GEMINI_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, GLOBAL_CAPTURE = 0, RELAXED_CAPTURE = 2 };
enum { NO_TIMING = 2, NON_BLOCKING = 1, SPIN = 1, BLOCKING = 4 };

#define GRID unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned
#define DRIVER(X)                                                                                                      \
    X(cuInit, (unsigned))                                                                                              \
    X(cuDriverGetVersion, (int *))                                                                                     \
    X(cuDeviceGetName, (char *, int, int))                                                                             \
    X(cuDeviceGetAttribute, (int *, int, int))                                                                         \
    X(cuDeviceGetPCIBusId, (char *, int, int))                                                                         \
    X(cuDeviceTotalMem_v2, (size_t *, int))                                                                            \
    X(cuDevicePrimaryCtxRetain, (void **, int))                                                                        \
    X(cuDevicePrimaryCtxSetFlags_v2, (int, unsigned))                                                                  \
    X(cuCtxSetCurrent, (void *))                                                                                       \
    X(cuCtxSynchronize, (void))                                                                                        \
    X(cuModuleLoadData, (void **, const void *))                                                                       \
    X(cuModuleGetFunction, (void **, void *, const char *))                                                            \
    X(cuLaunchKernel, (void *, GRID, void *, void **, void **))                                                        \
    X(cuStreamCreate, (void **, unsigned))                                                                             \
    X(cuStreamSynchronize, (void *))                                                                                   \
    X(cuStreamIsCapturing, (void *, int *))                                                                            \
    X(cuStreamBeginCapture_v2, (void *, int))                                                                          \
    X(cuStreamEndCapture, (void *, void **))                                                                           \
    X(cuThreadExchangeStreamCaptureMode, (int *))                                                                      \
    X(cuEventCreate, (void **, unsigned))                                                                              \
    X(cuEventRecord, (void *, void *))                                                                                 \
    X(cuEventQuery, (void *))                                                                                          \
    X(cuEventSynchronize, (void *))                                                                                    \
    X(cuEventElapsedTime, (float *, void *, void *))                                                                   \
    X(cuMemAlloc_v2, (uint64_t *, size_t))                                                                             \
    X(cuMemAllocManaged, (uint64_t *, size_t, unsigned))                                                               \
    X(cuMemAllocPitch_v2, (uint64_t *, size_t *, size_t, size_t, unsigned))                                            \
    X(cuMemAllocAsync, (uint64_t *, size_t, void *))                                                                   \
    X(cuMemCreate, (uint64_t *, size_t, const void *, uint64_t))                                                       \
    X(cuMemHostAlloc, (void **, size_t, unsigned))                                                                     \
    X(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *))                                                  \
    X(cuMemcpyDtoDAsync_v2, (uint64_t, uint64_t, size_t, void *))

struct driver {
#define MEMBER(name, arguments) int(*name) arguments;
    DRIVER(MEMBER)
#undef MEMBER
};

extern struct driver cu;

/* Give an answer; the last one under a name counts. */
void say(const char *name, double value);
void say_text(const char *name, const char *value);

/* The driver refused what it ought to do: the probe ends here, with this answer. */
#define NEED(call) need((call), #call)
void need(int code, const char *call);

uint64_t now_ns(void);
double median(double *values, size_t count); /* sorts them */

/* The first card: cuInit, its primary context made current, and the kernel. */
struct card {
    void *context, *spin, *stream;
};
void open_driver(void);
struct card open_card(void);
int spin(const struct card *card, uint64_t ns, void *stream);

/* The time between two events, or the end of the probe. */
double elapsed_ns(void *begin, void *end);

/* The probes. */
void probe_card(void);
void probe_memory(void);
void probe_refusals(void);
void probe_no_context(void);
void probe_captures(void);
void probe_costs(void);
void probe_queue(void);
void probe_loading(void);
void probe_copies(void);
void probe_clock(void);
void probe_slices(void);

#endif
