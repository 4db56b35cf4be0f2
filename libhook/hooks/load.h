/*
 * load.h - a kernel's code is loaded before its first launch comes to the gate.
 *
 * Since CUDA 11.7 a driver loads a kernel when it is first launched, which takes it 0.1 to some ms, or compiles it then,
 * which takes longer. Inside of the gate that were time for which the tenant holds the card and does not use it, and
 * it would be taken for the kernel's own length. Drivers before CUDA 12.4 cannot be asked to: there it stays so.
 *
 * A launch takes functions and, cast to one, kernels of libraries; cuFuncLoad is said to take functions only, and
 * cuKernelGetFunction kernels. So what a handle is is known from where the program had it from, and of others, which came
 * by a way that is not hooked, nothing is asked.
 */
#ifndef GEMINI_HOOKS_LOAD_H
#define GEMINI_HOOKS_LOAD_H

#include "libhook/driver/cuda_types.h"

#pragma GCC visibility push(hidden)

/* The driver gave these to the program. */
void load_know_functions(const CUfunction *functions, unsigned int count);
void load_know_kernels(const CUkernel *kernels, unsigned int count);
/* It may never have been launched: see that it is loaded. Keeps quiet of what goes wrong; the launch will say. */
void load_before_launch(CUfunction function);
/* Code was unloaded: handles may come again and mean something else. */
void load_forget(void);

#pragma GCC visibility pop

#endif
