/* copy.c - copies, one a call (copy.h). */
#include "libhook/hooks/copy.h"

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
    BY_DIRECTION(copy_by_pointers(dst, src), BLOCKING, CU_STREAM_LEGACY, bytes, real.cuMemcpy(dst, src, bytes));
}

CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
    BY_DIRECTION(
        copy_by_pointers(dst, src), BLOCKING, CU_STREAM_PER_THREAD, bytes, real.cuMemcpy_ptds(dst, src, bytes));
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy) {
    if (!copy)
        return real.cuMemcpy2D_v2(copy);
    BY_DIRECTION(
        BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_LEGACY, copy->WidthInBytes * copy->Height, real.cuMemcpy2D_v2(copy));
}

CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *copy) {
    if (!copy)
        return real.cuMemcpy2D_v2_ptds(copy);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_PER_THREAD, copy->WidthInBytes * copy->Height,
        real.cuMemcpy2D_v2_ptds(copy));
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream) {
    if (!copy)
        return real.cuMemcpy2DAsync_v2(copy, stream);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BILLED, stream_legacy(stream), copy->WidthInBytes * copy->Height,
        real.cuMemcpy2DAsync_v2(copy, stream));
}

CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *copy, CUstream stream) {
    if (!copy)
        return real.cuMemcpy2DAsync_v2_ptsz(copy, stream);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BILLED, stream_per_thread(stream), copy->WidthInBytes * copy->Height,
        real.cuMemcpy2DAsync_v2_ptsz(copy, stream));
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy) {
    if (!copy)
        return real.cuMemcpy2DUnaligned_v2(copy);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_LEGACY, copy->WidthInBytes * copy->Height,
        real.cuMemcpy2DUnaligned_v2(copy));
}

CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *copy) {
    if (!copy)
        return real.cuMemcpy2DUnaligned_v2_ptds(copy);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_PER_THREAD, copy->WidthInBytes * copy->Height,
        real.cuMemcpy2DUnaligned_v2_ptds(copy));
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy) {
    if (!copy)
        return real.cuMemcpy3D_v2(copy);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_LEGACY, copy->WidthInBytes * copy->Height * copy->Depth,
        real.cuMemcpy3D_v2(copy));
}

CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *copy) {
    if (!copy)
        return real.cuMemcpy3D_v2_ptds(copy);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_PER_THREAD, copy->WidthInBytes * copy->Height * copy->Depth,
        real.cuMemcpy3D_v2_ptds(copy));
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream) {
    if (!copy)
        return real.cuMemcpy3DAsync_v2(copy, stream);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BILLED, stream_legacy(stream), copy->WidthInBytes * copy->Height * copy->Depth,
        real.cuMemcpy3DAsync_v2(copy, stream));
}

CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *copy, CUstream stream) {
    if (!copy)
        return real.cuMemcpy3DAsync_v2_ptsz(copy, stream);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BILLED, stream_per_thread(stream),
        copy->WidthInBytes * copy->Height * copy->Depth, real.cuMemcpy3DAsync_v2_ptsz(copy, stream));
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy) {
    if (!copy)
        return real.cuMemcpy3DPeer(copy);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_LEGACY, copy->WidthInBytes * copy->Height * copy->Depth,
        real.cuMemcpy3DPeer(copy));
}

CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER *copy) {
    if (!copy)
        return real.cuMemcpy3DPeer_ptds(copy);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_PER_THREAD, copy->WidthInBytes * copy->Height * copy->Depth,
        real.cuMemcpy3DPeer_ptds(copy));
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream) {
    if (!copy)
        return real.cuMemcpy3DPeerAsync(copy, stream);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BILLED, stream_legacy(stream), copy->WidthInBytes * copy->Height * copy->Depth,
        real.cuMemcpy3DPeerAsync(copy, stream));
}

CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *copy, CUstream stream) {
    if (!copy)
        return real.cuMemcpy3DPeerAsync_ptsz(copy, stream);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BILLED, stream_per_thread(stream),
        copy->WidthInBytes * copy->Height * copy->Depth, real.cuMemcpy3DPeerAsync_ptsz(copy, stream));
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    BY_DIRECTION(
        copy_by_pointers(dst, src), BILLED, stream_legacy(stream), bytes, real.cuMemcpyAsync(dst, src, bytes, stream));
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    BY_DIRECTION(copy_by_pointers(dst, src), BILLED, stream_per_thread(stream), bytes,
        real.cuMemcpyAsync_ptsz(dst, src, bytes, stream));
}

CUresult cuMemcpyAtoA_v2(CUarray dst_array, size_t dst_offset, CUarray src_array, size_t src_offset, size_t bytes) {
    GATED(CU_STREAM_LEGACY, COPY, bytes, real.cuMemcpyAtoA_v2(dst_array, dst_offset, src_array, src_offset, bytes));
}

CUresult cuMemcpyAtoA_v2_ptds(
    CUarray dst_array, size_t dst_offset, CUarray src_array, size_t src_offset, size_t bytes) {
    GATED(CU_STREAM_PER_THREAD, COPY, bytes,
        real.cuMemcpyAtoA_v2_ptds(dst_array, dst_offset, src_array, src_offset, bytes));
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dst_device, CUarray src_array, size_t src_offset, size_t bytes) {
    GATED(CU_STREAM_LEGACY, COPY, bytes, real.cuMemcpyAtoD_v2(dst_device, src_array, src_offset, bytes));
}

CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr dst_device, CUarray src_array, size_t src_offset, size_t bytes) {
    GATED(CU_STREAM_PER_THREAD, COPY, bytes, real.cuMemcpyAtoD_v2_ptds(dst_device, src_array, src_offset, bytes));
}

CUresult cuMemcpyAtoH_v2(void *dst_host, CUarray src_array, size_t src_offset, size_t bytes) {
    BLOCKING(false, CU_STREAM_LEGACY, bytes, real.cuMemcpyAtoH_v2(dst_host, src_array, src_offset, bytes));
}

CUresult cuMemcpyAtoH_v2_ptds(void *dst_host, CUarray src_array, size_t src_offset, size_t bytes) {
    BLOCKING(false, CU_STREAM_PER_THREAD, bytes, real.cuMemcpyAtoH_v2_ptds(dst_host, src_array, src_offset, bytes));
}

CUresult cuMemcpyAtoHAsync_v2(void *dst_host, CUarray src_array, size_t src_offset, size_t bytes, CUstream stream) {
    BILLED(
        false, stream_legacy(stream), bytes, real.cuMemcpyAtoHAsync_v2(dst_host, src_array, src_offset, bytes, stream));
}

CUresult cuMemcpyAtoHAsync_v2_ptsz(
    void *dst_host, CUarray src_array, size_t src_offset, size_t bytes, CUstream stream) {
    BILLED(false, stream_per_thread(stream), bytes,
        real.cuMemcpyAtoHAsync_v2_ptsz(dst_host, src_array, src_offset, bytes, stream));
}

CUresult cuMemcpyDtoA_v2(CUarray dst_array, size_t dst_offset, CUdeviceptr src_device, size_t bytes) {
    GATED(CU_STREAM_LEGACY, COPY, bytes, real.cuMemcpyDtoA_v2(dst_array, dst_offset, src_device, bytes));
}

CUresult cuMemcpyDtoA_v2_ptds(CUarray dst_array, size_t dst_offset, CUdeviceptr src_device, size_t bytes) {
    GATED(CU_STREAM_PER_THREAD, COPY, bytes, real.cuMemcpyDtoA_v2_ptds(dst_array, dst_offset, src_device, bytes));
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst_device, CUdeviceptr src_device, size_t bytes) {
    GATED(CU_STREAM_LEGACY, COPY, bytes, real.cuMemcpyDtoD_v2(dst_device, src_device, bytes));
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dst_device, CUdeviceptr src_device, size_t bytes) {
    GATED(CU_STREAM_PER_THREAD, COPY, bytes, real.cuMemcpyDtoD_v2_ptds(dst_device, src_device, bytes));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst_device, CUdeviceptr src_device, size_t bytes, CUstream stream) {
    GATED(stream_legacy(stream), COPY, bytes, real.cuMemcpyDtoDAsync_v2(dst_device, src_device, bytes, stream));
}

CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dst_device, CUdeviceptr src_device, size_t bytes, CUstream stream) {
    GATED(
        stream_per_thread(stream), COPY, bytes, real.cuMemcpyDtoDAsync_v2_ptsz(dst_device, src_device, bytes, stream));
}

CUresult cuMemcpyDtoH_v2(void *dst_host, CUdeviceptr src_device, size_t bytes) {
    BLOCKING(false, CU_STREAM_LEGACY, bytes, real.cuMemcpyDtoH_v2(dst_host, src_device, bytes));
}

CUresult cuMemcpyDtoH_v2_ptds(void *dst_host, CUdeviceptr src_device, size_t bytes) {
    BLOCKING(false, CU_STREAM_PER_THREAD, bytes, real.cuMemcpyDtoH_v2_ptds(dst_host, src_device, bytes));
}

CUresult cuMemcpyDtoHAsync_v2(void *dst_host, CUdeviceptr src_device, size_t bytes, CUstream stream) {
    BILLED(false, stream_legacy(stream), bytes, real.cuMemcpyDtoHAsync_v2(dst_host, src_device, bytes, stream));
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void *dst_host, CUdeviceptr src_device, size_t bytes, CUstream stream) {
    BILLED(
        false, stream_per_thread(stream), bytes, real.cuMemcpyDtoHAsync_v2_ptsz(dst_host, src_device, bytes, stream));
}

CUresult cuMemcpyHtoA_v2(CUarray dst_array, size_t dst_offset, const void *src_host, size_t bytes) {
    BLOCKING(true, CU_STREAM_LEGACY, bytes, real.cuMemcpyHtoA_v2(dst_array, dst_offset, src_host, bytes));
}

CUresult cuMemcpyHtoA_v2_ptds(CUarray dst_array, size_t dst_offset, const void *src_host, size_t bytes) {
    BLOCKING(true, CU_STREAM_PER_THREAD, bytes, real.cuMemcpyHtoA_v2_ptds(dst_array, dst_offset, src_host, bytes));
}

CUresult cuMemcpyHtoAAsync_v2(
    CUarray dst_array, size_t dst_offset, const void *src_host, size_t bytes, CUstream stream) {
    BILLED(
        true, stream_legacy(stream), bytes, real.cuMemcpyHtoAAsync_v2(dst_array, dst_offset, src_host, bytes, stream));
}

CUresult cuMemcpyHtoAAsync_v2_ptsz(
    CUarray dst_array, size_t dst_offset, const void *src_host, size_t bytes, CUstream stream) {
    BILLED(true, stream_per_thread(stream), bytes,
        real.cuMemcpyHtoAAsync_v2_ptsz(dst_array, dst_offset, src_host, bytes, stream));
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst_device, const void *src_host, size_t bytes) {
    BLOCKING(true, CU_STREAM_LEGACY, bytes, real.cuMemcpyHtoD_v2(dst_device, src_host, bytes));
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dst_device, const void *src_host, size_t bytes) {
    BLOCKING(true, CU_STREAM_PER_THREAD, bytes, real.cuMemcpyHtoD_v2_ptds(dst_device, src_host, bytes));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst_device, const void *src_host, size_t bytes, CUstream stream) {
    BILLED(true, stream_legacy(stream), bytes, real.cuMemcpyHtoDAsync_v2(dst_device, src_host, bytes, stream));
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dst_device, const void *src_host, size_t bytes, CUstream stream) {
    BILLED(true, stream_per_thread(stream), bytes, real.cuMemcpyHtoDAsync_v2_ptsz(dst_device, src_host, bytes, stream));
}

CUresult cuMemcpyPeer(
    CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device, CUcontext src_context, size_t bytes) {
    GATED(CU_STREAM_LEGACY, COPY, bytes, real.cuMemcpyPeer(dst_device, dst_context, src_device, src_context, bytes));
}

CUresult cuMemcpyPeer_ptds(
    CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device, CUcontext src_context, size_t bytes) {
    GATED(CU_STREAM_PER_THREAD, COPY, bytes,
        real.cuMemcpyPeer_ptds(dst_device, dst_context, src_device, src_context, bytes));
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device, CUcontext src_context,
    size_t bytes, CUstream stream) {
    GATED(stream_legacy(stream), COPY, bytes,
        real.cuMemcpyPeerAsync(dst_device, dst_context, src_device, src_context, bytes, stream));
}

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device,
    CUcontext src_context, size_t bytes, CUstream stream) {
    GATED(stream_per_thread(stream), COPY, bytes,
        real.cuMemcpyPeerAsync_ptsz(dst_device, dst_context, src_device, src_context, bytes, stream));
}
