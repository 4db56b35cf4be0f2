/*
 * op_run.h - operations go into streams.
 */
#ifndef GEMINI_SIM_OP_RUN_H
#define GEMINI_SIM_OP_RUN_H

#include "libhook/sim/driver/op.h"

struct CUgraphNode_st;

/* Into the stream: captured if it is capturing, else run. */
CUresult op_submit(struct CUstream_st *stream, const struct op *op);

/* Run in a stream that does not capture. */
CUresult op_run(struct CUstream_st *stream, const struct op *op);

/* Without driver.lock: append all nodes of a graph, in this order, to a stream that does not capture. */
CUresult op_run_graph(struct CUstream_st *stream, struct CUgraphNode_st *const *order, size_t count);

#endif
