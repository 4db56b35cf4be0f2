/* graph_pause.c - a look through the nodes (graph_pause.h). */
#include "libhook/hooks/graph_pause.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "libhook/core/ledger.h"
#include "libhook/core/peek.h"
#include "libhook/driver/cuda_abi.h"
#include "libhook/driver/real.h"
#include "libhook/runtime/account.h"
#include "libhook/runtime/agent.h"
#include "libhook/runtime/watch.h"

#define SEMAPHORES 9 /* a type of nodes that the simulated card does not have: CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT */
#define DEEPEST 16 /* of graphs within graphs; deeper ones may have anything */

#define PLACES 256

/* How many have one, by a hash of the handle; any thread. One that shares the place of another is taken to have one as well.
 * Which they are the account knows. */
static uint32_t pauses[PLACES];

static uint32_t *place_of(CUgraphExec exec) {
    return &pauses[(uint64_t)(uintptr_t)exec * 0x9E3779B97F4A7C15ull >> 56];
}

static bool has_pause(CUgraph graph, int depth);

static bool is_pause(CUgraphNode node, int depth) {
    CUgraphNodeType type;
    CUgraph child;

    if (real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return false;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH)
        return real.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS && has_pause(child, depth + 1);
    return type == CU_GRAPH_NODE_TYPE_HOST || type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ||
           type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP || (int)type == SEMAPHORES;
}

static bool has_pause(CUgraph graph, int depth) {
    size_t count = 0;

    if (depth > DEEPEST)
        return true;
    if (real.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || !count)
        return false;
    CUgraphNode *nodes = malloc(count * sizeof(CUgraphNode));
    if (!nodes)
        return true;
    bool found = false;
    if (real.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count && !found; i++)
            found = is_pause(nodes[i], depth);
    free(nodes);
    return found;
}

void graph_pause_made(CUgraphExec exec, CUgraph graph) {
    struct ledger_entry entry = {.kind = LEDGER_PAUSING, .key = (uint64_t)(uintptr_t)exec, .device = -1};

    graph_pause_ended(exec); /* one of that handle went with its context */
    if (!graph || !agent_is_tenant() || !has_pause(graph, 0))
        return;
    __atomic_add_fetch(place_of(exec), 1, __ATOMIC_RELAXED);
    account_enter(&entry);
}

void graph_pause_ended(CUgraphExec exec) {
    struct ledger_entry entry;

    if (PEEK(*place_of(exec)) && account_take(LEDGER_PAUSING, (uint64_t)(uintptr_t)exec, &entry))
        __atomic_sub_fetch(place_of(exec), 1, __ATOMIC_RELAXED);
}

bool graph_pause_launching(CUgraphExec exec, CUstream stream) {
    if (!PEEK(*place_of(exec)))
        return false;
    watch_stream_may_pause(stream);
    return true;
}

void graph_pause_launched(CUgraphExec exec) {
    if (PEEK(*place_of(exec)))
        watch_launch_pauses();
}
