#include "libhook/sim/driver/op_run.h"

#include <stdlib.h>

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/event.h"
#include "libhook/sim/driver/graph.h"
#include "libhook/sim/driver/pool.h"
#include "libhook/sim/driver/queue.h"

CUresult op_submit(struct CUstream_st *stream, const struct op *op) {
    if (stream_capturing(stream))
        return capture_op(stream, op);
    TRY(capture_check_legacy(stream));
    return op_run(stream, op);
}

CUresult op_run(struct CUstream_st *stream, const struct op *op) {
    switch (op->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return queue_push(stream,
            &(struct work){.kind = op->kernel.facts->collective ? SIM_COLLECTIVE : SIM_KERNEL,
                .kernels = 1,
                .duration_ns = op->kernel.duration_ns,
                .arg = op->kernel.group,
                .until = op->kernel.parts,
                .peers = op->kernel.peers},
            NULL);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return op_copy_run(stream, &op->copy);
    case CU_GRAPH_NODE_TYPE_MEMSET: return op_set_run(stream, &op->set);
    case CU_GRAPH_NODE_TYPE_HOST: return op_host_run(stream, &op->host);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return event_record(op->event, stream);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return event_wait(op->event, stream);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return op_memory_run(stream, &op->memory);
    case CU_GRAPH_NODE_TYPE_GRAPH: {
        struct CUgraphNode_st **order = graph_order(op->graph);
        NEED(order, CUDA_ERROR_OUT_OF_MEMORY);
        CUresult result = op_run_graph(stream, order, op->graph->nodes);
        free(order);
        return result;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: pool_ran(op->alloc.dptr, true); return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_FREE: pool_ran(op->free, false); return CUDA_SUCCESS;
    default: /* empty nodes */ return CUDA_SUCCESS;
    }
}

static CUresult flush(struct CUstream_st *stream, struct work *work) {
    CUresult result = CUDA_SUCCESS;
    if (work->kernels)
        result = queue_push(stream, work, NULL);
    *work = (struct work){.kind = SIM_KERNEL};
    return result;
}

CUresult op_run_graph(struct CUstream_st *stream, struct CUgraphNode_st *const *order, size_t count) {
    struct work work = {.kind = SIM_KERNEL};
    for (size_t i = 0; i < count; i++) {
        const struct op *op = &order[i]->op;
        if (!order[i]->enabled)
            continue;
        if (op->type == CU_GRAPH_NODE_TYPE_KERNEL && !op->kernel.facts->collective) {
            work.kernels++;
            work.duration_ns += op->kernel.duration_ns;
            uint64_t parts = op->kernel.parts ? op->kernel.parts : SIM_WHOLE;
            work.until = parts > work.until ? parts : work.until;
            continue;
        }
        if (op->type == CU_GRAPH_NODE_TYPE_EMPTY)
            continue;
        TRY(flush(stream, &work));
        TRY(op_run(stream, op));
    }
    return flush(stream, &work);
}
