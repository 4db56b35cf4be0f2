/*
 * op.h - one operation of a stream: run at once, put into a graph by a capture, or a node's content.
 */
#ifndef GEMINI_SIM_OP_H
#define GEMINI_SIM_OP_H

#include "libhook/sim/driver/driver.h"

/* A kernel's time and shape; `arguments` is a copy of its arguments laid out by their offsets (NULL: none known). */
struct op_kernel {
    CUDA_KERNEL_NODE_PARAMS params; /* kernelParams and extra as the program gave them, or into `arguments` */
    const struct kernel_facts *facts;
    uint64_t duration_ns, group, parts; /* parts: of SIM_WHOLE; 0: all */
    uint32_t peers;
    void **arguments;
    CUlaunchAttributeValue attribute[20];
};

struct op {
    CUgraphNodeType type;
    union {
        struct op_kernel kernel;
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS set;
        CUDA_HOST_NODE_PARAMS host;
        struct CUevent_st *event;
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        CUdeviceptr free;
        CUDA_BATCH_MEM_OP_NODE_PARAMS memory;
        struct CUgraph_st *graph;
    };
};

/* launch.c: fill in facts and time from a function (or kernel) handle and the launch's arguments. */
CUresult op_kernel_resolve(struct op_kernel *kernel);

/* launch.c */
CUresult op_host_run(struct CUstream_st *stream, const CUDA_HOST_NODE_PARAMS *host);

/* memop.c */
CUresult op_memory_run(struct CUstream_st *stream, const CUDA_BATCH_MEM_OP_NODE_PARAMS *memory);

/* copy.c and set.c */
CUresult op_copy_check(const CUDA_MEMCPY3D *copy);
CUresult op_copy_run(struct CUstream_st *stream, const CUDA_MEMCPY3D *copy);
void op_copy_move(const CUDA_MEMCPY3D *copy); /* the bytes */
CUresult op_set_check(const CUDA_MEMSET_NODE_PARAMS *set);
CUresult op_set_run(struct CUstream_st *stream, const CUDA_MEMSET_NODE_PARAMS *set);
void op_set_move(const CUDA_MEMSET_NODE_PARAMS *set);

#endif
