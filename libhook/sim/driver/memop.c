/*
 * Stream memory operations: the stream waits for a word in memory, or writes one, in its order. The process's own host
 * thread looks at the word, so memory that another process or thread writes counts.
 */
#include <stdlib.h>

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/heap.h"
#include "libhook/sim/driver/host.h"

struct batch {
    unsigned int count, done;
    CUstreamBatchMemOpParams op[];
};

static bool holds(const CUstreamBatchMemOpParams *p) {
    bool wide = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    uint64_t is = wide ? __atomic_load_n((uint64_t *)p->waitValue.address, __ATOMIC_ACQUIRE)
                       : __atomic_load_n((uint32_t *)p->waitValue.address, __ATOMIC_ACQUIRE);
    uint64_t value = wide ? p->waitValue.value64 : p->waitValue.value;
    uint64_t all = wide ? UINT64_MAX : UINT32_MAX;
    switch (p->waitValue.flags & 3) {
    case CU_STREAM_WAIT_VALUE_EQ: return is == value;
    case CU_STREAM_WAIT_VALUE_AND: return (is & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR: return (~(is | value) & all) != 0;
    default: /* a cyclic comparison */
        return wide ? (int64_t)(is - value) >= 0 : (int32_t)((uint32_t)is - (uint32_t)value) >= 0;
    }
}

static bool run(void *argument) {
    struct batch *batch = argument;
    for (; batch->done < batch->count; batch->done++) {
        const CUstreamBatchMemOpParams *p = &batch->op[batch->done];
        switch (p->operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            if (!holds(p))
                return false;
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            __atomic_store_n((uint32_t *)p->writeValue.address, p->writeValue.value, __ATOMIC_RELEASE);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            __atomic_store_n((uint64_t *)p->writeValue.address, p->writeValue.value64, __ATOMIC_RELEASE);
            break;
        default: break;
        }
    }
    return true;
}

CUresult op_memory_run(struct CUstream_st *stream, const CUDA_BATCH_MEM_OP_NODE_PARAMS *memory) {
    struct batch *batch = malloc(sizeof(*batch) + memory->count * sizeof(batch->op[0]));
    NEED(batch, CUDA_ERROR_OUT_OF_MEMORY);
    batch->count = memory->count;
    batch->done = 0;
    memcpy(batch->op, memory->paramArray, memory->count * sizeof(batch->op[0]));
    CUresult result = host_push(stream, &(struct host_step){run, free, batch});
    if (result)
        free(batch);
    return result;
}

static CUresult submit(
    CUstream handle, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags, bool per_thread) {
    struct CUstream_st *stream;
    struct block block;
    NEED(count && count <= 256 && ops && !flags, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, per_thread, &stream));
    for (unsigned int i = 0; i < count; i++) {
        CUstreamBatchMemOpType type = ops[i].operation;
        bool wide = type == CU_STREAM_MEM_OP_WAIT_VALUE_64 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        NEED(type >= 1 && type <= 6, CUDA_ERROR_INVALID_VALUE);
        if (type != CU_STREAM_MEM_OP_BARRIER && type != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES)
            NEED(ops[i].waitValue.address % (wide ? 8 : 4) == 0 && heap_find(ops[i].waitValue.address, &block),
                CUDA_ERROR_INVALID_VALUE);
    }
    struct op op = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, .memory = {stream->ctx, count, ops, flags}};
    return op_submit(stream, &op);
}

#define ONE(type, member)                                                                                              \
    submit(stream, 1, &(CUstreamBatchMemOpParams){.waitValue = {type, address, {.member = value}, flags, 0}}, 0,       \
        per_thread)

#define FLAVOUR(suffix, own)                                                                                           \
    CUresult cuStreamWaitValue32##suffix(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) { \
        const bool per_thread = own;                                                                                   \
        return ONE(CU_STREAM_MEM_OP_WAIT_VALUE_32, value);                                                             \
    }                                                                                                                  \
    CUresult cuStreamWaitValue64##suffix(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) { \
        const bool per_thread = own;                                                                                   \
        return ONE(CU_STREAM_MEM_OP_WAIT_VALUE_64, value64);                                                           \
    }                                                                                                                  \
    CUresult cuStreamWriteValue32##suffix(                                                                             \
        CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {                                  \
        const bool per_thread = own;                                                                                   \
        return ONE(CU_STREAM_MEM_OP_WRITE_VALUE_32, value);                                                            \
    }                                                                                                                  \
    CUresult cuStreamWriteValue64##suffix(                                                                             \
        CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {                                  \
        const bool per_thread = own;                                                                                   \
        return ONE(CU_STREAM_MEM_OP_WRITE_VALUE_64, value64);                                                          \
    }                                                                                                                  \
    CUresult cuStreamBatchMemOp##suffix(                                                                               \
        CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags) {                      \
        return submit(stream, count, ops, flags, own);                                                                 \
    }

FLAVOUR(, false)
FLAVOUR(_ptsz, true)
FLAVOUR(_v2, false)
FLAVOUR(_v2_ptsz, true)
