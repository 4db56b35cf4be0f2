/*
 * load.h - a kernel's code is loaded before its first launch comes to the gate.
 *
 * Since CUDA 11.7 a driver loads a kernel when it is first launched, which takes it 0.1 to some ms, or compiles it then,
 * which takes longer. Inside of the gate that were time for which the tenant holds the card and does not use it, and
 * it would be taken for the kernel's own length. Drivers before CUDA 12.4 cannot be asked to: there it stays so.
 */
#ifndef GEMINI_HOOKS_LOAD_H
#define GEMINI_HOOKS_LOAD_H

#include "libhook/driver/cuda_types.h"

#pragma GCC visibility push(hidden)

/* The function may never have been launched: see that it is loaded. Keeps quiet of what goes wrong; the launch will say. */
void load_before_launch(CUfunction function);
/* Code was unloaded: handles may come again and mean another function. */
void load_forget(void);

#pragma GCC visibility pop

#endif
