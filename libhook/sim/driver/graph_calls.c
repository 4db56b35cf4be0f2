/* The program's calls about graphs that are not run yet. */
#include "libhook/sim/driver/graph.h"

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags) {
    INIT();
    NEED(graph && !flags, CUDA_ERROR_INVALID_VALUE);
    *graph = graph_make();
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph handle) {
    struct CUgraph_st *graph;
    TRY(graph_of(handle, &graph));
    NEED(!graph->parent, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    graph_end(graph);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *out, CUgraph handle) {
    struct CUgraph_st *graph;
    NEED(out, CUDA_ERROR_INVALID_VALUE);
    TRY(graph_of(handle, &graph));
    pthread_mutex_lock(&driver.lock);
    CUresult result = graph_clone(graph, out);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph handle) {
    struct CUgraph_st *graph;
    NEED(node, CUDA_ERROR_INVALID_VALUE);
    TRY(graph_of(handle, &graph));
    for (size_t i = 0; i < graph->nodes; i++)
        if (graph->node[i]->original == original) {
            *node = graph->node[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type) {
    struct CUgraphNode_st *node;
    NEED(type, CUDA_ERROR_INVALID_VALUE);
    TRY(node_of(handle, &node));
    *type = node->op.type;
    return CUDA_SUCCESS;
}

/* Lists are given in two calls: how many there are, then up to so many of them. */
struct list {
    CUgraphNode *to;
    size_t room, count;
};

static void list_add(struct list *list, CUgraphNode node) {
    if (list->to && list->count < list->room)
        list->to[list->count] = node;
    list->count++;
}

static CUresult list_end(const struct list *list, size_t *count) {
    for (size_t i = list->count; list->to && i < list->room; i++)
        list->to[i] = NULL;
    *count = list->to && list->count > list->room ? list->room : list->count;
    return CUDA_SUCCESS;
}

static CUresult list_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count, bool roots_only) {
    struct CUgraph_st *graph;
    NEED(count, CUDA_ERROR_INVALID_VALUE);
    TRY(graph_of(handle, &graph));
    struct list list = {nodes, nodes ? *count : 0, 0};
    for (size_t i = 0; i < graph->nodes; i++)
        if (!roots_only || !graph->node[i]->needs)
            list_add(&list, graph->node[i]);
    return list_end(&list, count);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    return list_nodes(graph, nodes, count, false);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    return list_nodes(graph, nodes, count, true);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode *needs, size_t *count) {
    struct CUgraphNode_st *node;
    NEED(count, CUDA_ERROR_INVALID_VALUE);
    TRY(node_of(handle, &node));
    struct list list = {needs, needs ? *count : 0, 0};
    for (size_t i = 0; i < node->needs; i++)
        list_add(&list, node->need[i]);
    return list_end(&list, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode *dependents, size_t *count) {
    struct CUgraphNode_st *node;
    NEED(count, CUDA_ERROR_INVALID_VALUE);
    TRY(node_of(handle, &node));
    struct list list = {dependents, dependents ? *count : 0, 0};
    for (size_t i = 0; i < node->graph->nodes; i++)
        for (size_t k = 0; k < node->graph->node[i]->needs; k++)
            if (node->graph->node[i]->need[k] == node)
                list_add(&list, node->graph->node[i]);
    return list_end(&list, count);
}

CUresult cuGraphGetEdges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, size_t *count) {
    struct CUgraph_st *graph;
    size_t total;
    NEED(count && !from == !to, CUDA_ERROR_INVALID_VALUE);
    TRY(graph_of(handle, &graph));
    struct list starts = {from, from ? *count : 0, 0}, ends = {to, to ? *count : 0, 0};
    for (size_t i = 0; i < graph->nodes; i++)
        for (size_t k = 0; k < graph->node[i]->needs; k++) {
            list_add(&starts, graph->node[i]->need[k]);
            list_add(&ends, graph->node[i]);
        }
    list_end(&starts, &total);
    return list_end(&ends, count);
}

static void plain_edges(CUgraphEdgeData *edges, size_t count) {
    if (edges)
        memset(edges, 0, count * sizeof(*edges));
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count) {
    TRY(cuGraphGetEdges(graph, from, to, count));
    plain_edges(edges, *count);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *needs, CUgraphEdgeData *edges, size_t *count) {
    TRY(cuGraphNodeGetDependencies(node, needs, count));
    plain_edges(edges, *count);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependentNodes_v2(
    CUgraphNode node, CUgraphNode *dependents, CUgraphEdgeData *edges, size_t *count) {
    TRY(cuGraphNodeGetDependentNodes(node, dependents, count));
    plain_edges(edges, *count);
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
    struct CUgraph_st *graph;
    NEED((from && to) || !count, CUDA_ERROR_INVALID_VALUE);
    TRY(graph_of(handle, &graph));
    for (size_t i = 0; i < count; i++) {
        NEED(slab_has(SLAB_NODE, from[i]) && slab_has(SLAB_NODE, to[i]) && from[i] != to[i] &&
                 from[i]->graph == graph && to[i]->graph == graph,
            CUDA_ERROR_INVALID_VALUE);
        TRY(graph_need(to[i], from[i]));
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies_v2(
    CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges, size_t count) {
    (void)edges;
    return cuGraphAddDependencies(graph, from, to, count);
}

static bool forget_need(struct CUgraphNode_st *node, const struct CUgraphNode_st *on) {
    for (size_t i = 0; i < node->needs; i++)
        if (node->need[i] == on) {
            node->need[i] = node->need[--node->needs];
            return true;
        }
    return false;
}

CUresult cuGraphRemoveDependencies(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
    struct CUgraph_st *graph;
    NEED((from && to) || !count, CUDA_ERROR_INVALID_VALUE);
    TRY(graph_of(handle, &graph));
    for (size_t i = 0; i < count; i++)
        NEED(slab_has(SLAB_NODE, to[i]) && forget_need(to[i], from[i]), CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies_v2(
    CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges, size_t count) {
    (void)edges;
    return cuGraphRemoveDependencies(graph, from, to, count);
}

CUresult cuGraphDestroyNode(CUgraphNode handle) {
    struct CUgraphNode_st *node;
    TRY(node_of(handle, &node));
    struct CUgraph_st *graph = node->graph;
    pthread_mutex_lock(&driver.lock);
    for (size_t i = 0; i < graph->nodes; i++)
        forget_need(graph->node[i], node);
    for (size_t i = 0; i < graph->nodes; i++)
        if (graph->node[i] == node) {
            memmove(&graph->node[i], &graph->node[i + 1], (--graph->nodes - i) * sizeof(node));
            break;
        }
    graph_end_node(node);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}
