/*
 * User objects: what a program ties to a graph, to be destroyed by a function of its own with the last that holds it.
 */
#include <stdlib.h>

#include "libhook/sim/driver/graph.h"

struct CUuserObject_st {
    struct slab_head head;
    void *value;
    CUhostFn destroy;
    unsigned int references;
};

void object_drop(struct CUuserObject_st *object, unsigned int count) {
    object->references -= count < object->references ? count : object->references;
    if (object->references)
        return;
    if (object->destroy)
        object->destroy(object->value);
    slab_give(SLAB_USER_OBJECT, object);
}

static CUresult object_of(CUuserObject handle, unsigned int count, struct CUuserObject_st **out) {
    INIT();
    NEED(slab_has(SLAB_USER_OBJECT, handle) && count, CUDA_ERROR_INVALID_VALUE);
    *out = handle;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectCreate(CUuserObject *out, void *value, CUhostFn destroy, unsigned int count, unsigned int flags) {
    INIT();
    NEED(out && destroy && count && flags == 1, CUDA_ERROR_INVALID_VALUE);
    struct CUuserObject_st *object = slab_take(SLAB_USER_OBJECT, sizeof(*object));
    NEED(object, CUDA_ERROR_OUT_OF_MEMORY);
    object->value = value;
    object->destroy = destroy;
    object->references = count;
    *out = object;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned int count) {
    struct CUuserObject_st *object;
    TRY(object_of(handle, count, &object));
    object->references += count;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count) {
    struct CUuserObject_st *object;
    TRY(object_of(handle, count, &object));
    object_drop(object, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph handle, CUuserObject object_handle, unsigned int count, unsigned int flags) {
    struct CUgraph_st *graph;
    struct CUuserObject_st *object;
    NEED(flags <= 1, CUDA_ERROR_INVALID_VALUE);
    TRY(graph_of(handle, &graph));
    TRY(object_of(object_handle, count, &object));
    struct CUuserObject_st **grown = realloc(graph->object, (graph->objects + count) * sizeof(*grown));
    NEED(grown, CUDA_ERROR_OUT_OF_MEMORY);
    graph->object = grown;
    for (unsigned int i = 0; i < count; i++)
        graph->object[graph->objects++] = object;
    object->references += flags ? 0 : count; /* flag 1: the references are handed over */
    return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph handle, CUuserObject object_handle, unsigned int count) {
    struct CUgraph_st *graph;
    struct CUuserObject_st *object;
    TRY(graph_of(handle, &graph));
    TRY(object_of(object_handle, count, &object));
    for (size_t i = graph->objects; i-- > 0 && count;)
        if (graph->object[i] == object) {
            graph->object[i] = graph->object[--graph->objects];
            object_drop(object, 1);
            count--;
        }
    return count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
