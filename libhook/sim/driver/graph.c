#include "libhook/sim/driver/graph.h"

#include <stdlib.h>

#include "libhook/sim/driver/pool.h"

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

struct CUgraph_st *graph_make(void) {
    return slab_take(SLAB_GRAPH, sizeof(struct CUgraph_st));
}

void graph_end_node(struct CUgraphNode_st *node) {
    op_drop(&node->op);
    free(node->need);
    slab_give(SLAB_NODE, node);
}

void graph_end(struct CUgraph_st *graph) {
    for (size_t i = 0; i < graph->nodes; i++)
        graph_end_node(graph->node[i]);
    for (size_t i = 0; i < graph->objects; i++)
        object_drop(graph->object[i], 1);
    free(graph->node);
    free(graph->object);
    slab_give(SLAB_GRAPH, graph);
}

CUresult graph_of(CUgraph handle, struct CUgraph_st **out) {
    INIT();
    NEED(slab_has(SLAB_GRAPH, handle), CUDA_ERROR_INVALID_VALUE);
    *out = handle;
    return CUDA_SUCCESS;
}

CUresult node_of(CUgraphNode handle, struct CUgraphNode_st **out) {
    INIT();
    NEED(slab_has(SLAB_NODE, handle), CUDA_ERROR_INVALID_VALUE);
    *out = handle;
    return CUDA_SUCCESS;
}

CUresult graph_need(struct CUgraphNode_st *node, struct CUgraphNode_st *on) {
    for (size_t i = 0; i < node->needs; i++)
        if (node->need[i] == on)
            return CUDA_SUCCESS;
    struct CUgraphNode_st **grown = realloc(node->need, (node->needs + 1) * sizeof(*grown));
    NEED(grown, CUDA_ERROR_OUT_OF_MEMORY);
    node->need = grown;
    node->need[node->needs++] = on;
    return CUDA_SUCCESS;
}

CUresult graph_add(struct CUgraph_st *graph, const struct op *op, struct CUgraphNode_st *const *needs, size_t count,
    struct CUgraphNode_st **out) {
    for (size_t i = 0; i < count; i++)
        NEED(slab_has(SLAB_NODE, needs[i]) && needs[i]->graph == graph, CUDA_ERROR_INVALID_VALUE);
    struct CUgraphNode_st **grown = realloc(graph->node, (graph->nodes + 1) * sizeof(*grown));
    NEED(grown, CUDA_ERROR_OUT_OF_MEMORY);
    graph->node = grown;
    struct CUgraphNode_st *node = slab_take(SLAB_NODE, sizeof(*node));
    NEED(node, CUDA_ERROR_OUT_OF_MEMORY);
    node->graph = graph;
    node->enabled = true;
    CUresult result = op_keep(&node->op, op);
    for (size_t i = 0; !result && i < count; i++)
        result = graph_need(node, needs[i]);
    if (result) {
        graph_end_node(node);
        return result;
    }
    if (op->type == CU_GRAPH_NODE_TYPE_GRAPH)
        node->op.graph->parent = node;
    graph->node[graph->nodes++] = node;
    *out = node;
    return CUDA_SUCCESS;
}

CUresult graph_clone(const struct CUgraph_st *graph, struct CUgraph_st **out) {
    struct CUgraph_st *copy = graph_make();
    CUresult result = copy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; !result && i < graph->nodes; i++) {
        struct CUgraphNode_st *node;
        graph->node[i]->mark = (uint32_t)i;
        result = graph_add(copy, &graph->node[i]->op, NULL, 0, &node);
        if (!result) {
            node->original = graph->node[i];
            node->enabled = graph->node[i]->enabled;
        }
    }
    for (size_t i = 0; !result && i < graph->nodes; i++)
        for (size_t k = 0; !result && k < graph->node[i]->needs; k++)
            result = graph_need(copy->node[i], copy->node[graph->node[i]->need[k]->mark]);
    if (result && copy) {
        graph_end(copy);
        copy = NULL;
    }
    *out = copy;
    return result;
}

struct CUgraphNode_st **graph_order(struct CUgraph_st *graph) {
    struct CUgraphNode_st **order = calloc(graph->nodes + 1, sizeof(*order));
    size_t count = 0;
    for (size_t i = 0; order && i < graph->nodes; i++)
        graph->node[i]->mark = 0;
    for (bool moved = true; order && moved;) { /* nodes are mostly added in such an order already */
        moved = false;
        for (size_t i = 0; i < graph->nodes; i++) {
            struct CUgraphNode_st *node = graph->node[i];
            bool ready = !node->mark;
            for (size_t k = 0; ready && k < node->needs; k++)
                ready = node->need[k]->mark;
            if (!ready)
                continue;
            node->mark = 1;
            order[count++] = node;
            moved = true;
        }
    }
    if (order && count < graph->nodes) { /* a cycle */
        free(order);
        order = NULL;
    }
    return order;
}

bool graph_reaches(struct CUgraph_st *graph, const struct node_set *from, const struct CUgraphNode_st *node) {
    for (size_t i = 0; i < graph->nodes; i++)
        graph->node[i]->mark = 0;
    for (size_t i = 0; from && i < from->count; i++)
        from->node[i]->mark = 1;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = graph->nodes; i-- > 0;)
            for (size_t k = 0; graph->node[i]->mark && k < graph->node[i]->needs; k++)
                if (!graph->node[i]->need[k]->mark) {
                    graph->node[i]->need[k]->mark = 1;
                    moved = true;
                }
    }
    return node->mark;
}
