#include "libhook/sim/model/roofline.h"

#include <stddef.h>
#include <strings.h>

#define GB 1000000000ull
#define GIB (1ull << 30)

static const struct roofline cards[] = {
    {"h200", "NVIDIA H200 (simulated)", 141 * GB, 4800 * GB, 132, 9, 0, {67000, 67000, 494000, 989000, 1979000}},
    {"a100", "NVIDIA A100-SXM4-80GB (simulated)", 80 * GIB, 2039 * GB, 108, 8, 0,
        {19500, 19500, 156000, 312000, 624000}},
    {"l4", "NVIDIA L4 (simulated)", 24 * GIB, 300 * GB, 58, 8, 9, {473, 30300, 60000, 121000, 242000}},
    {"rtx4090", "NVIDIA GeForce RTX 4090 (simulated)", 24 * GIB, 1008 * GB, 128, 8, 9,
        {1290, 82600, 82600, 165200, 330300}},
};

const struct roofline *roofline_of(const char *profile) {
    if (!*profile)
        return &cards[0];
    for (size_t i = 0; i < sizeof(cards) / sizeof(cards[0]); i++)
        if (strcasecmp(cards[i].profile, profile) == 0)
            return &cards[i];
    return NULL;
}

uint64_t roofline_ns(const struct roofline *card, uint64_t flops, uint64_t bytes, uint32_t precision) {
    const uint32_t gflops = card->gflops[precision < PRECISIONS ? precision : FLOAT32];
    double compute = (double)flops / gflops, memory = (double)bytes * 1e9 / (double)card->bytes_per_s;
    double ns = compute > memory ? compute : memory;
    return ns < ROOFLINE_FLOOR_NS ? ROOFLINE_FLOOR_NS : ns < 9e18 ? (uint64_t)ns : (uint64_t)9e18;
}

uint64_t roofline_shape_ns(const struct roofline *card, uint64_t threads) {
    return roofline_ns(card, 0, threads * ROOFLINE_THREAD_BYTES, FLOAT32);
}

uint64_t roofline_spread(uint64_t ns, uint64_t draw) {
    draw = (draw ^ draw >> 30) * 0xbf58476d1ce4e5b9ull; /* mixed: neighbours differ as much as any two */
    draw = (draw ^ draw >> 27) * 0x94d049bb133111ebull;
    double part = (double)((draw ^ draw >> 31) >> 11) / (double)(1ull << 53);
    return (uint64_t)((double)ns * (1 + (2 * part - 1) * ROOFLINE_SPREAD_PERCENT / 100));
}
