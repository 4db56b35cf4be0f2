/* waited.c - for how long a lane's host waited in vain (waited.h). */
#include "libhook/runtime/waited.h"

static uint64_t later(uint64_t a_ns, uint64_t b_ns) {
    return a_ns > b_ns ? a_ns : b_ns;
}

static uint64_t less(uint64_t ns, uint64_t by_ns) {
    return ns > by_ns ? ns - by_ns : 0;
}

uint64_t waited_beside(struct waited *waited, const struct waited_chunk *chunk) {
    uint64_t first_ns = less(chunk->first_ns, chunk->before_ns), out_ns = less(chunk->out_ns, chunk->before_ns);
    uint64_t end_ns = less(chunk->end_ns, waited->total_ns);

    waited->alone_ns = later(later(waited->alone_ns, first_ns) + chunk->busy_ns, out_ns + chunk->each_ns);
    if (waited->alone_ns > end_ns)
        waited->alone_ns = end_ns; /* what is believed may be too long */
    uint64_t late_ns = end_ns - waited->alone_ns;
    uint64_t counts_ns = late_ns < chunk->silent_ns ? late_ns : chunk->silent_ns;
    waited->total_ns += counts_ns;
    return counts_ns;
}

void waited_alone(struct waited *waited, uint64_t end_ns) {
    waited->alone_ns = less(end_ns, waited->total_ns);
}
