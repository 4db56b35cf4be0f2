/* set.c - memsets (copy.h). */
#include "libhook/hooks/copy.h"

CUresult cuMemsetD16_v2(CUdeviceptr dst_device, unsigned short value, size_t count) {
    GATED(CU_STREAM_LEGACY, SET, count * 2, real.cuMemsetD16_v2(dst_device, value, count));
}

CUresult cuMemsetD16_v2_ptds(CUdeviceptr dst_device, unsigned short value, size_t count) {
    GATED(CU_STREAM_PER_THREAD, SET, count * 2, real.cuMemsetD16_v2_ptds(dst_device, value, count));
}

CUresult cuMemsetD16Async(CUdeviceptr dst_device, unsigned short value, size_t count, CUstream stream) {
    GATED(stream_legacy(stream), SET, count * 2, real.cuMemsetD16Async(dst_device, value, count, stream));
}

CUresult cuMemsetD16Async_ptsz(CUdeviceptr dst_device, unsigned short value, size_t count, CUstream stream) {
    GATED(stream_per_thread(stream), SET, count * 2, real.cuMemsetD16Async_ptsz(dst_device, value, count, stream));
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned short value, size_t width, size_t height) {
    GATED(
        CU_STREAM_LEGACY, SET, width * height * 2, real.cuMemsetD2D16_v2(dst_device, dst_pitch, value, width, height));
}

CUresult cuMemsetD2D16_v2_ptds(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned short value, size_t width, size_t height) {
    GATED(CU_STREAM_PER_THREAD, SET, width * height * 2,
        real.cuMemsetD2D16_v2_ptds(dst_device, dst_pitch, value, width, height));
}

CUresult cuMemsetD2D16Async(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned short value, size_t width, size_t height, CUstream stream) {
    GATED(stream_legacy(stream), SET, width * height * 2,
        real.cuMemsetD2D16Async(dst_device, dst_pitch, value, width, height, stream));
}

CUresult cuMemsetD2D16Async_ptsz(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned short value, size_t width, size_t height, CUstream stream) {
    GATED(stream_per_thread(stream), SET, width * height * 2,
        real.cuMemsetD2D16Async_ptsz(dst_device, dst_pitch, value, width, height, stream));
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned int value, size_t width, size_t height) {
    GATED(
        CU_STREAM_LEGACY, SET, width * height * 4, real.cuMemsetD2D32_v2(dst_device, dst_pitch, value, width, height));
}

CUresult cuMemsetD2D32_v2_ptds(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned int value, size_t width, size_t height) {
    GATED(CU_STREAM_PER_THREAD, SET, width * height * 4,
        real.cuMemsetD2D32_v2_ptds(dst_device, dst_pitch, value, width, height));
}

CUresult cuMemsetD2D32Async(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned int value, size_t width, size_t height, CUstream stream) {
    GATED(stream_legacy(stream), SET, width * height * 4,
        real.cuMemsetD2D32Async(dst_device, dst_pitch, value, width, height, stream));
}

CUresult cuMemsetD2D32Async_ptsz(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned int value, size_t width, size_t height, CUstream stream) {
    GATED(stream_per_thread(stream), SET, width * height * 4,
        real.cuMemsetD2D32Async_ptsz(dst_device, dst_pitch, value, width, height, stream));
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned char value, size_t width, size_t height) {
    GATED(CU_STREAM_LEGACY, SET, width * height, real.cuMemsetD2D8_v2(dst_device, dst_pitch, value, width, height));
}

CUresult cuMemsetD2D8_v2_ptds(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned char value, size_t width, size_t height) {
    GATED(CU_STREAM_PER_THREAD, SET, width * height,
        real.cuMemsetD2D8_v2_ptds(dst_device, dst_pitch, value, width, height));
}

CUresult cuMemsetD2D8Async(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned char value, size_t width, size_t height, CUstream stream) {
    GATED(stream_legacy(stream), SET, width * height,
        real.cuMemsetD2D8Async(dst_device, dst_pitch, value, width, height, stream));
}

CUresult cuMemsetD2D8Async_ptsz(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned char value, size_t width, size_t height, CUstream stream) {
    GATED(stream_per_thread(stream), SET, width * height,
        real.cuMemsetD2D8Async_ptsz(dst_device, dst_pitch, value, width, height, stream));
}

CUresult cuMemsetD32_v2(CUdeviceptr dst_device, unsigned int value, size_t count) {
    GATED(CU_STREAM_LEGACY, SET, count * 4, real.cuMemsetD32_v2(dst_device, value, count));
}

CUresult cuMemsetD32_v2_ptds(CUdeviceptr dst_device, unsigned int value, size_t count) {
    GATED(CU_STREAM_PER_THREAD, SET, count * 4, real.cuMemsetD32_v2_ptds(dst_device, value, count));
}

CUresult cuMemsetD32Async(CUdeviceptr dst_device, unsigned int value, size_t count, CUstream stream) {
    GATED(stream_legacy(stream), SET, count * 4, real.cuMemsetD32Async(dst_device, value, count, stream));
}

CUresult cuMemsetD32Async_ptsz(CUdeviceptr dst_device, unsigned int value, size_t count, CUstream stream) {
    GATED(stream_per_thread(stream), SET, count * 4, real.cuMemsetD32Async_ptsz(dst_device, value, count, stream));
}

CUresult cuMemsetD8_v2(CUdeviceptr dst_device, unsigned char value, size_t count) {
    GATED(CU_STREAM_LEGACY, SET, count, real.cuMemsetD8_v2(dst_device, value, count));
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr dst_device, unsigned char value, size_t count) {
    GATED(CU_STREAM_PER_THREAD, SET, count, real.cuMemsetD8_v2_ptds(dst_device, value, count));
}

CUresult cuMemsetD8Async(CUdeviceptr dst_device, unsigned char value, size_t count, CUstream stream) {
    GATED(stream_legacy(stream), SET, count, real.cuMemsetD8Async(dst_device, value, count, stream));
}

CUresult cuMemsetD8Async_ptsz(CUdeviceptr dst_device, unsigned char value, size_t count, CUstream stream) {
    GATED(stream_per_thread(stream), SET, count, real.cuMemsetD8Async_ptsz(dst_device, value, count, stream));
}
