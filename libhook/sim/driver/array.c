#include "libhook/sim/driver/array.h"

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/heap.h"
#include "libhook/sim/driver/queue.h"

enum { PITCH = 512, LEVELS = 16 };

struct CUmipmappedArray_st {
    struct slab_head head;
    unsigned int levels;
    CUarray level[LEVELS];
    CUdeviceptr address;
    uint64_t bytes;
};

static size_t element_bytes(CUarray_format format) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 4;
    }
    return 0;
}

/* Everything about the array that follows from its shape; returns the bytes it takes. */
static uint64_t lay_out(struct CUarray_st *array) {
    const CUDA_ARRAY3D_DESCRIPTOR *s = &array->shape;
    array->row_bytes = s->Width * element_bytes(s->Format) * s->NumChannels;
    array->rows = s->Height ? s->Height : 1;
    array->slices = s->Depth ? s->Depth : 1;
    array->pitch = (array->row_bytes + PITCH - 1) / PITCH * PITCH;
    return array->pitch * array->rows * array->slices;
}

static CUresult check(const CUDA_ARRAY3D_DESCRIPTOR *s) {
    NEED(s && s->Width && s->Width <= 131072 && s->Height <= 131072 && s->Depth <= 16384, CUDA_ERROR_INVALID_VALUE);
    NEED(element_bytes(s->Format) && (s->NumChannels == 1 || s->NumChannels == 2 || s->NumChannels == 4),
        CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static CUresult memory(struct CUctx_st *ctx, uint64_t bytes, CUdeviceptr *out) {
    TRY(card_take(ctx->device, bytes));
    *out = heap_take(&(struct block){.bytes = bytes, .kind = BLOCK_ARRAY, .device = ctx->device, .ctx = ctx}, 4096);
    if (!*out)
        card_give(ctx->device, bytes);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    struct CUctx_st *ctx;
    NEED(out, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    TRY(check(shape));
    TRY(capture_guard());
    struct CUarray_st *array = slab_take(SLAB_ARRAY, sizeof(*array));
    NEED(array, CUDA_ERROR_OUT_OF_MEMORY);
    array->shape = *shape;
    array->device = ctx->device;
    CUresult result = memory(ctx, lay_out(array), &array->address);
    if (result)
        slab_give(SLAB_ARRAY, array);
    else
        *out = array;
    return result;
}

CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *shape) {
    NEED(shape, CUDA_ERROR_INVALID_VALUE);
    return cuArray3DCreate_v2(out, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = shape->Width,
                                       .Height = shape->Height,
                                       .Format = shape->Format,
                                       .NumChannels = shape->NumChannels});
}

static CUresult array_of(CUarray handle, struct CUarray_st **out) {
    INIT();
    NEED(slab_has(SLAB_ARRAY, handle), CUDA_ERROR_INVALID_HANDLE);
    *out = handle;
    return CUDA_SUCCESS;
}

static void give(CUdeviceptr address) {
    struct block block;
    if (heap_give(address, &block))
        card_give(block.device, block.bytes);
}

CUresult cuArrayDestroy(CUarray handle) {
    struct CUarray_st *array;
    TRY(array_of(handle, &array));
    NEED(!array->level_of, CUDA_ERROR_INVALID_HANDLE);
    TRY(capture_guard());
    queue_wait_device(array->device);
    give(array->address);
    slab_give(SLAB_ARRAY, array);
    return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *shape, CUarray handle) {
    struct CUarray_st *array;
    NEED(shape, CUDA_ERROR_INVALID_VALUE);
    TRY(array_of(handle, &array));
    *shape = array->shape;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *shape, CUarray handle) {
    struct CUarray_st *array;
    NEED(shape, CUDA_ERROR_INVALID_VALUE);
    TRY(array_of(handle, &array));
    *shape =
        (CUDA_ARRAY_DESCRIPTOR){array->shape.Width, array->shape.Height, array->shape.Format, array->shape.NumChannels};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *needs, CUarray handle, CUdevice device) {
    struct CUarray_st *array;
    NEED(needs, CUDA_ERROR_INVALID_VALUE);
    TRY(array_of(handle, &array));
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    *needs = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = lay_out(array), .alignment = 4096};
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels) {
    struct CUctx_st *ctx;
    uint64_t offset[LEVELS];
    NEED(out && levels && levels <= LEVELS, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    TRY(check(shape));
    TRY(capture_guard());
    struct CUmipmappedArray_st *mipmap = slab_take(SLAB_MIPMAP, sizeof(*mipmap));
    NEED(mipmap, CUDA_ERROR_OUT_OF_MEMORY);
    for (unsigned int i = 0; i < levels; i++) {
        struct CUarray_st *array = slab_take(SLAB_ARRAY, sizeof(*array));
        NEED(array, CUDA_ERROR_OUT_OF_MEMORY);
        array->shape = *shape;
        array->shape.Width = shape->Width >> i ? shape->Width >> i : 1;
        array->shape.Height = shape->Height && !(shape->Height >> i) ? 1 : shape->Height >> i;
        array->shape.Depth = shape->Depth && !(shape->Depth >> i) ? 1 : shape->Depth >> i;
        array->device = ctx->device;
        array->level_of = mipmap;
        offset[i] = mipmap->bytes;
        mipmap->bytes += lay_out(array);
        mipmap->level[mipmap->levels++] = array;
    }
    CUresult result = memory(ctx, mipmap->bytes, &mipmap->address);
    for (unsigned int i = 0; i < levels; i++)
        if (result)
            slab_give(SLAB_ARRAY, mipmap->level[i]);
        else
            mipmap->level[i]->address = mipmap->address + offset[i];
    if (result)
        slab_give(SLAB_MIPMAP, mipmap);
    else
        *out = mipmap;
    return result;
}

static CUresult mipmap_of(CUmipmappedArray handle, struct CUmipmappedArray_st **out) {
    INIT();
    NEED(slab_has(SLAB_MIPMAP, handle), CUDA_ERROR_INVALID_HANDLE);
    *out = handle;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray handle, unsigned int level) {
    struct CUmipmappedArray_st *mipmap;
    TRY(mipmap_of(handle, &mipmap));
    NEED(array && level < mipmap->levels, CUDA_ERROR_INVALID_VALUE);
    *array = mipmap->level[level];
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
    struct CUmipmappedArray_st *mipmap;
    TRY(mipmap_of(handle, &mipmap));
    TRY(capture_guard());
    queue_wait_device(mipmap->level[0]->device);
    for (unsigned int i = 0; i < mipmap->levels; i++)
        slab_give(SLAB_ARRAY, mipmap->level[i]);
    give(mipmap->address);
    slab_give(SLAB_MIPMAP, mipmap);
    return CUDA_SUCCESS;
}

static bool lies_in(CUdeviceptr address, const struct CUctx_st *ctx) {
    struct block block;
    return heap_find(address, &block) && block.kind == BLOCK_ARRAY && block.ctx == ctx;
}

void array_end_context(struct CUctx_st *ctx) {
    for (uint32_t i = 0; i < slab_used(SLAB_MIPMAP); i++) {
        struct CUmipmappedArray_st *mipmap = slab_at(SLAB_MIPMAP, i);
        if (!mipmap || !lies_in(mipmap->address, ctx))
            continue;
        for (unsigned int level = 0; level < mipmap->levels; level++)
            slab_give(SLAB_ARRAY, mipmap->level[level]);
        give(mipmap->address);
        slab_give(SLAB_MIPMAP, mipmap);
    }
    for (uint32_t i = 0; i < slab_used(SLAB_ARRAY); i++) {
        struct CUarray_st *array = slab_at(SLAB_ARRAY, i);
        if (!array || array->level_of || !lies_in(array->address, ctx))
            continue;
        give(array->address);
        slab_give(SLAB_ARRAY, array);
    }
}

CUresult cuMipmappedArrayGetMemoryRequirements(
    CUDA_ARRAY_MEMORY_REQUIREMENTS *needs, CUmipmappedArray handle, CUdevice device) {
    struct CUmipmappedArray_st *mipmap;
    NEED(needs, CUDA_ERROR_INVALID_VALUE);
    TRY(mipmap_of(handle, &mipmap));
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    *needs = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = mipmap->bytes, .alignment = 4096};
    return CUDA_SUCCESS;
}
