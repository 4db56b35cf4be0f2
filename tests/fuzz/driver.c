/*
 * driver.c - a mutator without coverage, for machines that have no libFuzzer: seeds are cut, joined, repeated, and
 * changed in bits, bytes and words that decoders trip over. The same SEED gives the same inputs.
 *
 *     TARGET --seconds N [--seed S]    for N seconds; prints how many inputs that were
 *     TARGET --runs N [--seed S]       N inputs
 *     TARGET --seeds FOLDER            writes the seeds there, one file each, for libFuzzer
 *     TARGET FILE...                   these inputs, once each: to repeat a finding
 *
 * The input at hand stands in the file `crash-input` of the working folder if the process ends by it. SIGTERM ends a
 * run early; how many inputs it had is printed all the same.
 */
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

#define SEEDS_MAX 64

static uint8_t input[FUZZ_INPUT_MAX];
static size_t input_size;
static uint64_t state;
static volatile sig_atomic_t stopped;

static void stop(int number) {
    (void)number;
    stopped = 1;
}

static uint64_t draw(uint64_t below) { /* xorshift64*; 0 for below 0 */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    uint64_t value = state * 0x2545F4914F6CDD1Dull;
    return below ? (value >> 11) % below : 0;
}

static void keep_input(int number) {
    FILE *file = fopen("crash-input", "wb");
    if (file) {
        fwrite(input, 1, input_size, file);
        fclose(file);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void change(const uint8_t (*seeds)[FUZZ_INPUT_MAX], const size_t *sizes, unsigned count) {
    static const uint64_t WORDS[] = {0, 1, 2, 7, 15, 16, 17, 64, 127, 128, 254, 255, 256, 1023, 1024, 1025, 65535,
        INT32_MAX, 0x80000000u, UINT32_MAX, INT64_MAX, 1ull << 63, UINT64_MAX};
    size_t at = draw(input_size + 1), room = sizeof input - input_size;

    switch (draw(8)) {
    case 0:
        if (at < input_size)
            input[at] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
        if (at < input_size)
            input[at] = (uint8_t)draw(256);
        break;
    case 2: { /* a word of some width, either way round */
        uint64_t word = WORDS[draw(sizeof WORDS / sizeof *WORDS)];
        size_t width = (size_t)1 << draw(4);
        if (draw(2))
            word = __builtin_bswap64(word) >> (64 - 8 * width);
        for (size_t i = 0; i < width && at + i < input_size; i++)
            input[at + i] = (uint8_t)(word >> 8 * i);
        break;
    }
    case 3: /* cut out */
        if (at < input_size) {
            size_t length = 1 + draw(input_size - at);
            memmove(input + at, input + at + length, input_size - at - length);
            input_size -= length;
        }
        break;
    case 4: { /* put in */
        size_t length = draw(33);
        if (length > room)
            break;
        memmove(input + at + length, input + at, input_size - at);
        for (size_t i = 0; i < length; i++)
            input[at + i] = (uint8_t)draw(256);
        input_size += length;
        break;
    }
    case 5: { /* a part once more */
        size_t length = at < input_size ? 1 + draw(input_size - at) : 0;
        if (!length || length > room)
            break;
        memmove(input + at + length, input + at, input_size - at);
        input_size += length;
        break;
    }
    case 6: { /* the tail of another seed */
        unsigned other = (unsigned)draw(count);
        size_t from = draw(sizes[other] + 1), length = sizes[other] - from;
        if (at + length > sizeof input)
            length = sizeof input - at;
        memcpy(input + at, seeds[other] + from, length);
        input_size = at + length;
        break;
    }
    default: input_size = at; break;
    }
}

static double seconds_since(const struct timespec *start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

static int replay(const char *name) {
    FILE *file = fopen(name, "rb");
    if (!file) {
        fprintf(stderr, "fuzz: %s cannot be read\n", name);
        return 1;
    }
    input_size = fread(input, 1, sizeof input, file);
    fclose(file);
    return LLVMFuzzerTestOneInput(input, input_size);
}

int main(int count, char **words) {
    static uint8_t seeds[SEEDS_MAX][FUZZ_INPUT_MAX];
    size_t sizes[SEEDS_MAX];
    unsigned seed_count = 0;
    const char *folder = NULL;
    double seconds = 0;
    uint64_t runs = 0, done = 0;

    state = 1;
    for (int i = 1; i < count; i++) {
        if (i + 1 < count && !strcmp(words[i], "--seconds"))
            seconds = atof(words[++i]);
        else if (i + 1 < count && !strcmp(words[i], "--runs"))
            runs = strtoull(words[++i], NULL, 10);
        else if (i + 1 < count && !strcmp(words[i], "--seed"))
            state = strtoull(words[++i], NULL, 10) | 1;
        else if (i + 1 < count && !strcmp(words[i], "--seeds"))
            folder = words[++i];
        else if (words[i][0] == '-' || replay(words[i]))
            return 2;
    }
    while (seed_count < SEEDS_MAX && (sizes[seed_count] = fuzz_seed(seed_count, seeds[seed_count])))
        seed_count++;
    for (unsigned i = 0; folder && i < seed_count; i++) {
        char name[512];
        snprintf(name, sizeof name, "%s/seed-%u", folder, i);
        FILE *file = fopen(name, "wb");
        if (!file || fwrite(seeds[i], 1, sizes[i], file) != sizes[i] || fclose(file)) {
            fprintf(stderr, "fuzz: %s cannot be written\n", name);
            return 1;
        }
    }
    signal(SIGABRT, keep_input); /* the sanitizers catch the other signals, and end by this one: bench/fuzz.py */
    signal(SIGTERM, stop);
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (!stopped && (done < runs || (seconds > 0 && (done % 256 || seconds_since(&start) < seconds)))) {
        unsigned from = (unsigned)draw(seed_count);
        memcpy(input, seeds[from], sizes[from]);
        input_size = sizes[from];
        for (uint64_t changes = done < seed_count ? 0 : 1 + draw(12); changes; changes--)
            change(seeds, sizes, seed_count);
        LLVMFuzzerTestOneInput(input, input_size);
        done++;
    }
    if (done)
        printf("%llu inputs in %.1f s\n", (unsigned long long)done, seconds_since(&start));
    return 0;
}
