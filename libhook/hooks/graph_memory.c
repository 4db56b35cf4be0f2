/*
 * graph_memory.c - memory that graphs with allocation nodes hold. The driver keeps it in a pool of its own for each
 * device, maps it when such a graph is instantiated, uploaded or launched, and says how much it is
 * (CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT); there is no moment before which one could reserve. So it is counted after
 * the fact. An instantiation whose memory is refused is undone. Growth at a launch is counted at the next
 * synchronisation; where the tenant has no room left for it, it is tried again at each later one.
 */
#include <errno.h>
#include <stddef.h>

#include "libhook/core/ledger.h"
#include "libhook/driver/real.h"
#include "libhook/hooks/graph_pause.h"
#include "libhook/hooks/memory.h"
#include "libhook/runtime/account.h"

/* Count what the device holds for graphs; -ENOMEM where more is refused, which is then not counted. */
static int settle_of(CUdevice cuda_device) {
    int device = memory_device_of(cuda_device);
    cuuint64_t now = 0;
    if (device < 0 ||
        real.cuDeviceGetGraphMemAttribute(cuda_device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &now) != CUDA_SUCCESS)
        return 0;
    struct ledger *ledger = account_lock();
    struct ledger_entry *entry = ledger_find(ledger, LEDGER_GRAPHS, (uint64_t)device);
    uint64_t before = entry == NULL ? 0 : entry->bytes;
    if (now != before)
        ledger_put(ledger,
            &(struct ledger_entry){.kind = LEDGER_GRAPHS, .key = (uint64_t)device, .bytes = now, .device = device});
    account_unlock();
    if (now < before)
        account_return(device, before - now, false);
    if (now <= before)
        return 0;
    __atomic_store_n(&memory_graphs_used, true, __ATOMIC_RELAXED);
    if (memory_reserve(device, now - before, false) == 0)
        return 0;
    entry = ledger_find(account_lock(), LEDGER_GRAPHS, (uint64_t)device);
    if (entry != NULL)
        entry->bytes -= now - before < entry->bytes ? now - before : entry->bytes;
    account_unlock();
    return -ENOMEM;
}

/* ... the current context's. */
static int settle(void) {
    CUdevice device;
    return real.cuCtxGetDevice(&device) == CUDA_SUCCESS ? settle_of(device) : 0;
}

bool memory_graphs_used;

void memory_settle_graphs(void) {
    settle();
}

static CUresult instantiated(CUresult result, CUgraphExec *exec, CUgraph graph) {
    if (result == CUDA_SUCCESS)
        graph_pause_made(*exec, graph);
    if (result != CUDA_SUCCESS || settle() == 0)
        return result;
    graph_pause_ended(*exec);
    real.cuGraphExecDestroy(*exec);
    *exec = NULL;
    CUdevice device;
    if (real.cuCtxGetDevice(&device) == CUDA_SUCCESS)
        real.cuDeviceGraphMemTrim(device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphInstantiate(
    CUgraphExec *graph_exec, CUgraph graph, CUgraphNode *error_node, char *log_buffer, size_t buffer_size) {
    return instantiated(
        real.cuGraphInstantiate(graph_exec, graph, error_node, log_buffer, buffer_size), graph_exec, graph);
}

CUresult cuGraphInstantiate_v2(
    CUgraphExec *graph_exec, CUgraph graph, CUgraphNode *error_node, char *log_buffer, size_t buffer_size) {
    return instantiated(
        real.cuGraphInstantiate_v2(graph_exec, graph, error_node, log_buffer, buffer_size), graph_exec, graph);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *graph_exec, CUgraph graph, unsigned long long flags) {
    return instantiated(real.cuGraphInstantiateWithFlags(graph_exec, graph, flags), graph_exec, graph);
}

CUresult cuGraphInstantiateWithParams(
    CUgraphExec *graph_exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiate_params) {
    return instantiated(real.cuGraphInstantiateWithParams(graph_exec, graph, instantiate_params), graph_exec, graph);
}

CUresult cuGraphInstantiateWithParams_ptsz(
    CUgraphExec *graph_exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiate_params) {
    return instantiated(
        real.cuGraphInstantiateWithParams_ptsz(graph_exec, graph, instantiate_params), graph_exec, graph);
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    CUresult result = real.cuDeviceGraphMemTrim(device);
    if (__atomic_load_n(&memory_graphs_used, __ATOMIC_RELAXED))
        settle_of(device);
    return result;
}
