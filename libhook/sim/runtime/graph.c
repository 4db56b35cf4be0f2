/* Captures and graphs. Where CUDA 13 gave a name the arguments of the older `_v2`, both majors have their own. */
#include "libhook/sim/runtime/runtime.h"

STREAM(
    cudaStreamBeginCapture, (cudaStream_t stream, CUstreamCaptureMode mode), cu.cuStreamBeginCapture_v2(stream, mode))
STREAM(cudaStreamBeginCaptureToGraph,
    (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *needs, const CUgraphEdgeData *edges, size_t count,
        CUstreamCaptureMode mode),
    cu.cuStreamBeginCaptureToGraph(stream, graph, needs, edges, count, mode))
STREAM(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph), cu.cuStreamEndCapture(stream, graph))
STREAM(
    cudaStreamIsCapturing, (cudaStream_t stream, CUstreamCaptureStatus *status), cu.cuStreamIsCapturing(stream, status))
START(cudaThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), cu.cuThreadExchangeStreamCaptureMode(mode))

#define CAPTURE_INFO(name)                                                                                             \
    STREAM(name,                                                                                                       \
        (cudaStream_t stream, CUstreamCaptureStatus * status, unsigned long long *id, cudaGraph_t *graph,              \
            const cudaGraphNode_t **needs, const CUgraphEdgeData **edges, size_t *count),                              \
        cu.cuStreamGetCaptureInfo_v3(stream, status, (cuuint64_t *)id, graph, needs, edges, count))
#define CAPTURE_UPDATE(name)                                                                                           \
    STREAM(name,                                                                                                       \
        (cudaStream_t stream, cudaGraphNode_t * needs, const CUgraphEdgeData *edges, size_t count,                     \
            unsigned int flags),                                                                                       \
        cu.cuStreamUpdateCaptureDependencies_v2(stream, needs, edges, count, flags))
#define GRAPH_EDGES(name)                                                                                              \
    CALL(name,                                                                                                         \
        (cudaGraph_t graph, cudaGraphNode_t * from, cudaGraphNode_t * to, CUgraphEdgeData * edges, size_t *count),     \
        cu.cuGraphGetEdges_v2(graph, from, to, edges, count))
#define NODE_NEEDS(name)                                                                                               \
    CALL(name, (cudaGraphNode_t node, cudaGraphNode_t * needs, CUgraphEdgeData * edges, size_t *count),                \
        cu.cuGraphNodeGetDependencies_v2(node, needs, edges, count))
#define NODE_NEEDED(name)                                                                                              \
    CALL(name, (cudaGraphNode_t node, cudaGraphNode_t * dependents, CUgraphEdgeData * edges, size_t *count),           \
        cu.cuGraphNodeGetDependentNodes_v2(node, dependents, edges, count))
#define ADD_NEEDS(name)                                                                                                \
    CALL(name,                                                                                                         \
        (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, const CUgraphEdgeData *edges,      \
            size_t count),                                                                                             \
        cu.cuGraphAddDependencies_v2(graph, from, to, edges, count))
#define REMOVE_NEEDS(name)                                                                                             \
    CALL(name,                                                                                                         \
        (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, const CUgraphEdgeData *edges,      \
            size_t count),                                                                                             \
        cu.cuGraphRemoveDependencies_v2(graph, from, to, edges, count))
#define ADD_NODE(name)                                                                                                 \
    CALL(name,                                                                                                         \
        (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *needs, const CUgraphEdgeData *edges,        \
            size_t count, CUgraphNodeParams *params),                                                                  \
        cu.cuGraphAddNode_v2(node, graph, needs, edges, count, params))

#if CUDA_MAJOR >= 13
CAPTURE_INFO(cudaStreamGetCaptureInfo)
CAPTURE_UPDATE(cudaStreamUpdateCaptureDependencies)
GRAPH_EDGES(cudaGraphGetEdges)
NODE_NEEDS(cudaGraphNodeGetDependencies)
NODE_NEEDED(cudaGraphNodeGetDependentNodes)
ADD_NEEDS(cudaGraphAddDependencies)
REMOVE_NEEDS(cudaGraphRemoveDependencies)
ADD_NODE(cudaGraphAddNode)
#else
STREAM(cudaStreamGetCaptureInfo, (cudaStream_t stream, CUstreamCaptureStatus *status, unsigned long long *id),
    cu.cuStreamGetCaptureInfo(stream, status, (cuuint64_t *)id))
STREAM(cudaStreamGetCaptureInfo_v2,
    (cudaStream_t stream, CUstreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
        const cudaGraphNode_t **needs, size_t *count),
    cu.cuStreamGetCaptureInfo_v2(stream, status, (cuuint64_t *)id, graph, needs, count))
CAPTURE_INFO(cudaStreamGetCaptureInfo_v3)
STREAM(cudaStreamUpdateCaptureDependencies,
    (cudaStream_t stream, cudaGraphNode_t *needs, size_t count, unsigned int flags),
    cu.cuStreamUpdateCaptureDependencies(stream, needs, count, flags))
CAPTURE_UPDATE(cudaStreamUpdateCaptureDependencies_v2)
CALL(cudaGraphGetEdges, (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, size_t *count),
    cu.cuGraphGetEdges(graph, from, to, count))
GRAPH_EDGES(cudaGraphGetEdges_v2)
CALL(cudaGraphNodeGetDependencies, (cudaGraphNode_t node, cudaGraphNode_t *needs, size_t *count),
    cu.cuGraphNodeGetDependencies(node, needs, count))
NODE_NEEDS(cudaGraphNodeGetDependencies_v2)
CALL(cudaGraphNodeGetDependentNodes, (cudaGraphNode_t node, cudaGraphNode_t *dependents, size_t *count),
    cu.cuGraphNodeGetDependentNodes(node, dependents, count))
NODE_NEEDED(cudaGraphNodeGetDependentNodes_v2)
CALL(cudaGraphAddDependencies,
    (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t count),
    cu.cuGraphAddDependencies(graph, from, to, count))
ADD_NEEDS(cudaGraphAddDependencies_v2)
CALL(cudaGraphRemoveDependencies,
    (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t count),
    cu.cuGraphRemoveDependencies(graph, from, to, count))
REMOVE_NEEDS(cudaGraphRemoveDependencies_v2)
CALL(cudaGraphAddNode,
    (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *needs, size_t count, CUgraphNodeParams *params),
    cu.cuGraphAddNode(node, graph, needs, count, params))
ADD_NODE(cudaGraphAddNode_v2)
#endif

CALL(cudaGraphCreate, (cudaGraph_t * graph, unsigned int flags), cu.cuGraphCreate(graph, flags))
CALL(cudaGraphDestroy, (cudaGraph_t graph), cu.cuGraphDestroy(graph))
CALL(cudaGraphClone, (cudaGraph_t * clone, cudaGraph_t graph), cu.cuGraphClone(clone, graph))
CALL(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count),
    cu.cuGraphGetNodes(graph, nodes, count))
CALL(cudaGraphGetRootNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count),
    cu.cuGraphGetRootNodes(graph, nodes, count))
CALL(cudaGraphNodeGetType, (cudaGraphNode_t node, CUgraphNodeType *type), cu.cuGraphNodeGetType(node, type))
CALL(cudaGraphNodeFindInClone, (cudaGraphNode_t * out, cudaGraphNode_t node, cudaGraph_t clone),
    cu.cuGraphNodeFindInClone(out, node, clone))
CALL(cudaGraphDestroyNode, (cudaGraphNode_t node), cu.cuGraphDestroyNode(node))
CALL(cudaGraphAddEmptyNode, (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *needs, size_t count),
    cu.cuGraphAddEmptyNode(node, graph, needs, count))
CALL(cudaGraphAddChildGraphNode,
    (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *needs, size_t count, cudaGraph_t child),
    cu.cuGraphAddChildGraphNode(node, graph, needs, count, child))
CALL(cudaGraphAddHostNode,
    (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *needs, size_t count,
        const CUDA_HOST_NODE_PARAMS *params),
    cu.cuGraphAddHostNode(node, graph, needs, count, params))
CALL(cudaGraphAddEventRecordNode,
    (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *needs, size_t count, cudaEvent_t event),
    cu.cuGraphAddEventRecordNode(node, graph, needs, count, event))
CALL(cudaGraphAddEventWaitNode,
    (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *needs, size_t count, cudaEvent_t event),
    cu.cuGraphAddEventWaitNode(node, graph, needs, count, event))

/* ---- to be run ---- */

CALL(cudaGraphInstantiate, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
    cu.cuGraphInstantiateWithFlags(exec, graph, flags))
CALL(cudaGraphInstantiateWithFlags, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
    cu.cuGraphInstantiateWithFlags(exec, graph, flags))
CALL(cudaGraphInstantiateWithParams, (cudaGraphExec_t * exec, cudaGraph_t graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
    cu.cuGraphInstantiateWithParams(exec, graph, params))
CALL(cudaGraphExecDestroy, (cudaGraphExec_t exec), cu.cuGraphExecDestroy(exec))
CALL(cudaGraphExecGetFlags, (cudaGraphExec_t exec, unsigned long long *flags),
    cu.cuGraphExecGetFlags(exec, (cuuint64_t *)flags))
CALL(cudaGraphExecUpdate, (cudaGraphExec_t exec, cudaGraph_t graph, CUgraphExecUpdateResultInfo *info),
    cu.cuGraphExecUpdate_v2(exec, graph, info))
CALL(cudaGraphNodeGetEnabled, (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int *enabled),
    cu.cuGraphNodeGetEnabled(exec, node, enabled))
CALL(cudaGraphNodeSetEnabled, (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int enabled),
    cu.cuGraphNodeSetEnabled(exec, node, enabled))
STREAM(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), cu.cuGraphLaunch(exec, stream))
STREAM(cudaGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream), cu.cuGraphUpload(exec, stream))

/* ---- what lives as long as a graph ---- */

START(cudaUserObjectCreate,
    (cudaUserObject_t * object, void *pointer, CUhostFn destroy, unsigned int count, unsigned int flags),
    cu.cuUserObjectCreate(object, pointer, destroy, count, flags))
START(cudaUserObjectRetain, (cudaUserObject_t object, unsigned int count), cu.cuUserObjectRetain(object, count))
START(cudaUserObjectRelease, (cudaUserObject_t object, unsigned int count), cu.cuUserObjectRelease(object, count))
CALL(cudaGraphRetainUserObject, (cudaGraph_t graph, cudaUserObject_t object, unsigned int count, unsigned int flags),
    cu.cuGraphRetainUserObject(graph, object, count, flags))
CALL(cudaGraphReleaseUserObject, (cudaGraph_t graph, cudaUserObject_t object, unsigned int count),
    cu.cuGraphReleaseUserObject(graph, object, count))
