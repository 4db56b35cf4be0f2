/*
 * clock.h - the time by which the simulated machine runs.
 */
#ifndef GEMINI_SIM_CLOCK_H
#define GEMINI_SIM_CLOCK_H

#include <stdint.h>

uint64_t sim_now(void); /* CLOCK_MONOTONIC, ns */

/* Sleep until `until_ns`, exactly: the last microseconds are spun away. */
void sim_sleep(uint64_t until_ns);

#endif
