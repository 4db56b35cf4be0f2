/*
 * fuzz.h - what a fuzz target is: one C file that defines the two functions below. It is linked either with libFuzzer
 * (clang -fsanitize=fuzzer), which steers by coverage, or with driver.c, a plain mutator for machines that have only gcc.
 *
 * A target judges what it sees: fuzz_require() ends the process where a claim does not hold, and the sanitizers end it
 * where memory or arithmetic is at fault.
 */
#ifndef GEMINI_FUZZ_H
#define GEMINI_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define FUZZ_INPUT_MAX 8192

/* One input. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* The seed number `index` into `out` (FUZZ_INPUT_MAX bytes); returns its size, or 0 when there are no more. */
size_t fuzz_seed(unsigned index, uint8_t *out);

#define fuzz_require(claim)                                                                                            \
    do {                                                                                                               \
        if (!(claim)) {                                                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #claim);                                 \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
