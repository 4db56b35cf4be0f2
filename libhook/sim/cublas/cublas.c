/*
 * A stand-in for cuBLAS: products, and vector operations of one length, become one launch each (compute.h). Of the
 * arguments only those are named that say the size; the rest of a call's is not looked at.
 */
#include <stdlib.h>

#include "libhook/sim/compute/compute.h"
#include "libhook/sim/cublas/types.h"

struct cublasContext {
    CUstream stream;
    int math_mode, pointer_mode, atomics_mode, sm_target;
};
typedef struct cublasContext *cublasHandle_t;

enum { TENSOR_OP_TF32 = 3 }; /* CUBLAS_TF32_TENSOR_OP_MATH */

static cublasStatus_t status(bool good) {
    return good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

/* ---- handles ---- */

EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t *out);
cublasStatus_t cublasCreate_v2(cublasHandle_t *out) {
    if (!out)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!compute_ready())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *out = calloc(1, sizeof(**out));
    return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t handle);
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

#define HANDLE(name, parameters, condition, ...)                                                                       \
    EXPORT cublasStatus_t name parameters;                                                                             \
    cublasStatus_t name parameters {                                                                                   \
        if (!(condition))                                                                                              \
            return CUBLAS_STATUS_INVALID_VALUE;                                                                        \
        __VA_ARGS__;                                                                                                   \
        return CUBLAS_STATUS_SUCCESS;                                                                                  \
    }
HANDLE(cublasSetStream_v2, (cublasHandle_t h, CUstream stream), h, h->stream = stream)
HANDLE(cublasGetStream_v2, (cublasHandle_t h, CUstream *out), h &&out, *out = h->stream)
HANDLE(cublasSetMathMode, (cublasHandle_t h, int mode), h, h->math_mode = mode)
HANDLE(cublasGetMathMode, (cublasHandle_t h, int *out), h &&out, *out = h->math_mode)
HANDLE(cublasSetPointerMode_v2, (cublasHandle_t h, int mode), h, h->pointer_mode = mode)
HANDLE(cublasGetPointerMode_v2, (cublasHandle_t h, int *out), h &&out, *out = h->pointer_mode)
HANDLE(cublasSetAtomicsMode, (cublasHandle_t h, int mode), h, h->atomics_mode = mode)
HANDLE(cublasGetAtomicsMode, (cublasHandle_t h, int *out), h &&out, *out = h->atomics_mode)
HANDLE(cublasSetSmCountTarget, (cublasHandle_t h, int count), h, h->sm_target = count)
HANDLE(cublasGetSmCountTarget, (cublasHandle_t h, int *out), h &&out, *out = h->sm_target)
HANDLE(cublasSetWorkspace_v2, (cublasHandle_t h, void *space, size_t bytes), h, (void)space, (void)bytes)
HANDLE(cublasGetVersion_v2, (cublasHandle_t h, int *out), out, (void)h, *out = CUDA_MAJOR * 10000)
HANDLE(cublasGetProperty, (int what, int *out), out, *out = what == 0 ? CUDA_MAJOR : 0)

EXPORT const char *cublasGetStatusName(cublasStatus_t code);
EXPORT const char *cublasGetStatusString(cublasStatus_t code);
const char *cublasGetStatusName(cublasStatus_t code) {
    switch (code) {
#define NAME(name, value)                                                                                              \
    case name: return #name;
        CUBLAS_STATUSES(NAME)
    }
    return "an unknown status";
}
const char *cublasGetStatusString(cublasStatus_t code) {
    return cublasGetStatusName(code);
}

/* ---- products ---- */

/* What a product of float runs in: the tensor cores only where the program allows it. */
static enum roofline_precision float_precision(cublasHandle_t h) {
    return h->math_mode == TENSOR_OP_TF32 ? TENSOR32 : FLOAT32;
}

static cublasStatus_t product(const char *name, cublasHandle_t h, enum roofline_precision precision, unsigned element,
    int64_t m, int64_t n, int64_t k, int64_t batch) {
    if (!h)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (m < 0 || n < 0 || k < 0 || batch < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    const struct work_size size = {(uint64_t)m, (uint64_t)n, (uint64_t)k, (uint64_t)batch};
    return status(compute_product(name, precision, element, &size, h->stream));
}

#define GEMM(suffix, precision, bytes)                                                                                 \
    EXPORT cublasStatus_t cublas##suffix(cublasHandle_t h, int ta, int tb, int m, int n, int k);                       \
    cublasStatus_t cublas##suffix(cublasHandle_t h, int ta, int tb, int m, int n, int k) {                             \
        (void)ta, (void)tb;                                                                                            \
        return product(#suffix, h, precision, bytes, m, n, k, 1);                                                      \
    }
#define BATCHED(suffix, precision, bytes)                                                                              \
    EXPORT cublasStatus_t cublas##suffix(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha,     \
        const void *a, int lda, const void *b, int ldb, const void *beta, void *c, int ldc, int count);                \
    cublasStatus_t cublas##suffix(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha,            \
        const void *a, int lda, const void *b, int ldb, const void *beta, void *c, int ldc, int count) {               \
        (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta, (void)c, (void)ldc;       \
        return product(#suffix, h, precision, bytes, m, n, k, count);                                                  \
    }
#define STRIDED(suffix, precision, bytes)                                                                              \
    EXPORT cublasStatus_t cublas##suffix(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha,     \
        const void *a, int lda, long long sa, const void *b, int ldb, long long sb, const void *beta, void *c,         \
        int ldc, long long sc, int count);                                                                             \
    cublasStatus_t cublas##suffix(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha,            \
        const void *a, int lda, long long sa, const void *b, int ldb, long long sb, const void *beta, void *c,         \
        int ldc, long long sc, int count) {                                                                            \
        (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)sa, (void)b, (void)ldb, (void)sb, (void)beta;       \
        (void)c, (void)ldc, (void)sc;                                                                                  \
        return product(#suffix, h, precision, bytes, m, n, k, count);                                                  \
    }
GEMM(Sgemm_v2, float_precision(h), 4)
GEMM(Dgemm_v2, FLOAT64, 8)
GEMM(Cgemm_v2, FLOAT32, 8)
GEMM(Zgemm_v2, FLOAT64, 16)
GEMM(Hgemm, HALF, 2)
GEMM(SgemmEx, float_precision(h), 4)
BATCHED(SgemmBatched, float_precision(h), 4)
BATCHED(DgemmBatched, FLOAT64, 8)
BATCHED(CgemmBatched, FLOAT32, 8)
BATCHED(ZgemmBatched, FLOAT64, 16)
BATCHED(HgemmBatched, HALF, 2)
STRIDED(SgemmStridedBatched, float_precision(h), 4)
STRIDED(DgemmStridedBatched, FLOAT64, 8)
STRIDED(CgemmStridedBatched, FLOAT32, 8)
STRIDED(ZgemmStridedBatched, FLOAT64, 16)
STRIDED(HgemmStridedBatched, HALF, 2)

EXPORT cublasStatus_t cublasGemmEx(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha,
    const void *a, int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c,
    int ldc, int compute, int algorithm);
cublasStatus_t cublasGemmEx(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
    int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc,
    int compute, int algorithm) {
    (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)b, (void)type_b, (void)ldb, (void)beta, (void)c;
    (void)type_c, (void)ldc, (void)algorithm;
    return product("GemmEx", h, blas_precision(type_a, compute), blas_bytes(type_a), m, n, k, 1);
}

EXPORT cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, int ta, int tb, int m, int n, int k,
    const void *alpha, const void *a, int type_a, int lda, long long sa, const void *b, int type_b, int ldb,
    long long sb, const void *beta, void *c, int type_c, int ldc, long long sc, int count, int compute, int algorithm);
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha,
    const void *a, int type_a, int lda, long long sa, const void *b, int type_b, int ldb, long long sb,
    const void *beta, void *c, int type_c, int ldc, long long sc, int count, int compute, int algorithm) {
    (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)sa, (void)b, (void)type_b, (void)ldb, (void)sb;
    (void)beta, (void)c, (void)type_c, (void)ldc, (void)sc, (void)algorithm;
    return product("GemmStridedBatchedEx", h, blas_precision(type_a, compute), blas_bytes(type_a), m, n, k, count);
}

EXPORT cublasStatus_t cublasGemmBatchedEx(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha,
    const void *a, int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c,
    int ldc, int count, int compute, int algorithm);
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha,
    const void *a, int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c,
    int ldc, int count, int compute, int algorithm) {
    (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)b, (void)type_b, (void)ldb, (void)beta, (void)c;
    (void)type_c, (void)ldc, (void)algorithm;
    return product("GemmBatchedEx", h, blas_precision(type_a, compute), blas_bytes(type_a), m, n, k, count);
}

/* ---- a matrix and a vector, and vectors ---- */

#define MATRIX_VECTOR(suffix, precision, bytes)                                                                        \
    EXPORT cublasStatus_t cublas##suffix(cublasHandle_t h, int trans, int m, int n);                                   \
    cublasStatus_t cublas##suffix(cublasHandle_t h, int trans, int m, int n) {                                         \
        (void)trans;                                                                                                   \
        return product(#suffix, h, precision, bytes, m, 1, n, 1);                                                      \
    }
MATRIX_VECTOR(Sgemv_v2, FLOAT32, 4)
MATRIX_VECTOR(Dgemv_v2, FLOAT64, 8)
MATRIX_VECTOR(Cgemv_v2, FLOAT32, 8)
MATRIX_VECTOR(Zgemv_v2, FLOAT64, 16)

/* A result that belongs on the host (pointer mode 0) is not written: it is the program's own memory as it was. */
#define VECTOR(suffix, precision, bytes)                                                                               \
    EXPORT cublasStatus_t cublas##suffix(cublasHandle_t h, int n);                                                     \
    cublasStatus_t cublas##suffix(cublasHandle_t h, int n) {                                                           \
        return product(#suffix, h, precision, bytes, n, 1, 1, 1);                                                      \
    }
#define VECTORS(operation)                                                                                             \
    VECTOR(S##operation, FLOAT32, 4)                                                                                   \
    VECTOR(D##operation, FLOAT64, 8)                                                                                   \
    VECTOR(C##operation, FLOAT32, 8)                                                                                   \
    VECTOR(Z##operation, FLOAT64, 16)
VECTORS(axpy_v2)
VECTORS(copy_v2)
VECTORS(scal_v2)
VECTORS(swap_v2)
VECTOR(Sdot_v2, FLOAT32, 4)
VECTOR(Ddot_v2, FLOAT64, 8)
VECTOR(Cdotc_v2, FLOAT32, 8)
VECTOR(Cdotu_v2, FLOAT32, 8)
VECTOR(Zdotc_v2, FLOAT64, 16)
VECTOR(Zdotu_v2, FLOAT64, 16)
VECTOR(DotEx, FLOAT32, 4)
VECTOR(Snrm2_v2, FLOAT32, 4)
VECTOR(Dnrm2_v2, FLOAT64, 8)
