/*
 * A stand-in for cuBLASLt: a product becomes one launch (compute.h). Descriptors keep what was set and give it back.
 * A handle is not looked at, for programs give that of cuBLAS.
 */
#include <stdlib.h>
#include <string.h>

#include "libhook/sim/compute/compute.h"
#include "libhook/sim/cublas/types.h"

enum { ATTRIBUTES = 64, MOST_BYTES = 32 };

/* A descriptor of any kind: the value of each attribute by its number, as it was written. */
struct descriptor {
    struct {
        size_t bytes;
        char value[MOST_BYTES];
    } attribute[ATTRIBUTES];
};
typedef struct descriptor *descriptor_t;

enum { LAYOUT_TYPE = 0, LAYOUT_ROWS = 2, LAYOUT_COLUMNS = 3, LAYOUT_LD = 4, LAYOUT_BATCH = 5 };
enum { PRODUCT_COMPUTE = 0, PRODUCT_SCALE = 1, PRODUCT_TRANSPOSE_A = 3, PRODUCT_TRANSPOSE_B = 4 };

static cublasStatus_t put(descriptor_t to, int attribute, const void *value, size_t bytes) {
    if (!to || !value || attribute < 0 || attribute >= ATTRIBUTES || bytes > MOST_BYTES)
        return CUBLAS_STATUS_INVALID_VALUE;
    to->attribute[attribute].bytes = bytes;
    memcpy(to->attribute[attribute].value, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get(descriptor_t of, int attribute, void *value, size_t bytes, size_t *written) {
    if (!of || attribute < 0 || attribute >= ATTRIBUTES || (!value && bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    size_t have = of->attribute[attribute].bytes;
    if (written)
        *written = have ? have : bytes;
    if (bytes)
        memset(value, 0, bytes);
    if (bytes && have)
        memcpy(value, of->attribute[attribute].value, have < bytes ? have : bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static uint64_t number(const struct descriptor *of, int attribute, uint64_t otherwise) {
    uint64_t value = 0;
    if (!of || !of->attribute[attribute].bytes)
        return otherwise;
    memcpy(&value, of->attribute[attribute].value, sizeof(value));
    return value;
}

static cublasStatus_t create(descriptor_t *out) {
    if (!out)
        return CUBLAS_STATUS_INVALID_VALUE;
    *out = calloc(1, sizeof(**out));
    return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

#define FUNCTION(name, parameters, ...)                                                                                \
    EXPORT cublasStatus_t name parameters;                                                                             \
    cublasStatus_t name parameters {                                                                                   \
        __VA_ARGS__                                                                                                    \
    }
#define KIND(name)                                                                                                     \
    FUNCTION(name##Destroy, (descriptor_t of), free(of); return CUBLAS_STATUS_SUCCESS;)                                \
    FUNCTION(name##SetAttribute, (descriptor_t to, int attribute, const void *value, size_t bytes),                    \
        return put(to, attribute, value, bytes);)                                                                      \
    FUNCTION(name##GetAttribute, (descriptor_t of, int attribute, void *value, size_t bytes, size_t *written),         \
        return get(of, attribute, value, bytes, written);)
KIND(cublasLtMatrixLayout)
KIND(cublasLtMatmulDesc)
KIND(cublasLtMatmulPreference)
FUNCTION(cublasLtMatmulPreferenceCreate, (descriptor_t * out), return create(out);)
FUNCTION(cublasLtMatrixLayoutCreate, (descriptor_t * out, int type, uint64_t rows, uint64_t columns, int64_t ld),
    cublasStatus_t result = create(out);
    if (result) return result; put(*out, LAYOUT_TYPE, &type, sizeof(type)); put(*out, LAYOUT_ROWS, &rows, sizeof(rows));
    put(*out, LAYOUT_COLUMNS, &columns, sizeof(columns)); return put(*out, LAYOUT_LD, &ld, sizeof(ld));)
FUNCTION(cublasLtMatmulDescCreate, (descriptor_t * out, int compute, int scale), cublasStatus_t result = create(out);
    if (result) return result; put(*out, PRODUCT_COMPUTE, &compute, sizeof(compute));
    return put(*out, PRODUCT_SCALE, &scale, sizeof(scale));)

/* ---- handles ---- */

EXPORT size_t cublasLtGetVersion(void);
EXPORT size_t cublasLtGetCudartVersion(void);
size_t cublasLtGetVersion(void) {
    return CUDA_MAJOR * 10000;
}
size_t cublasLtGetCudartVersion(void) {
    return CUDA_MAJOR * 1000;
}
FUNCTION(cublasLtGetProperty, (int what, int *out), if (!out) return CUBLAS_STATUS_INVALID_VALUE;
    *out = what == 0 ? CUDA_MAJOR : 0; return CUBLAS_STATUS_SUCCESS;)
FUNCTION(cublasLtCreate, (void **out), if (!out) return CUBLAS_STATUS_INVALID_VALUE;
    if (!compute_ready()) return CUBLAS_STATUS_NOT_INITIALIZED; *out = calloc(1, 1);
    return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;)
FUNCTION(cublasLtDestroy, (void *handle), free(handle); return CUBLAS_STATUS_SUCCESS;)

EXPORT const char *cublasLtGetStatusName(cublasStatus_t code);
EXPORT const char *cublasLtGetStatusString(cublasStatus_t code);
const char *cublasLtGetStatusName(cublasStatus_t code) {
    switch (code) {
#define NAME(name, value)                                                                                              \
    case name: return #name;
        CUBLAS_STATUSES(NAME)
    }
    return "an unknown status";
}
const char *cublasLtGetStatusString(cublasStatus_t code) {
    return cublasLtGetStatusName(code);
}

/* ---- algorithms: there is one ---- */

typedef struct {
    uint64_t data[8];
} algorithm_t;

typedef struct {
    algorithm_t algorithm;
    size_t workspace;
    cublasStatus_t state;
    float waves;
    int reserved[4];
} heuristic_t;

static cublasStatus_t only(heuristic_t *out) {
    memset(out, 0, sizeof(*out));
    out->waves = 1;
    return CUBLAS_STATUS_SUCCESS;
}
FUNCTION(cublasLtMatmulAlgoGetHeuristic,
    (void *handle, descriptor_t product, descriptor_t a, descriptor_t b, descriptor_t c, descriptor_t d,
        descriptor_t preference, int wanted, heuristic_t *out, int *found),
    (void)handle, (void)product, (void)a, (void)b, (void)c, (void)d, (void)preference;
    if (!out || !found || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE; *found = 1; return only(out);)
FUNCTION(cublasLtMatmulAlgoCheck,
    (void *handle, descriptor_t product, descriptor_t a, descriptor_t b, descriptor_t c, descriptor_t d,
        const algorithm_t *algorithm, heuristic_t *out),
    (void)handle, (void)product, (void)a, (void)b, (void)c, (void)d, (void)algorithm;
    return out ? only(out) : CUBLAS_STATUS_INVALID_VALUE;)
FUNCTION(cublasLtMatmulAlgoInit,
    (void *handle, int compute, int scale, int a, int b, int c, int d, int id, algorithm_t *out), (void)handle,
    (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d;
    if (!out || id) return CUBLAS_STATUS_INVALID_VALUE; memset(out, 0, sizeof(*out)); return CUBLAS_STATUS_SUCCESS;)
FUNCTION(cublasLtMatmulAlgoGetIds,
    (void *handle, int compute, int scale, int a, int b, int c, int d, int wanted, int *ids, int *found), (void)handle,
    (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d;
    if (!ids || !found || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE; *ids = 0; *found = 1;
    return CUBLAS_STATUS_SUCCESS;)
FUNCTION(cublasLtMatmulAlgoConfigSetAttribute, (algorithm_t * to, int attribute, const void *value, size_t bytes),
    (void)attribute, (void)bytes;
    return to && value ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;)
FUNCTION(cublasLtMatmulAlgoConfigGetAttribute,
    (const algorithm_t *of, int attribute, void *value, size_t bytes, size_t *written), (void)attribute;
    if (!of || (!value && bytes)) return CUBLAS_STATUS_INVALID_VALUE; if (bytes) memset(value, 0, bytes);
    if (written) *written = bytes; return CUBLAS_STATUS_SUCCESS;)

/* ---- the product ---- */

FUNCTION(cublasLtMatmul,
    (void *handle, descriptor_t product, const void *alpha, const void *a, descriptor_t layout_a, const void *b,
        descriptor_t layout_b, const void *beta, const void *c, descriptor_t layout_c, void *d, descriptor_t layout_d,
        const algorithm_t *algorithm, void *workspace, size_t bytes, CUstream stream),
    (void)handle, (void)alpha, (void)a, (void)b, (void)layout_b, (void)beta, (void)c, (void)layout_c, (void)d;
    (void)algorithm, (void)workspace, (void)bytes;
    if (!product || !layout_a || !layout_d) return CUBLAS_STATUS_INVALID_VALUE;
    const int type = (int)number(layout_a, LAYOUT_TYPE, R_32F);
    const int inner = number(product, PRODUCT_TRANSPOSE_A, 0) ? LAYOUT_ROWS : LAYOUT_COLUMNS;
    const struct work_size size = {number(layout_d, LAYOUT_ROWS, 1), number(layout_d, LAYOUT_COLUMNS, 1),
        number(layout_a, inner, 1), number(layout_d, LAYOUT_BATCH, 1) & 0x7fffffff};
    const enum roofline_precision precision = blas_precision(type, (int)number(product, PRODUCT_COMPUTE, 68));
    return compute_product("LtMatmul", precision, blas_bytes(type), &size, stream) ? CUBLAS_STATUS_SUCCESS
                                                                                   : CUBLAS_STATUS_EXECUTION_FAILED;)
