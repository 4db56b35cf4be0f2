/* behind.c - for how long work stands still before it is taken to wait for its host (behind.h). */
#include "libhook/runtime/behind.h"

#include <stdbool.h>

#include "libhook/core/peek.h"
#include "libhook/core/wire.h"
#include "libhook/runtime/gate.h"

#define PAUSED_COUNTS_NS 10000000000ull /* so long after a pause was put into a stream it may still stand there */
#define PAUSED_NS 20000000ull           /* what stands still for so long then hardly is a kernel */
#define LONG_NS 2000000000ull           /* ... and where none was: a kernel that spins looks like a long one */
#define PART 8

void behind_paused(int ordinal) {
    if (ordinal >= 0 && ordinal < WIRE_MAX_DEVICES)
        POKE(gates[ordinal].paused_ns, gate_now());
}

uint64_t behind_after(const struct gate *gate, uint64_t stood_ns, uint64_t now_ns) {
    uint64_t paused_ns = PEEK(gate->paused_ns);
    bool paused = paused_ns && (now_ns < paused_ns || now_ns - paused_ns < PAUSED_COUNTS_NS);

    return stood_ns < (paused ? PAUSED_NS : LONG_NS) ? 0 : stood_ns / PART;
}
