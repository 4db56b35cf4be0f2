/* grid.h - does the number of a launch's blocks tell how much it has to do? */
#ifndef GEMINI_HOOKS_GRID_H
#define GEMINI_HOOKS_GRID_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* It does not where it is made for the card: as many as fit on it at once, the same on each multiprocessor of the current
 * context's device, which divide among themselves whatever there is to do. So do persistent kernels (matrix products of
 * cuBLASLt and CUTLASS) and loops that stride over their grid. */
bool grid_is_fixed(uint64_t blocks);

#pragma GCC visibility pop

#endif
