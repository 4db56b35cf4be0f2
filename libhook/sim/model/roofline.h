/*
 * roofline.h - how long a kernel takes on a card of which the data sheet is known.
 *
 * The longer of two: its arithmetic at the card's dense peak of that precision, and its bytes at the card's memory
 * bandwidth; never less than FLOOR_NS, which is about what an empty kernel takes. Of a kernel that only its shape is
 * known of, THREAD_BYTES are taken for each thread: four values of 4 bytes read and written. Each launch differs from
 * that by up to SPREAD_PERCENT either way. The peaks are what a data sheet promises: real kernels are slower, all of
 * them, by a third or more; shares and waits do not depend on it.
 */
#ifndef GEMINI_SIM_ROOFLINE_H
#define GEMINI_SIM_ROOFLINE_H

#include <stdint.h>

enum roofline_precision { FLOAT64, FLOAT32, TENSOR32, HALF, EIGHT_BITS, PRECISIONS };
enum { ROOFLINE_FLOOR_NS = 2000, ROOFLINE_THREAD_BYTES = 32, ROOFLINE_SPREAD_PERCENT = 3 };

/* From NVIDIA's public data sheets, dense. */
struct roofline {
    const char *profile, *name;
    uint64_t memory_bytes, bytes_per_s;
    int multiprocessors, major, minor;
    uint32_t gflops[PRECISIONS];
};

/* The card of that name, in any case of letters; NULL: there is none. "": the one that stands where none is named. */
const struct roofline *roofline_of(const char *profile);

uint64_t roofline_ns(const struct roofline *card, uint64_t flops, uint64_t bytes, uint32_t precision);

/* Of a kernel that runs in so many threads, and nothing else is known of. */
uint64_t roofline_shape_ns(const struct roofline *card, uint64_t threads);

/* The same, some percent off; `draw` is any number that differs from launch to launch. */
uint64_t roofline_spread(uint64_t ns, uint64_t draw);

#endif
