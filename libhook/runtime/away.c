/* away.c - two moments for each gate (away.h). */
#include "libhook/runtime/away.h"

#include <string.h>

#include "libhook/core/peek.h"
#include "libhook/core/wire.h"
#include "libhook/runtime/gate.h"

#define AWAY_COUNTS_NS 1000000000ull /* for how long a host that was away is expected to be again */
#define COMPANY_COUNTS_NS 200000000ull  /* ... and another tenant to want the card again */

/* One for each gate; atomic. Zero: never. */
static struct lately {
    uint64_t away_until_ns, company_until_ns;
} lately[WIRE_MAX_DEVICES];

void away_seen(const struct gate *gate, uint64_t now_ns) {
    POKE(lately[gate->ordinal].away_until_ns, now_ns + AWAY_COUNTS_NS);
}

void away_waits(const struct gate *gate, uint64_t now_ns) {
    POKE(lately[gate->ordinal].company_until_ns, now_ns + COMPANY_COUNTS_NS);
}

bool away_is_expected(const struct gate *gate, uint64_t now_ns) {
    const struct lately *of = &lately[gate->ordinal];

    return now_ns < PEEK(of->away_until_ns) && now_ns < PEEK(of->company_until_ns);
}

void away_reset_after_fork(void) {
    memset(lately, 0, sizeof lately);
}
