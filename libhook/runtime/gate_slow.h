/*
 * gate_slow.h - the way of a launch that gate_pass (gate.h) did not let through. It covers how long the launch will
 * take, the in-flight cap, the end of the quota, the event that marks what was launched, and waiting at the gate or for
 * room under the cap.
 */
#ifndef GEMINI_RUNTIME_GATE_SLOW_H
#define GEMINI_RUNTIME_GATE_SLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/driver/cuda_types.h"
#include "libhook/runtime/gate_thread.h"

enum gate_answer { GATE_NOT_OURS, GATE_PASSED, GATE_REFUSED };

#pragma GCC visibility push(hidden)

/* What gate_begin and gate_end do, in full. Errno is kept. */
enum gate_answer gate_begin_slow(CUstream stream, uint64_t key, uint64_t family, uint64_t guess_ns);
void gate_end_slow(struct gate_thread *thread);
/* The calling thread comes to the library again: was it away for so long that the card may have run dry (ahead.h)? */
void gate_host_is_back(void);

#pragma GCC visibility pop

#endif
