/*
 * Descriptors for copies of boxes of a tensor. They are made on the host, read by kernels alone, and no kernel here reads
 * any: what was said stands in them as it is. What a card refuses is refused, by CUDA's documentation.
 */
#include "libhook/sim/driver/driver.h"

enum { RANKS = 5, WIDEST_BOX = 256, WIDEST_STEP = 8, TYPES = 16, INTERLEAVE_32B = 2 };

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
    const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps,
    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
    CUtensorMapFloatOOBfill fill) {
    INIT();
    NEED(map && (uintptr_t)map % 64 == 0 && type >= 0 && type < TYPES, CUDA_ERROR_INVALID_VALUE);
    NEED(rank && rank <= RANKS && (!interleave || rank >= 3), CUDA_ERROR_INVALID_VALUE);
    NEED((uintptr_t)address % (interleave == INTERLEAVE_32B ? 32 : 16) == 0, CUDA_ERROR_INVALID_VALUE);
    NEED(dims && box && steps && (strides || rank == 1), CUDA_ERROR_INVALID_VALUE);
    for (cuuint32_t i = 0; i < rank; i++) {
        NEED(dims[i] && dims[i] <= 1ull << 32 && box[i] && box[i] <= WIDEST_BOX, CUDA_ERROR_INVALID_VALUE);
        NEED(steps[i] && steps[i] <= WIDEST_STEP, CUDA_ERROR_INVALID_VALUE);
        NEED(!i || (strides[i - 1] % 16 == 0 && strides[i - 1] < 1ull << 40), CUDA_ERROR_INVALID_VALUE);
    }
    NEED(interleave >= 0 && interleave <= INTERLEAVE_32B && swizzle >= 0 && promotion >= 0 && fill >= 0,
        CUDA_ERROR_INVALID_VALUE);
    memset(map, 0, sizeof(*map));
    map->opaque[0] = (cuuint64_t)(uintptr_t)address;
    map->opaque[1] = (cuuint64_t)type << 32 | rank;
    return CUDA_SUCCESS;
}

CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address) {
    INIT();
    NEED(map && (uintptr_t)map % 64 == 0 && (uintptr_t)address % 16 == 0, CUDA_ERROR_INVALID_VALUE);
    map->opaque[0] = (cuuint64_t)(uintptr_t)address;
    return CUDA_SUCCESS;
}
