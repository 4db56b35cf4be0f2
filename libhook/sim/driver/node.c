/*
 * Nodes of graphs: made, read and changed, each kind in the same three ways. A node's memory (cuGraphAddMemAllocNode,
 * or an allocation that was captured) is taken from the device's default pool when the node is made and given back
 * with its graph.
 */
#include <stdlib.h>

#include "libhook/sim/driver/graph.h"
#include "libhook/sim/driver/module.h"
#include "libhook/sim/driver/pool.h"

/* ---- the operation that each kind of parameters means ---- */

static CUresult kernel_op(const CUDA_KERNEL_NODE_PARAMS *params, struct op *op) {
    NEED(params, CUDA_ERROR_INVALID_VALUE);
    *op = (struct op){.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = {.params = *params}};
    return op_kernel_resolve(&op->kernel);
}

static CUresult kernel_v1_op(const CUDA_KERNEL_NODE_PARAMS_v1 *params, struct op *op) {
    CUDA_KERNEL_NODE_PARAMS longer = {0};
    NEED(params, CUDA_ERROR_INVALID_VALUE);
    memcpy(&longer, params, sizeof(*params));
    return kernel_op(&longer, op);
}

static CUresult copy_op(const CUDA_MEMCPY3D *params, struct op *op) {
    NEED(params, CUDA_ERROR_INVALID_VALUE);
    *op = (struct op){.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = *params};
    return op_copy_check(params);
}

static CUresult set_op(const CUDA_MEMSET_NODE_PARAMS *params, struct op *op) {
    NEED(params, CUDA_ERROR_INVALID_VALUE);
    *op = (struct op){.type = CU_GRAPH_NODE_TYPE_MEMSET, .set = *params};
    return op_set_check(params);
}

static CUresult host_op(const CUDA_HOST_NODE_PARAMS *params, struct op *op) {
    NEED(params && params->fn, CUDA_ERROR_INVALID_VALUE);
    *op = (struct op){.type = CU_GRAPH_NODE_TYPE_HOST, .host = *params};
    return CUDA_SUCCESS;
}

static CUresult memory_op(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, struct op *op) {
    NEED(params && params->count && params->count <= 256 && params->paramArray, CUDA_ERROR_INVALID_VALUE);
    *op = (struct op){.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, .memory = *params};
    return CUDA_SUCCESS;
}

static CUresult event_op(CUevent event, CUgraphNodeType type, struct op *op) {
    NEED(slab_has(SLAB_EVENT, event), CUDA_ERROR_INVALID_HANDLE);
    *op = (struct op){.type = type, .event = event};
    return CUDA_SUCCESS;
}

static CUresult child_op(CUgraph graph, struct op *op) {
    NEED(slab_has(SLAB_GRAPH, graph), CUDA_ERROR_INVALID_VALUE);
    *op = (struct op){.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = graph};
    return CUDA_SUCCESS;
}

static CUresult alloc_op(CUDA_MEM_ALLOC_NODE_PARAMS *params, struct op *op) {
    struct CUmemPoolHandle_st *pool;
    NEED(params && params->bytesize && params->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE,
        CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(params->poolProps.location.id), CUDA_ERROR_INVALID_DEVICE);
    TRY(pool_of_graphs(params->poolProps.location.id, &pool));
    TRY(pool_take(pool, NULL, params->bytesize, &params->dptr));
    *op = (struct op){.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .alloc = *params};
    return CUDA_SUCCESS;
}

static CUresult any_op(CUgraphNodeParams *params, struct op *op) {
    NEED(params, CUDA_ERROR_INVALID_VALUE);
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return kernel_op(&params->kernel, op);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return copy_op(&params->memcpy.copyParams, op);
    case CU_GRAPH_NODE_TYPE_MEMSET: return set_op((const CUDA_MEMSET_NODE_PARAMS *)&params->memset, op);
    case CU_GRAPH_NODE_TYPE_HOST: return host_op(&params->host, op);
    case CU_GRAPH_NODE_TYPE_GRAPH: return child_op(params->graph.graph, op);
    case CU_GRAPH_NODE_TYPE_EMPTY: *op = (struct op){.type = CU_GRAPH_NODE_TYPE_EMPTY}; return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return event_op(params->eventWait.event, params->type, op);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return alloc_op(&params->alloc, op);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        *op = (struct op){.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = params->free.dptr};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return memory_op(&params->memOp, op);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: /* needs kernels that decide */ break;
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- adding, setting, getting ---- */

static CUresult add(
    CUgraphNode *out, CUgraph handle, const CUgraphNode *needs, size_t count, CUresult made, const struct op *op) {
    struct CUgraph_st *graph;
    if (made)
        return made;
    NEED(out && (needs || !count), CUDA_ERROR_INVALID_VALUE);
    TRY(graph_of(handle, &graph));
    pthread_mutex_lock(&driver.lock);
    CUresult result = graph_add(graph, op, needs, count, out);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

CUresult node_set(struct CUgraphNode_st *node, const struct op *op) {
    struct op kept;
    NEED(node->op.type == op->type, CUDA_ERROR_INVALID_VALUE);
    TRY(op_keep(&kept, op));
    op_drop(&node->op);
    node->op = kept;
    return CUDA_SUCCESS;
}

static CUresult set(CUgraphNode handle, CUresult made, const struct op *op) {
    struct CUgraphNode_st *node;
    if (made)
        return made;
    TRY(node_of(handle, &node));
    pthread_mutex_lock(&driver.lock);
    CUresult result = node_set(node, op);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

static CUresult set_in_exec(CUgraphExec exec, CUgraphNode original, CUresult made, const struct op *op) {
    struct CUgraphNode_st *node;
    if (made)
        return made;
    TRY(exec_node(exec, original, op->type, &node));
    return set(node, CUDA_SUCCESS, op);
}

static CUresult get(CUgraphNode handle, CUgraphNodeType type, const void *params, struct CUgraphNode_st **node) {
    NEED(params, CUDA_ERROR_INVALID_VALUE);
    TRY(node_of(handle, node));
    return (*node)->op.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#define ADD(name, parameters, make)                                                                                    \
    CUresult name parameters {                                                                                         \
        struct op op;                                                                                                  \
        return add(graph_node, graph, dependencies, num_dependencies, make, &op);                                      \
    }
#define SET(name, parameters, make)                                                                                    \
    CUresult name parameters {                                                                                         \
        struct op op;                                                                                                  \
        return set(node, make, &op);                                                                                   \
    }
#define SET_IN_EXEC(name, parameters, make)                                                                            \
    CUresult name parameters {                                                                                         \
        struct op op;                                                                                                  \
        return set_in_exec(exec, node, make, &op);                                                                     \
    }
#define GET(name, type, out_type, from)                                                                                \
    CUresult name(CUgraphNode handle, out_type *out) {                                                                 \
        struct CUgraphNode_st *node;                                                                                   \
        TRY(get(handle, type, out, &node));                                                                            \
        *out = node->op.from;                                                                                          \
        return CUDA_SUCCESS;                                                                                           \
    }
#define WHERE CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies, size_t num_dependencies

ADD(cuGraphAddKernelNode, (WHERE, const CUDA_KERNEL_NODE_PARAMS_v1 *params), kernel_v1_op(params, &op))
ADD(cuGraphAddKernelNode_v2, (WHERE, const CUDA_KERNEL_NODE_PARAMS *params), kernel_op(params, &op))
ADD(cuGraphAddMemcpyNode, (WHERE, const CUDA_MEMCPY3D *params, CUcontext ctx), ((void)ctx, copy_op(params, &op)))
ADD(cuGraphAddMemsetNode, (WHERE, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx),
    ((void)ctx, set_op(params, &op)))
ADD(cuGraphAddHostNode, (WHERE, const CUDA_HOST_NODE_PARAMS *params), host_op(params, &op))
ADD(cuGraphAddBatchMemOpNode, (WHERE, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params), memory_op(params, &op))
ADD(cuGraphAddChildGraphNode, (WHERE, CUgraph child), child_op(child, &op))
ADD(cuGraphAddEmptyNode, (WHERE), (op = (struct op){.type = CU_GRAPH_NODE_TYPE_EMPTY}, CUDA_SUCCESS))
ADD(cuGraphAddEventRecordNode, (WHERE, CUevent event), event_op(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &op))
ADD(cuGraphAddEventWaitNode, (WHERE, CUevent event), event_op(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &op))
ADD(cuGraphAddMemAllocNode, (WHERE, CUDA_MEM_ALLOC_NODE_PARAMS *params), alloc_op(params, &op))
ADD(cuGraphAddMemFreeNode, (WHERE, CUdeviceptr pointer),
    (op = (struct op){.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = pointer}, CUDA_SUCCESS))
ADD(cuGraphAddNode, (WHERE, CUgraphNodeParams *params), any_op(params, &op))

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, const CUgraphEdgeData *edges,
    size_t count, CUgraphNodeParams *params) {
    (void)edges;
    return cuGraphAddNode(node, graph, needs, count, params);
}

SET(cuGraphKernelNodeSetParams, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params), kernel_v1_op(params, &op))
SET(cuGraphKernelNodeSetParams_v2, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params), kernel_op(params, &op))
SET(cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D *params), copy_op(params, &op))
SET(cuGraphMemsetNodeSetParams, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params), set_op(params, &op))
SET(cuGraphHostNodeSetParams, (CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params), host_op(params, &op))
SET(cuGraphBatchMemOpNodeSetParams, (CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params),
    memory_op(params, &op))
SET(cuGraphEventRecordNodeSetEvent, (CUgraphNode node, CUevent event),
    event_op(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &op))
SET(cuGraphEventWaitNodeSetEvent, (CUgraphNode node, CUevent event),
    event_op(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &op))
SET(cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams *params), any_op(params, &op))

SET_IN_EXEC(cuGraphExecKernelNodeSetParams,
    (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params), kernel_v1_op(params, &op))
SET_IN_EXEC(cuGraphExecKernelNodeSetParams_v2,
    (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params), kernel_op(params, &op))
SET_IN_EXEC(cuGraphExecMemcpyNodeSetParams,
    (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext ctx), ((void)ctx, copy_op(params, &op)))
SET_IN_EXEC(cuGraphExecMemsetNodeSetParams,
    (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx),
    ((void)ctx, set_op(params, &op)))
SET_IN_EXEC(cuGraphExecHostNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params),
    host_op(params, &op))
SET_IN_EXEC(cuGraphExecBatchMemOpNodeSetParams,
    (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params), memory_op(params, &op))
SET_IN_EXEC(
    cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child), child_op(child, &op))
SET_IN_EXEC(cuGraphExecEventRecordNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event),
    event_op(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &op))
SET_IN_EXEC(cuGraphExecEventWaitNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event),
    event_op(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &op))
SET_IN_EXEC(
    cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params), any_op(params, &op))

GET(cuGraphKernelNodeGetParams_v2, CU_GRAPH_NODE_TYPE_KERNEL, CUDA_KERNEL_NODE_PARAMS, kernel.params)
GET(cuGraphMemcpyNodeGetParams, CU_GRAPH_NODE_TYPE_MEMCPY, CUDA_MEMCPY3D, copy)
GET(cuGraphMemsetNodeGetParams, CU_GRAPH_NODE_TYPE_MEMSET, CUDA_MEMSET_NODE_PARAMS, set)
GET(cuGraphHostNodeGetParams, CU_GRAPH_NODE_TYPE_HOST, CUDA_HOST_NODE_PARAMS, host)
GET(cuGraphBatchMemOpNodeGetParams, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CUDA_BATCH_MEM_OP_NODE_PARAMS, memory)
GET(cuGraphChildGraphNodeGetGraph, CU_GRAPH_NODE_TYPE_GRAPH, CUgraph, graph)
GET(cuGraphEventRecordNodeGetEvent, CU_GRAPH_NODE_TYPE_EVENT_RECORD, CUevent, event)
GET(cuGraphEventWaitNodeGetEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT, CUevent, event)
GET(cuGraphMemAllocNodeGetParams, CU_GRAPH_NODE_TYPE_MEM_ALLOC, CUDA_MEM_ALLOC_NODE_PARAMS, alloc)
GET(cuGraphMemFreeNodeGetParams, CU_GRAPH_NODE_TYPE_MEM_FREE, CUdeviceptr, free)

CUresult cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v1 *out) {
    struct CUgraphNode_st *node;
    TRY(get(handle, CU_GRAPH_NODE_TYPE_KERNEL, out, &node));
    memcpy(out, &node->op.kernel.params, sizeof(*out));
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute, CUkernelNodeAttrValue *value) {
    struct CUgraphNode_st *node;
    NEED(attribute > 0 && attribute < 20, CUDA_ERROR_INVALID_VALUE);
    TRY(get(handle, CU_GRAPH_NODE_TYPE_KERNEL, value, &node));
    *value = node->op.kernel.attribute[attribute];
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(
    CUgraphNode handle, CUkernelNodeAttrID attribute, const CUkernelNodeAttrValue *value) {
    struct CUgraphNode_st *node;
    NEED(attribute > 0 && attribute < 20, CUDA_ERROR_INVALID_VALUE);
    TRY(get(handle, CU_GRAPH_NODE_TYPE_KERNEL, value, &node));
    node->op.kernel.attribute[attribute] = *value;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to_handle, CUgraphNode from_handle) {
    struct CUgraphNode_st *to, *from;
    TRY(get(to_handle, CU_GRAPH_NODE_TYPE_KERNEL, to_handle, &to));
    TRY(get(from_handle, CU_GRAPH_NODE_TYPE_KERNEL, from_handle, &from));
    memcpy(to->op.kernel.attribute, from->op.kernel.attribute, sizeof(to->op.kernel.attribute));
    return CUDA_SUCCESS;
}

/* ---- the memory of graphs ---- */

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value) {
    INIT();
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    NEED(value && (unsigned)attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, CUDA_ERROR_INVALID_VALUE);
    struct CUmemPoolHandle_st *pool;
    TRY(pool_of_graphs(device, &pool));
    /* Graphs have whole pages: what is reserved for them and not used is trimmed by hand only. */
    CUmemPool_attribute asked[] = {CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH,
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH};
    TRY(cuMemPoolGetAttribute(pool, asked[attribute], value));
    *(uint64_t *)value = (*(uint64_t *)value + POOL_STEP - 1) / POOL_STEP * POOL_STEP;
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value) {
    INIT();
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    NEED(value && (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH),
        CUDA_ERROR_INVALID_VALUE);
    return *(uint64_t *)value ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    struct CUmemPoolHandle_st *pool;
    INIT();
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    TRY(pool_of_graphs(device, &pool));
    return cuMemPoolTrimTo(pool, 0);
}
