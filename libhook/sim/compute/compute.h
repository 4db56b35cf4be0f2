/*
 * compute.h - stand-ins for NVIDIA's compute libraries: each call becomes the launch that the real one would make.
 *
 * NOTHING IS COMPUTED. What a product would write stays as it was. The stand-ins are for shares, waits, memory and the
 * lifetimes of things, never for results; they say so on stderr at the first use, and work on the simulated driver only.
 *
 * A launch is a kernel of the name gemini_work_OPERATION_SIZE with what it does as its arguments, so the simulated card
 * times it (roofline.h) and a profile of the program names it. Each name is a library of the driver, made when it is
 * first used and kept.
 */
#ifndef GEMINI_SIM_COMPUTE_H
#define GEMINI_SIM_COMPUTE_H

#include <stdbool.h>

#include "libhook/driver/cuda_abi.h"
#include "libhook/sim/model/roofline.h"

#define EXPORT __attribute__((visibility("default")))

struct work_size {
    uint64_t m, n, k, batch;
};

/* The driver is there, a simulated one, and this thread has a context. */
bool compute_ready(void);

/* Into the stream; false where the driver would not. `element`: bytes of one. */
bool compute_launch(const char *operation, enum roofline_precision precision, const struct work_size *size,
    uint64_t flops, uint64_t bytes, CUstream stream);

/* A product of that size. */
bool compute_product(const char *operation, enum roofline_precision precision, unsigned element,
    const struct work_size *size, CUstream stream);

/* One line on stderr, once a flag. */
void compute_refuse(const char *name, unsigned char *said);

#endif
