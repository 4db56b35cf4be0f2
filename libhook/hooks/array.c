/*
 * array.c - CUDA arrays and mipmapped arrays. The driver does not say what one takes (cuArrayGetMemoryRequirements is
 * for sparse and deferred ones only, which take nothing by themselves). So it is computed: rows of elements, each
 * rounded up to 512 bytes, times height, depth or layers, and the sum over the levels of a mipmap. All of it counts as
 * a plain allocation takes it. Tiling may cost a real card a few per cent more.
 */
#include <stddef.h>

#include "libhook/core/ledger.h"
#include "libhook/driver/real.h"
#include "libhook/hooks/memory.h"
#include "libhook/runtime/account.h"
#include "libhook/runtime/context.h"

/* Flags of CUDA_ARRAY3D_DESCRIPTOR (cuda.h). */
enum { LAYERED = 0x01, SPARSE = 0x40, DEFERRED_MAPPING = 0x80 };

/* Formats beyond the plain ones of cuda_types.h: blocks of 4 x 4 elements (BC1..BC7), with their bytes a block. */
enum { BC1_UNORM = 0x91, BC7_UNORM_SRGB = 0x9d, BC4_UNORM = 0x97, BC4_SNORM = 0x98, BC2_UNORM = 0x93 };

static const uint64_t ROW = 512;

/* Bytes of one element in sixteenths, so that a block format has a whole number. */
static uint64_t sixteenths(unsigned int format, unsigned int channels) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return 16ull * channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 32ull * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 64ull * channels;
    default:
        if (format >= BC1_UNORM && format <= BC7_UNORM_SRGB)
            return format < BC2_UNORM || format == BC4_UNORM || format == BC4_SNORM ? 8 : 16;
        return 64ull * (channels == 0 ? 1 : channels); /* the normalised and planar ones: none is larger */
    }
}

static uint64_t multiply(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX / 2 : product;
}

static uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int level) {
    if ((d->Flags & (SPARSE | DEFERRED_MAPPING)) != 0)
        return 0;
    uint64_t width = d->Width >> level;
    uint64_t height = d->Height >> level;
    uint64_t depth = (d->Flags & LAYERED) != 0 ? d->Depth : d->Depth >> level;
    width = width == 0 ? 1 : width;
    height = height == 0 ? 1 : height;
    depth = depth == 0 ? 1 : depth;
    uint64_t row = (multiply(width, sixteenths(d->Format, d->NumChannels)) + 15) / 16;
    return multiply(multiply((row + ROW - 1) / ROW * ROW, height), depth);
}

/* Enters the array that the driver made, or gives everything back. */
static CUresult made(CUresult result, const void *handle, int device, uint64_t reserved) {
    if (result == CUDA_SUCCESS)
        memory_enter(LEDGER_ARRAY, (uint64_t)(uintptr_t)handle, device, reserved, reserved, context_current()->context);
    else
        account_return(device, reserved, false);
    return result;
}

CUresult cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *d) {
    int device = handle == NULL || d == NULL ? -1 : memory_device();
    if (device < 0)
        return real.cuArrayCreate_v2(handle, d);
    const CUDA_ARRAY3D_DESCRIPTOR full = {
        .Width = d->Width, .Height = d->Height, .Format = d->Format, .NumChannels = d->NumChannels};
    uint64_t bytes = memory_rounded(bytes_of(&full, 0));
    if (memory_reserve(device, bytes, false) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real.cuArrayCreate_v2(handle, d);
    return made(result, *handle, device, bytes);
}

CUresult cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *d) {
    int device = handle == NULL || d == NULL ? -1 : memory_device();
    if (device < 0)
        return real.cuArray3DCreate_v2(handle, d);
    uint64_t bytes = memory_rounded(bytes_of(d, 0));
    if (memory_reserve(device, bytes, false) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real.cuArray3DCreate_v2(handle, d);
    return made(result, *handle, device, bytes);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels) {
    int device = handle == NULL || d == NULL ? -1 : memory_device();
    if (device < 0)
        return real.cuMipmappedArrayCreate(handle, d, levels);
    uint64_t bytes = 0;
    for (unsigned int level = 0; level < levels && level < 32; level++) {
        uint64_t more = bytes_of(d, level);
        bytes = bytes > UINT64_MAX - more ? UINT64_MAX / 2 : bytes + more;
    }
    bytes = memory_rounded(bytes);
    if (memory_reserve(device, bytes, false) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real.cuMipmappedArrayCreate(handle, d, levels);
    return made(result, *handle, device, bytes);
}

CUresult cuArrayDestroy(CUarray array) {
    struct ledger_entry entry;
    bool known = account_take(LEDGER_ARRAY, (uint64_t)(uintptr_t)array, &entry);
    CUresult result = real.cuArrayDestroy(array);
    if (known && result != CUDA_SUCCESS)
        account_enter(&entry);
    else if (known)
        account_return(entry.device, entry.bytes, false);
    return result;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmapped_array) {
    struct ledger_entry entry;
    bool known = account_take(LEDGER_ARRAY, (uint64_t)(uintptr_t)mipmapped_array, &entry);
    CUresult result = real.cuMipmappedArrayDestroy(mipmapped_array);
    if (known && result != CUDA_SUCCESS)
        account_enter(&entry);
    else if (known)
        account_return(entry.device, entry.bytes, false);
    return result;
}
