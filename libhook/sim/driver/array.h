/* array.h - CUDA arrays: pitched memory with a shape. */
#ifndef GEMINI_SIM_ARRAY_H
#define GEMINI_SIM_ARRAY_H

#include "libhook/sim/driver/driver.h"

struct CUarray_st {
    struct slab_head head;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUdevice device;
    CUdeviceptr address;
    size_t row_bytes, rows, slices, pitch;
    struct CUmipmappedArray_st *level_of; /* then the memory is the mipmap's */
};

/* The context ends, and its arrays with it. */
void array_end_context(struct CUctx_st *ctx);

#endif
