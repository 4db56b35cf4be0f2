/* Running operations, and keeping copies of them for graphs. */
#include "libhook/sim/driver/op.h"

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
        CUresult result = graph_run(stream, order, op->graph->nodes);
        free(order);
        return result;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: pool_ran(op->alloc.dptr, true); return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_FREE: pool_ran(op->free, false); return CUDA_SUCCESS;
    default: /* empty nodes */ return CUDA_SUCCESS;
    }
}

/* Own copies of a kernel's arguments, where its image says how long they are. */
static CUresult keep_arguments(struct op_kernel *to, const struct op_kernel *from) {
    const struct kernel_facts *facts = from->facts;
    const char *buffer = NULL;
    to->arguments = NULL;
    if (!facts->parameters || (!from->params.kernelParams && !from->params.extra)) {
        to->params.kernelParams = to->params.extra = NULL;
        return CUDA_SUCCESS;
    }
    for (void **extra = from->params.extra; extra && extra[0] != CU_LAUNCH_PARAM_END; extra += 2)
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
    size_t bytes = facts->parameters * sizeof(void *);
    for (uint32_t i = 0; i < facts->parameters; i++)
        bytes += (facts->parameter[i].bytes + 15u) & ~15u;
    void **kept = calloc(1, bytes);
    NEED(kept, CUDA_ERROR_OUT_OF_MEMORY);
    char *at = (char *)(kept + facts->parameters);
    for (uint32_t i = 0; i < facts->parameters; i++) {
        const void *value =
            from->params.kernelParams ? from->params.kernelParams[i] : buffer + facts->parameter[i].offset;
        if (value && (buffer || from->params.kernelParams))
            memcpy(at, value, facts->parameter[i].bytes);
        kept[i] = at;
        at += (facts->parameter[i].bytes + 15u) & ~15u;
    }
    to->arguments = to->params.kernelParams = kept;
    to->params.extra = NULL;
    return CUDA_SUCCESS;
}

CUresult op_keep(struct op *to, const struct op *from) {
    *to = *from;
    if (from->type == CU_GRAPH_NODE_TYPE_KERNEL)
        return keep_arguments(&to->kernel, &from->kernel);
    if (from->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
        size_t bytes = from->memory.count * sizeof(*from->memory.paramArray);
        to->memory.paramArray = malloc(bytes);
        NEED(to->memory.paramArray, CUDA_ERROR_OUT_OF_MEMORY);
        memcpy(to->memory.paramArray, from->memory.paramArray, bytes);
    }
    if (from->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        pool_node(from->alloc.dptr);
    if (from->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return graph_clone(from->graph, &to->graph);
    return CUDA_SUCCESS;
}

void op_drop(struct op *op) {
    if (op->type == CU_GRAPH_NODE_TYPE_KERNEL)
        free(op->kernel.arguments);
    if (op->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
        free(op->memory.paramArray);
    if (op->type == CU_GRAPH_NODE_TYPE_GRAPH && op->graph)
        graph_end(op->graph);
    if (op->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        pool_end_of_node(op->alloc.dptr);
}
