/* module.h - code: images, modules, functions, libraries, kernels. */
#ifndef GEMINI_SIM_MODULE_H
#define GEMINI_SIM_MODULE_H

#include "libhook/sim/driver/driver.h"

/* image.c: read PTX text, a cubin, or a fat binary. Kernels, their parameters, global variables. */
CUresult image_read(const void *data, struct image **out);
CUresult image_read_file(const char *path, struct image **out);
void image_drop(struct image *image);
const struct kernel_facts *image_kernel(const struct image *image, const char *name);

/* The context is going: its modules too. */
void module_end_context(struct CUctx_st *ctx);

/* A launch may name a function or a kernel. The facts and, for a function, its module are checked. */
CUresult module_facts(CUfunction handle, struct CUctx_st *ctx, const struct kernel_facts **out);

/* memory.c: memory that was allocated in this context goes with it. */
void memory_end_context(struct CUctx_st *ctx);
CUresult memory_global(struct CUctx_st *ctx, struct symbol *symbol);

/* Load its code, if that was not done yet (spec.load_ns). */
void function_load(CUfunction handle);

/* What of the card such a launch takes, of SIM_WHOLE: its blocks, of those that fit on all multiprocessors at once. */
uint64_t function_parts(const struct kernel_facts *facts, const CUDA_KERNEL_NODE_PARAMS *params);

#endif
