/*
 * play.c - random but repeatable sequences of driver calls, from one thread or several: the player of the differential
 * fuzzer (bench/differential.py). Played with and without the preloaded library, all results must be the same.
 *
 *     play SEED CALLS THREADS [TRACE | --goes-away]
 *
 * Each thread draws its calls from a generator of its own and touches its own objects only, so that what it is told
 * does not depend on the others. The calls are of memory of every family, streams, events, copies, memsets, launches,
 * captures and graphs, modules, look-ups, and now and then a handle or pointer that is none. One thread alone also
 * plays with contexts, captures in global mode and frees what is freed already. Pointers and handles differ from run to
 * run and are not compared; codes, sizes, counts, flags and the bytes that copies bring back are.
 *
 * After each round all threads meet, the device is idle, and what the driver says is used (with the library: what the
 * daemon's ledger says) must be what the simulated device holds for this process, to the byte.
 *
 * Prints one line per thread and round with a hash of all that was seen, and at the end how many calls that were.
 * TRACE is a file that gets a line for each call. With --goes-away a thread now and then launches far more than may be in
 * flight, and sleeps.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libhook/driver/cuda_abi.h"
#include "libhook/sim/observer/observer.h"

#define ROUND 500
#define MANY 40
#define THREADS_MAX 16
#define MOST 24 /* objects of a kind that a thread has at once */
#define HOST_BYTES 65536

enum kind {
    PLAIN,
    PITCHED,
    MANAGED,
    ASYNC,
    POOLED,
    ARRAY,
    MIPMAP,
    HOST,
    STREAM,
    EVENT,
    GRAPH,
    EXEC,
    MODULE,
    PHYSICAL,
    KINDS
};

struct object {
    uint64_t handle;
    uint64_t bytes;
};

struct player {
    int number;
    uint64_t state, hash, calls;
    struct object objects[KINDS][MOST];
    int count[KINDS];
    CUmemoryPool pool;
    CUcontext contexts[4];
    int context_count;
    CUstream capturing; /* NULL: none */
    CUdeviceptr mapped;
    size_t mapped_bytes;
    uint8_t host[HOST_BYTES];
    FILE *trace;
};

static const char PTX[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .global .align 4 .u32 table[16];\n"
                          ".visible .entry gemini_spin(.param .u64 nanoseconds) { ret; }\n";
static CUcontext primary;
static CUfunction spin;
static int thread_count;
static uint64_t calls_each;
static uint64_t seed;
static bool told_wrong;
static struct observer *observer;
static pthread_barrier_t meeting;
static const char *trace_name;
static bool goes_away;

static uint64_t draw(struct player *p, uint64_t below) { /* xorshift64* */
    p->state ^= p->state >> 12;
    p->state ^= p->state << 25;
    p->state ^= p->state >> 27;
    return ((p->state * 0x2545F4914F6CDD1Dull) >> 11) % below;
}

static void mix(struct player *p, uint64_t value) {
    p->hash = (p->hash ^ value) * 0x9E3779B97F4A7C15ull;
    p->hash ^= p->hash >> 29;
}

static void mix_bytes(struct player *p, const void *bytes, size_t size) {
    const uint8_t *at = bytes;
    for (size_t i = 0; i < size; i++)
        mix(p, at[i]);
}

/* What a call answered, and figures that it told, as many as `figures`. */
static CUresult saw(struct player *p, const char *name, CUresult result, int figures, ...) {
    va_list list;

    p->calls++;
    mix(p, (uint64_t)result);
    if (p->trace)
        fprintf(p->trace, "%llu %s %d", (unsigned long long)p->calls, name, result);
    va_start(list, figures);
    for (int i = 0; i < figures; i++) {
        uint64_t figure = va_arg(list, uint64_t);
        mix(p, figure);
        if (p->trace)
            fprintf(p->trace, " %llu", (unsigned long long)figure);
    }
    va_end(list);
    if (p->trace)
        fprintf(p->trace, "\n");
    return result;
}

#define SAW(call) saw(p, #call, call, 0)
/* Timing decides between these two, nothing else. */
#define READY(result) ((result) == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : (result))

static bool keep(struct player *p, enum kind kind, uint64_t handle, uint64_t bytes) {
    if (p->count[kind] == MOST)
        return false;
    p->objects[kind][p->count[kind]++] = (struct object){handle, bytes};
    return true;
}

static struct object *any(struct player *p, enum kind kind) {
    return p->count[kind] ? &p->objects[kind][draw(p, (uint64_t)p->count[kind])] : NULL;
}

static struct object take(struct player *p, enum kind kind) {
    struct object *at = any(p, kind), taken = {0, 0};
    if (at) {
        taken = *at;
        *at = p->objects[kind][--p->count[kind]];
    }
    return taken;
}

static uint64_t some_bytes(struct player *p) {
    switch (draw(p, 12)) {
    case 0: return 0;
    case 1: return UINT64_MAX >> draw(p, 8); /* beyond any card */
    case 2: return 1 + draw(p, 512);
    case 3: return (2ull << 20) * (1 + draw(p, 8));
    case 4: return (1ull << 20) + draw(p, 3) - 1;
    default: return 4096 * (1 + draw(p, 1024));
    }
}

static CUstream some_stream(struct player *p) {
    struct object *at;
    switch (draw(p, 8)) {
    case 0: return thread_count == 1 ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
    case 1: return CU_STREAM_PER_THREAD;
    case 2: return thread_count == 1 ? NULL : CU_STREAM_PER_THREAD;
    default: at = any(p, STREAM); return at ? (CUstream)at->handle : CU_STREAM_PER_THREAD;
    }
}

/* For what has an address. A graph keeps addresses for longer than they are this thread's, and they are used again. */
static CUstream calm_stream(struct player *p) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUstream stream = some_stream(p);
    if (cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && !status)
        return stream;
    return (CUstream)0xdead000;
}

/* Memory to read and write, of this thread. */
static struct object *some_memory(struct player *p) {
    static const enum kind KINDS_OF[] = {PLAIN, MANAGED, PITCHED, ASYNC, POOLED};
    return any(p, KINDS_OF[draw(p, 5)]);
}

static size_t part(struct player *p, const struct object *memory) {
    uint64_t most = memory->bytes < HOST_BYTES ? memory->bytes : HOST_BYTES;
    return draw(p, 16) ? (size_t)(most ? 1 + draw(p, most) : 0) : 0;
}

/* ---- memory ---- */

static void allocate(struct player *p) {
    CUdeviceptr pointer = 0;
    size_t pitch = 0;
    uint64_t bytes = some_bytes(p);
    CUresult result;

    switch (draw(p, 7)) {
    case 0:
    case 1:
        if (p->count[PLAIN] == MOST)
            return;
        result = SAW(cuMemAlloc_v2(draw(p, 64) ? &pointer : NULL, bytes));
        if (result == CUDA_SUCCESS)
            keep(p, PLAIN, pointer, bytes);
        break;
    case 2:
        if (p->count[PITCHED] == MOST)
            return;
        size_t width = 1 + draw(p, 5000), height = draw(p, 200);
        result = cuMemAllocPitch_v2(&pointer, &pitch, width, height, draw(p, 8) ? 4 : 3);
        saw(p, "cuMemAllocPitch_v2", result, 1, (uint64_t)pitch);
        if (result == CUDA_SUCCESS)
            keep(p, PITCHED, pointer, pitch * height);
        break;
    case 3:
        if (p->count[MANAGED] == MOST)
            return;
        result = SAW(cuMemAllocManaged(&pointer, bytes, draw(p, 8) ? 1 : (unsigned)draw(p, 6)));
        if (result == CUDA_SUCCESS)
            keep(p, MANAGED, pointer, bytes);
        break;
    case 4:
        if (p->count[ASYNC] == MOST || thread_count > 1) /* the default pool is everybody's */
            return;
        result = draw(p, 2) ? SAW(cuMemAllocAsync(&pointer, bytes, calm_stream(p)))
                            : SAW(cuMemAllocAsync_ptsz(&pointer, bytes, calm_stream(p)));
        if (result == CUDA_SUCCESS)
            keep(p, ASYNC, pointer, bytes);
        break;
    case 5:
        if (p->count[POOLED] == MOST)
            return;
        result = SAW(cuMemAllocFromPoolAsync(&pointer, bytes, p->pool, calm_stream(p)));
        if (result == CUDA_SUCCESS)
            keep(p, POOLED, pointer, bytes);
        break;
    default: {
        void *host = NULL;
        if (p->count[HOST] == MOST || bytes > 1 << 24)
            return;
        result = SAW(cuMemHostAlloc(&host, bytes, (unsigned)draw(p, 9)));
        if (result == CUDA_SUCCESS)
            keep(p, HOST, (uint64_t)(uintptr_t)host, bytes);
    }
    }
}

static void release(struct player *p) {
    static const enum kind BY_FREE[] = {PLAIN, PITCHED, MANAGED};
    struct object gone;

    switch (draw(p, 8)) {
    case 0:
        gone = take(p, ASYNC);
        if (gone.handle && (draw(p, 4) ? SAW(cuMemFreeAsync(gone.handle, calm_stream(p)))
                                       : SAW(cuMemFree_v2(gone.handle))) != CUDA_SUCCESS)
            keep(p, ASYNC, gone.handle, gone.bytes);
        break;
    case 1:
        gone = take(p, POOLED);
        if (gone.handle && (draw(p, 4) ? SAW(cuMemFreeAsync_ptsz(gone.handle, calm_stream(p)))
                                       : SAW(cuMemFree_v2(gone.handle))) != CUDA_SUCCESS)
            keep(p, POOLED, gone.handle, gone.bytes);
        break;
    case 2:
        gone = take(p, HOST);
        if (gone.handle)
            SAW(cuMemFreeHost((void *)(uintptr_t)gone.handle));
        break;
    case 3: SAW(cuMemFree_v2(draw(p, 2) ? 0 : 0xdead000)); break;
    default:
        gone = take(p, BY_FREE[draw(p, 3)]);
        if (!gone.handle)
            return;
        CUresult result = SAW(cuMemFree_v2(gone.handle));
        if (result != CUDA_SUCCESS)
            keep(p, PLAIN, gone.handle, gone.bytes); /* a capture forbade it: it is still there */
        else if (thread_count == 1 && !draw(p, 8))
            SAW(cuMemFree_v2(gone.handle)); /* once more */
    }
}

static void arrays(struct player *p) {
    struct object gone;
    CUarray array = NULL;
    CUmipmappedArray mipmap = NULL;

    switch (draw(p, 5)) {
    case 0:
    case 1: {
        CUDA_ARRAY_DESCRIPTOR flat = {.Width = draw(p, 2000),
            .Height = draw(p, 3) ? draw(p, 500) : 0,
            .Format = CU_AD_FORMAT_FLOAT,
            .NumChannels = 1u << draw(p, 3)};
        if (p->count[ARRAY] < MOST && SAW(cuArrayCreate_v2(&array, &flat)) == CUDA_SUCCESS)
            keep(p, ARRAY, (uint64_t)(uintptr_t)array, 0);
        break;
    }
    case 2: {
        CUDA_ARRAY3D_DESCRIPTOR deep = {.Width = 1 + draw(p, 600),
            .Height = 1 + draw(p, 300),
            .Depth = draw(p, 5),
            .Format = CU_AD_FORMAT_FLOAT,
            .NumChannels = 1};
        if (draw(p, 2)) {
            if (p->count[ARRAY] < MOST && SAW(cuArray3DCreate_v2(&array, &deep)) == CUDA_SUCCESS)
                keep(p, ARRAY, (uint64_t)(uintptr_t)array, 0);
        } else if (p->count[MIPMAP] < MOST &&
                   SAW(cuMipmappedArrayCreate(&mipmap, &deep, 1 + (unsigned)draw(p, 4))) == CUDA_SUCCESS) {
            keep(p, MIPMAP, (uint64_t)(uintptr_t)mipmap, 0);
        }
        break;
    }
    case 3:
        gone = take(p, ARRAY);
        if (gone.handle && SAW(cuArrayDestroy((CUarray)gone.handle)) != CUDA_SUCCESS)
            keep(p, ARRAY, gone.handle, 0);
        break;
    default:
        gone = take(p, MIPMAP);
        if (gone.handle && SAW(cuMipmappedArrayDestroy((CUmipmappedArray)gone.handle)) != CUDA_SUCCESS)
            keep(p, MIPMAP, gone.handle, 0);
    }
}

static void virtual_memory(struct player *p) {
    const CUmemAllocationProp prop = {.type = 1, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle = 0;
    struct object gone, *at;

    switch (draw(p, 5)) {
    case 0:
    case 1: {
        uint64_t bytes = draw(p, 8) ? (2ull << 20) * (1 + draw(p, 6)) : some_bytes(p);
        if (p->count[PHYSICAL] < MOST && SAW(cuMemCreate(&handle, bytes, &prop, 0)) == CUDA_SUCCESS)
            keep(p, PHYSICAL, handle, bytes);
        break;
    }
    case 2:
        gone = take(p, PHYSICAL);
        if (gone.handle)
            SAW(cuMemRelease(gone.handle));
        break;
    case 3:
        at = any(p, PHYSICAL);
        if (!at || p->mapped)
            break;
        if (SAW(cuMemAddressReserve(&p->mapped, at->bytes, 0, 0, 0)) != CUDA_SUCCESS) {
            p->mapped = 0;
            break;
        }
        p->mapped_bytes = at->bytes;
        SAW(cuMemMap(p->mapped, p->mapped_bytes, 0, at->handle, 0));
        if (draw(p, 2) && SAW(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)p->mapped)) == CUDA_SUCCESS)
            SAW(cuMemRelease(handle));
        break;
    default:
        if (!p->mapped)
            break;
        SAW(cuMemUnmap(p->mapped, p->mapped_bytes));
        if (SAW(cuMemAddressFree(p->mapped, p->mapped_bytes)) == CUDA_SUCCESS)
            p->mapped = 0;
    }
}

static void pools(struct player *p) {
    cuuint64_t value = draw(p, 2) ? 0 : draw(p, 64) << 20;

    switch (draw(p, 4)) {
    case 0: SAW(cuMemPoolTrimTo(p->pool, (size_t)value)); break;
    case 1: SAW(cuMemPoolSetAttribute(p->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value)); break;
    case 2: {
        CUresult result = cuMemPoolGetAttribute(p->pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value);
        saw(p, "cuMemPoolGetAttribute", result, 1, value);
        break;
    }
    default: SAW(cuMemPoolTrimTo((CUmemoryPool)0, 0));
    }
}

/* ---- work ---- */

static void copies(struct player *p) {
    struct object *memory = some_memory(p), *other = some_memory(p);

    if (!memory)
        return;
    size_t bytes = part(p, memory);
    memset(p->host, (int)draw(p, 256), 64);
    switch (draw(p, 8)) {
    case 0: SAW(cuMemcpyHtoD_v2(memory->handle, p->host, bytes)); break;
    case 1: SAW(cuMemcpyHtoDAsync_v2(memory->handle, p->host, bytes, calm_stream(p))); break;
    case 2: {
        bytes = bytes > 512 ? 512 : bytes;
        CUstream stream = calm_stream(p);
        SAW(cuStreamSynchronize(stream));
        SAW(cuMemsetD8_v2(memory->handle, 7, bytes));
        if (SAW(cuMemcpyDtoH_v2(p->host, memory->handle, bytes)) == CUDA_SUCCESS)
            mix_bytes(p, p->host, bytes);
        break;
    }
    case 3: SAW(cuMemcpyDtoHAsync_v2(p->host, memory->handle, bytes, calm_stream(p))); break;
    case 4:
        if (other && other->bytes >= bytes)
            SAW(cuMemcpyDtoD_v2(other->handle, memory->handle, bytes));
        break;
    case 5:
        if (other && other->bytes >= bytes)
            SAW(cuMemcpyDtoDAsync_v2_ptsz(other->handle, memory->handle, bytes, calm_stream(p)));
        break;
    case 6: SAW(cuMemcpyHtoD_v2(0xdead000, p->host, 16)); break;
    default:
        if (other && other->bytes >= bytes)
            SAW(cuMemcpy(other->handle, memory->handle, bytes));
    }
}

/* Rectangles inside of one piece of memory, or from one to another. */
static void rectangles(struct player *p) {
    struct object *from = some_memory(p), *to = some_memory(p);

    if (!from || !to)
        return;
    size_t bytes = part(p, from->bytes < to->bytes ? from : to);
    CUstream stream = calm_stream(p);
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = from->handle,
        .srcPitch = 64,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = to->handle,
        .dstPitch = 64,
        .WidthInBytes = bytes % 64,
        .Height = bytes / 64};
    switch (draw(p, 7)) {
    case 0: SAW(cuMemcpy2D_v2(&copy)); break;
    case 1: SAW(cuMemcpy2DUnaligned_v2(&copy)); break;
    case 2: SAW(cuMemcpy2DAsync_v2(&copy, stream)); break;
    case 3: SAW(cuMemcpyPeer(to->handle, primary, from->handle, primary, bytes)); break;
    case 4: SAW(cuMemcpyAsync(to->handle, from->handle, bytes, stream)); break;
    case 5: SAW(cuMemPrefetchAsync(to->handle, bytes, 0, stream)); break;
    default: SAW(cuMemcpyPeerAsync(to->handle, primary, from->handle, primary, bytes, stream));
    }
}

static void memsets(struct player *p) {
    struct object *memory = some_memory(p);

    if (!memory)
        return;
    size_t bytes = part(p, memory);
    unsigned int value = (unsigned int)draw(p, 256);
    CUstream stream = calm_stream(p);
    CUdeviceptr to = memory->handle;
    switch (draw(p, 13)) {
    case 0: SAW(cuMemsetD8_v2(memory->handle, (unsigned char)value, bytes)); break;
    case 1: SAW(cuMemsetD8Async(memory->handle, (unsigned char)value, bytes, calm_stream(p))); break;
    case 2: SAW(cuMemsetD16_v2(memory->handle, (unsigned short)value, bytes / 2)); break;
    case 3: SAW(cuMemsetD32Async_ptsz(memory->handle, value, bytes / 4, calm_stream(p))); break;
    case 4: SAW(cuMemsetD32_v2(memory->handle + 1, value, 1)); break; /* not aligned */
    case 5: SAW(cuMemsetD8_v2(0xdead000, 1, 1)); break;
    case 6: SAW(cuMemsetD16Async(to, (unsigned short)value, bytes / 2, stream)); break;
    case 7: SAW(cuMemsetD2D8Async(to, 64, (unsigned char)value, bytes % 64, bytes / 64, stream)); break;
    case 8: SAW(cuMemsetD2D16_v2(to, 64, (unsigned short)value, bytes % 32, bytes / 64)); break;
    case 9: SAW(cuMemsetD2D16Async_ptsz(to, 64, (unsigned short)value, bytes % 32, bytes / 64, stream)); break;
    case 10: SAW(cuMemsetD2D32_v2(to, 64, value, bytes % 16, bytes / 64)); break;
    case 11: SAW(cuMemsetD2D32Async(to, 64, value, bytes % 16, bytes / 64, stream)); break;
    default: SAW(cuMemsetD2D8_v2(memory->handle, 64, (unsigned char)value, bytes % 64, bytes / 64));
    }
}

static void launches(struct player *p) {
    uint64_t ns = 500 + draw(p, 4) * 700;
    void *parameters[] = {&ns};
    unsigned int grid = 1 + (unsigned int)draw(p, 3);
    CUstream stream = some_stream(p);
    CUlaunchConfig config = {.gridDimX = grid,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 1,
        .blockDimY = 1,
        .blockDimZ = 1,
        .hStream = stream};

    switch (draw(p, 12)) {
    case 0: SAW(cuLaunchKernelEx(&config, spin, parameters, NULL)); break;
    case 1: SAW(cuLaunchKernelEx_ptsz(&config, spin, parameters, NULL)); break;
    case 2: SAW(cuLaunchCooperativeKernel(spin, grid, 1, 1, 1, 1, 1, 0, stream, parameters)); break;
    case 3: SAW(cuLaunchKernel(spin, 0, 1, 1, 1, 1, 1, 0, stream, parameters, NULL)); break;
    case 4: SAW(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL)); break;
    case 5: SAW(cuLaunchKernel(spin, 1, 1, 1, 2048, 1, 1, 0, stream, parameters, NULL)); break;
    case 6: SAW(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, (CUstream)0xdead000, parameters, NULL)); break;
    case 7:
    case 8:
        if (thread_count > 1)
            SAW(cuLaunchKernel_ptsz(spin, grid, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
        else
            SAW(cuLaunchKernel(spin, grid, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
        break;
    default: SAW(cuLaunchKernel(spin, grid, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    }
}

static void streams(struct player *p) {
    struct object gone, *at;
    CUstream stream = NULL;
    unsigned int flags = 0;

    switch (draw(p, 8)) {
    case 0:
        if (p->count[STREAM] < 8 &&
            SAW(cuStreamCreate(&stream, thread_count > 1 ? 1 : (unsigned)draw(p, 3))) == CUDA_SUCCESS)
            keep(p, STREAM, (uint64_t)(uintptr_t)stream, 0);
        break;
    case 1:
        if (p->count[STREAM] < 8 && SAW(cuStreamCreateWithPriority(&stream, 1, -(int)draw(p, 3))) == CUDA_SUCCESS)
            keep(p, STREAM, (uint64_t)(uintptr_t)stream, 0);
        break;
    case 2:
        gone = take(p, STREAM);
        if (gone.handle && (CUstream)gone.handle == p->capturing)
            keep(p, STREAM, gone.handle, 0);
        else if (gone.handle)
            SAW(cuStreamDestroy_v2((CUstream)gone.handle));
        break;
    case 3: {
        CUresult result = cuStreamQuery(some_stream(p));
        saw(p, "cuStreamQuery", READY(result), 0);
        break;
    }
    case 4: SAW(cuStreamSynchronize(some_stream(p))); break;
    case 5:
        at = any(p, STREAM);
        if (at) {
            CUresult result = cuStreamGetFlags((CUstream)at->handle, &flags);
            saw(p, "cuStreamGetFlags", result, 1, (uint64_t)flags);
        }
        break;
    case 6: SAW(cuStreamSynchronize((CUstream)0xdead000)); break;
    default:
        at = any(p, EVENT);
        struct object *waiting = any(p, STREAM);
        if (at && thread_count == 1)
            SAW(cuStreamWaitEvent(some_stream(p), (CUevent)at->handle, 0));
        else if (at && waiting) /* a default stream that joins a capture would forbid others the legacy stream */
            SAW(cuStreamWaitEvent((CUstream)waiting->handle, (CUevent)at->handle, 0));
    }
}

static void events(struct player *p) {
    struct object gone, *at = any(p, EVENT);
    CUevent event = NULL;

    switch (draw(p, 6)) {
    case 0:
        if (p->count[EVENT] < MOST && SAW(cuEventCreate(&event, (unsigned)draw(p, 5))) == CUDA_SUCCESS)
            keep(p, EVENT, (uint64_t)(uintptr_t)event, 0);
        break;
    case 1:
        gone = take(p, EVENT);
        if (gone.handle)
            SAW(cuEventDestroy_v2((CUevent)gone.handle));
        break;
    case 2:
        if (at)
            SAW(cuEventRecord((CUevent)at->handle, some_stream(p)));
        break;
    case 3:
        if (at) {
            CUresult result = cuEventQuery((CUevent)at->handle);
            saw(p, "cuEventQuery", READY(result), 0);
        }
        break;
    case 4:
        if (at)
            SAW(cuEventSynchronize((CUevent)at->handle));
        break;
    default:
        if (at) {
            float milliseconds = 0;
            CUresult result = cuEventElapsedTime(&milliseconds, (CUevent)at->handle, (CUevent)at->handle);
            saw(p, "cuEventElapsedTime", READY(result), 0);
        }
    }
}

/* ---- captures and graphs ---- */

static void captures(struct player *p) {
    struct object *at = any(p, STREAM);
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = 0;

    if (!at)
        return;
    if (p->capturing == NULL) {
        CUstreamCaptureMode mode = thread_count == 1 ? (CUstreamCaptureMode)draw(p, 3) : CU_STREAM_CAPTURE_MODE_RELAXED;
        if (SAW(cuStreamBeginCapture_v2((CUstream)at->handle, mode)) == CUDA_SUCCESS)
            p->capturing = (CUstream)at->handle;
        return;
    }
    CUresult result = cuStreamIsCapturing(p->capturing, &status);
    saw(p, "cuStreamIsCapturing", result, 1, (uint64_t)status);
    if (draw(p, 3))
        return;
    result = cuStreamEndCapture(p->capturing, &graph);
    p->capturing = NULL;
    size_t nodes = 0;
    if (result == CUDA_SUCCESS && graph)
        cuGraphGetNodes(graph, NULL, &nodes);
    saw(p, "cuStreamEndCapture", result, 1, (uint64_t)nodes);
    if (result == CUDA_SUCCESS && graph && !keep(p, GRAPH, (uint64_t)(uintptr_t)graph, 0))
        SAW(cuGraphDestroy(graph));
}

static void graphs(struct player *p) {
    struct object gone, *at = any(p, GRAPH);
    CUgraphExec exec = NULL;
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    uint64_t ns = 1000;
    void *parameters[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = spin,
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 1,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = parameters};

    switch (draw(p, 8)) {
    case 0:
        if (p->count[GRAPH] < MOST && SAW(cuGraphCreate(&graph, 0)) == CUDA_SUCCESS)
            keep(p, GRAPH, (uint64_t)(uintptr_t)graph, 0);
        break;
    case 1:
        if (at)
            draw(p, 2) ? SAW(cuGraphAddKernelNode_v2(&node, (CUgraph)at->handle, NULL, 0, &kernel))
                       : SAW(cuGraphAddEmptyNode(&node, (CUgraph)at->handle, NULL, 0));
        break;
    case 2:
    case 3:
        if (at && p->count[EXEC] < MOST &&
            SAW(cuGraphInstantiateWithFlags(&exec, (CUgraph)at->handle, 0)) == CUDA_SUCCESS)
            keep(p, EXEC, (uint64_t)(uintptr_t)exec, 0);
        break;
    case 4:
    case 5:
        at = any(p, EXEC);
        if (at && !draw(p, 4))
            SAW(cuGraphUpload((CUgraphExec)at->handle, some_stream(p)));
        if (at)
            draw(p, 2) ? SAW(cuGraphLaunch((CUgraphExec)at->handle, some_stream(p)))
                       : SAW(cuGraphLaunch_ptsz((CUgraphExec)at->handle, some_stream(p)));
        break;
    case 6:
        gone = take(p, EXEC);
        if (gone.handle)
            SAW(cuGraphExecDestroy((CUgraphExec)gone.handle));
        break;
    default:
        gone = take(p, GRAPH);
        if (gone.handle)
            SAW(cuGraphDestroy((CUgraph)gone.handle));
    }
}

/* ---- the rest ---- */

static void look_ups(struct player *p) {
    static const char *const NAMES[] = {"cuMemAlloc", "cuLaunchKernel", "cuCtxCreate", "cuGraphLaunch", "cuMemcpyAsync",
        "cuMemPrefetchAsync", "cuStreamBeginCapture", "cuEventElapsedTime", "cuNoSuchThing", "", "cuGetProcAddress",
        "cuMemFreeAsync", "cuCtxSynchronize", "cuInit", "cuMemcpyBatchAsync"};
    static const int VERSIONS[] = {0, 2000, 3020, 6050, 7000, 10000, 11020, 11040, 12000, 12050, 12080, 13000, 99999};
    CUdriverProcAddressQueryResult status = 0;
    void *function = NULL;
    const char *text = NULL;
    int value = 0;

    switch (draw(p, 4)) {
    case 0:
    case 1: {
        const char *name = NAMES[draw(p, sizeof NAMES / sizeof *NAMES)];
        int version = VERSIONS[draw(p, sizeof VERSIONS / sizeof *VERSIONS)];
        CUresult result = cuGetProcAddress_v2(name, &function, version, draw(p, 4), &status);
        saw(p, "cuGetProcAddress_v2", result, 2, (uint64_t)status, (uint64_t)(function != NULL));
        break;
    }
    case 2: {
        CUresult result = cuDeviceGetAttribute(&value, (CUdevice_attribute)draw(p, 150), draw(p, 8) ? 0 : 7);
        saw(p, "cuDeviceGetAttribute", result, 1, (uint64_t)value);
        break;
    }
    default: {
        CUresult result = cuGetErrorName((CUresult)draw(p, 1000), &text);
        saw(p, "cuGetErrorName", result, 1, (uint64_t)(text ? strlen(text) : 0));
    }
    }
}

static void pointers(struct player *p) {
    struct object *memory = some_memory(p);
    CUdeviceptr base = 0;
    size_t size = 0;
    unsigned int type = 0;

    if (!memory)
        return;
    if (draw(p, 2)) {
        uint64_t inside = memory->bytes ? draw(p, memory->bytes) : 0;
        CUresult result = cuMemGetAddressRange_v2(&base, &size, memory->handle + inside);
        saw(p, "cuMemGetAddressRange_v2", result, 2, (uint64_t)size, (uint64_t)(base == memory->handle));
    } else {
        CUresult result = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory->handle);
        saw(p, "cuPointerGetAttribute", result, 1, (uint64_t)type);
    }
}

static void modules(struct player *p) {
    CUmodule module = NULL;
    CUfunction function = NULL;
    struct object gone, *at = any(p, MODULE);

    switch (draw(p, 3)) { /* the variables of a module take memory that is not in the ledger: they are left alone */
    case 0:
        if (p->count[MODULE] < 4 && SAW(cuModuleLoadData(&module, PTX)) == CUDA_SUCCESS)
            keep(p, MODULE, (uint64_t)(uintptr_t)module, 0);
        break;
    case 1:
        if (at)
            SAW(cuModuleGetFunction(&function, (CUmodule)at->handle, draw(p, 4) ? "gemini_spin" : "nothing"));
        break;
    default:
        gone = take(p, MODULE);
        if (gone.handle && SAW(cuModuleUnload((CUmodule)gone.handle)) != CUDA_SUCCESS)
            keep(p, MODULE, gone.handle, 0);
    }
}

static void contexts(struct player *p) {
    CUcontext context = NULL, popped = NULL;

    if (thread_count > 1)
        return; /* a context is everybody's, and so are the captures that forbid to wait for it */
    switch (draw(p, 5)) {
    case 0:
        if (p->context_count < 4 && SAW(cuCtxCreate_v2(&context, 0, 0)) == CUDA_SUCCESS) {
            SAW(cuCtxPopCurrent_v2(&popped));
            p->contexts[p->context_count++] = context;
        }
        break;
    case 1:
        if (p->context_count && SAW(cuCtxDestroy_v2(p->contexts[p->context_count - 1])) == CUDA_SUCCESS)
            p->context_count--;
        break;
    case 2:
        if (p->context_count) {
            CUdeviceptr pointer = 0;
            SAW(cuCtxPushCurrent_v2(p->contexts[draw(p, (uint64_t)p->context_count)]));
            if (SAW(cuMemAlloc_v2(&pointer, 4096 * (1 + draw(p, 1000)))) == CUDA_SUCCESS && draw(p, 2))
                SAW(cuMemFree_v2(pointer)); /* else it goes with its context */
            SAW(cuCtxPopCurrent_v2(&popped));
        }
        break;
    case 3: SAW(cuCtxDestroy_v2((CUcontext)0xdead000)); break;
    default: SAW(cuCtxSynchronize());
    }
}

static void (*const MOVES[])(struct player *p) = {allocate, allocate, release, release, arrays, virtual_memory, pools,
    copies, copies, rectangles, memsets, launches, launches, launches, launches, streams, events, captures, graphs,
    graphs, look_ups, pointers, modules, contexts};

/* Far more than may be in flight at once, from a host that then goes away. */
static void many_launches(struct player *p) {
    uint64_t ns = 20000;
    void *parameters[] = {&ns};
    CUstream stream = calm_stream(p);

    for (int i = 0; i < MANY; i++)
        SAW(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    usleep(700 + (useconds_t)draw(p, 3) * 1000);
}

/* All threads have met, and nothing runs: what is told must be what the device holds. */
static void compare_memory(struct player *p) {
    struct observer_busy rows[512]; /* those who died of late stand there, too */
    uint64_t now_ns, held = 0;
    size_t free_bytes = 0, total = 0;

    CUresult result = cuCtxSynchronize();
    for (int again = 0; again < 200; again++) { /* what the library gives back takes a moment to reach the ledger */
        result = cuMemGetInfo_v2(&free_bytes, &total);
        int count = observer_read(observer, 0, &now_ns, rows, 512);
        held = 0;
        for (int i = 0; i < count && i < 512; i++)
            if (rows[i].pid == getpid() && rows[i].alive)
                held += rows[i].memory_bytes;
        if (result != CUDA_SUCCESS || held == total - free_bytes)
            return;
        usleep(500);
    }
    printf("memory of thread %d after %llu calls: told %zu, held %llu\n", p->number, (unsigned long long)p->calls,
        total - free_bytes, (unsigned long long)held);
    told_wrong = true;
}

static void *play(void *argument) {
    struct player *p = argument;
    CUmemPoolProps props = {.allocType = 1, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUgraph graph;

    if (trace_name) {
        char name[512];
        snprintf(name, sizeof name, "%s.%d", trace_name, p->number);
        p->trace = fopen(name, "w");
    }
    SAW(cuCtxSetCurrent(primary));
    SAW(cuMemPoolCreate(&p->pool, &props));
    for (uint64_t round = 0; round <= calls_each / ROUND; round++) {
        uint64_t end = p->calls + ROUND;
        while (p->calls < end)
            (goes_away && !draw(p, 200) ? many_launches : MOVES[draw(p, sizeof MOVES / sizeof *MOVES)])(p);
        if (p->capturing) {
            saw(p, "cuStreamEndCapture", cuStreamEndCapture(p->capturing, &graph), 0);
            p->capturing = NULL;
        }
        pthread_barrier_wait(&meeting);
        SAW(cuCtxSynchronize());
        pthread_barrier_wait(&meeting);
        if (p->number == 0) {
            if (p->trace)
                fflush(p->trace);
            compare_memory(p);
        }
        pthread_barrier_wait(&meeting);
        printf("%llu %d %016llx\n", (unsigned long long)round, p->number, (unsigned long long)p->hash);
    }
    pthread_barrier_wait(&meeting);
    if (p->trace)
        fclose(p->trace);
    return NULL;
}

int main(int count, char **words) {
    static struct player players[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    CUmodule module;
    char why[256];

    if (count < 4)
        return 2;
    seed = strtoull(words[1], NULL, 10);
    thread_count = atoi(words[3]);
    thread_count = thread_count < 1 ? 1 : thread_count > THREADS_MAX ? THREADS_MAX : thread_count;
    calls_each = strtoull(words[2], NULL, 10) / (uint64_t)thread_count;
    goes_away = count > 4 && !strcmp(words[4], "--goes-away");
    trace_name = count > 4 && !goes_away ? words[4] : NULL;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&primary, 0) || cuCtxSetCurrent(primary) ||
        cuModuleLoadData(&module, PTX) || cuModuleGetFunction(&spin, module, "gemini_spin")) {
        fprintf(stderr, "play: no driver\n");
        return 1;
    }
    if (observer_open(getenv("GEMINI_SIM"), 0, &observer, why, sizeof why)) {
        fprintf(stderr, "play: %s\n", why);
        return 1;
    }
    pthread_barrier_init(&meeting, NULL, (unsigned)thread_count);
    for (int i = 0; i < thread_count; i++) {
        players[i].number = i;
        players[i].state = (seed * 0x9E3779B97F4A7C15ull ^ (uint64_t)(i + 1) * 0xD6E8FEB86659FD93ull) | 1;
        pthread_create(&threads[i], NULL, play, &players[i]);
    }
    uint64_t calls = 0;
    for (int i = 0; i < thread_count; i++) {
        pthread_join(threads[i], NULL);
        calls += players[i].calls;
    }
    printf("calls %llu\n", (unsigned long long)calls);
    return told_wrong ? 3 : 0;
}
