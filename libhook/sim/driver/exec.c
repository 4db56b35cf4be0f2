/* Executable graphs: instantiated, updated, launched. */
#include <stdlib.h>

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/graph.h"
#include "libhook/sim/driver/op_run.h"

static CUresult exec_of(CUgraphExec handle, struct CUgraphExec_st **out) {
    INIT();
    NEED(slab_has(SLAB_EXEC, handle), CUDA_ERROR_INVALID_VALUE);
    *out = handle;
    return CUDA_SUCCESS;
}

CUresult exec_node(CUgraphExec handle, CUgraphNode original, CUgraphNodeType type, struct CUgraphNode_st **out) {
    struct CUgraphExec_st *exec;
    TRY(exec_of(handle, &exec));
    for (size_t i = 0; i < exec->count; i++)
        if (exec->order[i]->original == original && exec->order[i]->op.type == type) {
            *out = exec->order[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags) {
    struct CUgraph_st *graph;
    NEED(out && !(flags & ~15ull), CUDA_ERROR_INVALID_VALUE);
    TRY(graph_of(handle, &graph));
    struct CUgraphExec_st *exec = slab_take(SLAB_EXEC, sizeof(*exec));
    NEED(exec, CUDA_ERROR_OUT_OF_MEMORY);
    exec->flags = flags;
    pthread_mutex_lock(&driver.lock);
    CUresult result = graph_clone(graph, &exec->graph);
    if (!result && !(exec->order = graph_order(exec->graph))) {
        graph_end(exec->graph);
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&driver.lock);
    if (result) {
        slab_give(SLAB_EXEC, exec);
        return result;
    }
    exec->count = exec->graph->nodes;
    *out = exec;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    return instantiate(exec, graph, flags);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t bytes) {
    CUresult result = instantiate(exec, graph, 0);
    if (error_node)
        *error_node = NULL;
    if (log && bytes)
        log[0] = 0;
    return result;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t bytes) {
    return cuGraphInstantiate_v2(exec, graph, error_node, log, bytes);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    NEED(params, CUDA_ERROR_INVALID_VALUE);
    CUresult result = instantiate(exec, graph, params->flags);
    params->hErrNode_out = NULL;
    params->result_out = result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return result;
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    return cuGraphInstantiateWithParams(exec, graph, params);
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
    struct CUgraphExec_st *exec;
    TRY(exec_of(handle, &exec));
    pthread_mutex_lock(&driver.lock);
    graph_end(exec->graph);
    free(exec->order);
    slab_give(SLAB_EXEC, exec);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags) {
    struct CUgraphExec_st *exec;
    NEED(flags, CUDA_ERROR_INVALID_VALUE);
    TRY(exec_of(handle, &exec));
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode original, unsigned int enabled) {
    struct CUgraphNode_st *at, *node;
    TRY(node_of(original, &at));
    NEED(at->op.type <= CU_GRAPH_NODE_TYPE_MEMSET, CUDA_ERROR_INVALID_VALUE);
    TRY(exec_node(handle, original, at->op.type, &node));
    node->enabled = enabled;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode original, unsigned int *enabled) {
    struct CUgraphNode_st *at, *node;
    NEED(enabled, CUDA_ERROR_INVALID_VALUE);
    TRY(node_of(original, &at));
    NEED(at->op.type <= CU_GRAPH_NODE_TYPE_MEMSET, CUDA_ERROR_INVALID_VALUE);
    TRY(exec_node(handle, original, at->op.type, &node));
    *enabled = node->enabled;
    return CUDA_SUCCESS;
}

/* With driver.lock held: may this graph take the place of the other? Then its operations are taken over. */
static CUgraphExecUpdateResult update(struct CUgraph_st *old, struct CUgraph_st *new, CUgraphNode *at) {
    *at = NULL;
    if (old->nodes != new->nodes)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < new->nodes; i++) {
        *at = new->node[i];
        if (old->node[i]->op.type != new->node[i]->op.type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (old->node[i]->needs != new->node[i]->needs)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    for (size_t i = 0; i < new->nodes; i++) {
        *at = new->node[i];
        if (new->node[i]->op.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            continue;
        if (node_set(old->node[i], &new->node[i]->op))
            return CU_GRAPH_EXEC_UPDATE_ERROR;
        old->node[i]->original = new->node[i];
    }
    *at = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo *info) {
    struct CUgraphExec_st *exec;
    struct CUgraph_st *graph;
    NEED(info, CUDA_ERROR_INVALID_VALUE);
    TRY(exec_of(handle, &exec));
    TRY(graph_of(graph_handle, &graph));
    pthread_mutex_lock(&driver.lock);
    info->result = update(exec->graph, graph, &info->errorNode);
    pthread_mutex_unlock(&driver.lock);
    info->errorFromNode = NULL;
    return info->result ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *result) {
    CUgraphExecUpdateResultInfo info;
    NEED(error_node && result, CUDA_ERROR_INVALID_VALUE);
    CUresult code = cuGraphExecUpdate_v2(exec, graph, &info);
    *error_node = info.errorNode;
    *result = info.result;
    return code;
}

static CUresult launch(CUgraphExec handle, CUstream stream_handle, bool per_thread) {
    struct CUgraphExec_st *exec;
    struct CUstream_st *stream;
    TRY(exec_of(handle, &exec));
    TRY(stream_of(stream_handle, per_thread, &stream));
    if (stream_capturing(stream)) /* captured as a child graph */
        return capture_op(stream, &(struct op){.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = exec->graph});
    TRY(capture_check_legacy(stream));
    return op_run_graph(stream, exec->order, exec->count);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    return launch(exec, stream, false);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    return launch(exec, stream, true);
}

static CUresult upload(CUgraphExec handle, CUstream stream_handle, bool per_thread) {
    struct CUgraphExec_st *exec;
    struct CUstream_st *stream;
    TRY(exec_of(handle, &exec));
    TRY(stream_of(stream_handle, per_thread, &stream));
    NEED(!stream_capturing(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return CUDA_SUCCESS; /* what it would bring up costs nothing here */
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    return upload(exec, stream, false);
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    return upload(exec, stream, true);
}
