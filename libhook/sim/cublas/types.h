/*
 * types.h - what cuBLAS and cuBLASLt share of their ABI: statuses, types of elements, and what they mean for the time.
 */
#ifndef GEMINI_SIM_CUBLAS_TYPES_H
#define GEMINI_SIM_CUBLAS_TYPES_H

#include "libhook/sim/model/roofline.h"

#define CUBLAS_STATUSES(X)                                                                                             \
    X(CUBLAS_STATUS_SUCCESS, 0)                                                                                        \
    X(CUBLAS_STATUS_NOT_INITIALIZED, 1)                                                                                \
    X(CUBLAS_STATUS_ALLOC_FAILED, 3)                                                                                   \
    X(CUBLAS_STATUS_INVALID_VALUE, 7)                                                                                  \
    X(CUBLAS_STATUS_ARCH_MISMATCH, 8)                                                                                  \
    X(CUBLAS_STATUS_MAPPING_ERROR, 11)                                                                                 \
    X(CUBLAS_STATUS_EXECUTION_FAILED, 13)                                                                              \
    X(CUBLAS_STATUS_INTERNAL_ERROR, 14)                                                                                \
    X(CUBLAS_STATUS_NOT_SUPPORTED, 15)                                                                                 \
    X(CUBLAS_STATUS_LICENSE_ERROR, 16)
#define STATUS(name, value) name = value,
typedef enum { CUBLAS_STATUSES(STATUS) } cublasStatus_t;
#undef STATUS

/* cudaDataType: pairs of a real and a complex type, as far as they are told apart here. */
enum { R_32F = 0, R_64F = 1, R_16F = 2, R_8I = 3, C_32F = 4, C_64F = 5, R_16BF = 14, R_8F_E4M3 = 28, R_8F_E5M2 = 29 };

static inline unsigned blas_bytes(int type) {
    switch (type) {
    case R_64F:
    case C_32F: return 8;
    case C_64F: return 16;
    case R_16F:
    case R_16BF: return 2;
    case R_8I:
    case R_8F_E4M3:
    case R_8F_E5M2: return 1;
    default: return 4;
    }
}

/* The units that a product of such elements runs in; 74, 75 and 77 are the computations that may be less exact. */
static inline enum roofline_precision blas_precision(int type, int compute) {
    switch (blas_bytes(type)) {
    case 1: return EIGHT_BITS;
    case 2: return HALF;
    case 4: return compute >= 74 && compute <= 77 ? TENSOR32 : FLOAT32;
    default: return type == C_32F ? FLOAT32 : FLOAT64;
    }
}

#endif
