/*
 * Stream memory operations: the stream waits for a word in memory, or writes one, in its order (front.h).
 */
#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/front.h"
#include "libhook/sim/driver/heap.h"
#include "libhook/sim/driver/queue.h"
#include "libhook/sim/driver/op_run.h"

_Static_assert(CU_STREAM_WAIT_VALUE_EQ == (int)SIM_WORD_EQUAL && CU_STREAM_WAIT_VALUE_AND == (int)SIM_WORD_AND &&
                   CU_STREAM_WAIT_VALUE_NOR == (int)SIM_WORD_NOR,
    "the flags are the machine's");

static bool wide(CUstreamBatchMemOpType type) {
    return type == CU_STREAM_MEM_OP_WAIT_VALUE_64 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static bool waits(CUstreamBatchMemOpType type) {
    return type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static bool writes(CUstreamBatchMemOpType type) {
    return type == CU_STREAM_MEM_OP_WRITE_VALUE_32 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

/* A barrier or a flush: what it orders is in order here. */
static bool touches_nothing(CUstreamBatchMemOpType type) {
    return type == CU_STREAM_MEM_OP_BARRIER || type == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
}

CUresult op_memory_run(struct CUstream_st *stream, const CUDA_BATCH_MEM_OP_NODE_PARAMS *memory) {
    TRY(front_start());
    for (unsigned int i = 0; i < memory->count; i++) {
        const CUstreamBatchMemOpParams *p = &memory->paramArray[i];
        if (touches_nothing(p->operation))
            continue;
        struct block block;
        struct work work = {
            .kind = waits(p->operation) ? SIM_VALUE_WAIT : SIM_VALUE_WRITE, .arg = p->waitValue.address};
        work.until = wide(p->operation) ? p->waitValue.value64 : p->waitValue.value;
        work.peers = wide(p->operation) ? SIM_WORD_WIDE : 0;
        if (waits(p->operation))
            work.peers |= p->waitValue.flags & SIM_WORD_COMPARE;
        if (heap_find(work.arg, &block) && block.kind == BLOCK_REGISTERED)
            work.peers |= SIM_WORD_STRANGE;
        TRY(queue_push(stream, &work, NULL));
    }
    return CUDA_SUCCESS;
}

static CUresult submit(
    CUstream handle, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags, bool per_thread) {
    struct CUstream_st *stream;
    struct block block;
    NEED(count && count <= 256 && ops && !flags, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, per_thread, &stream));
    for (unsigned int i = 0; i < count; i++) {
        CUstreamBatchMemOpType type = ops[i].operation;
        NEED(type >= 1 && type <= 6, CUDA_ERROR_INVALID_VALUE);
        /* As a card answered (H100, driver 580.159.04), though the headers have it. */
        NEED(!writes(type) || !(ops[i].writeValue.flags & CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER),
            CUDA_ERROR_INVALID_VALUE);
        if (!touches_nothing(type))
            NEED(ops[i].waitValue.address % (wide(type) ? 8 : 4) == 0 && heap_find(ops[i].waitValue.address, &block),
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
