/*
 * What is near what. Cards 2k and 2k+1 are behind one PCIe switch, cards 4k to 4k+3 under one host bridge, and all on
 * NUMA node 0, whose CPUs and memory are near to every card. Every pair can reach one another's memory, over PCIe.
 */
#define _GNU_SOURCE
#include "libhook/sim/nvml/nvml.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WORD = sizeof(unsigned long) * CHAR_BIT, HOSTBRIDGE = 30, NOT_SUPPORTED = 5 };

static int level(unsigned int a, unsigned int b) {
    return a == b           ? NVML_TOPOLOGY_INTERNAL
           : a / 2 == b / 2 ? NVML_TOPOLOGY_SINGLE
           : a / 4 == b / 4 ? HOSTBRIDGE
                            : NVML_TOPOLOGY_NODE;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *out) {
    unsigned int first, second;
    TRY(nvml_index(a, &first));
    TRY(nvml_index(b, &second));
    NEED(out, NVML_ERROR_INVALID_ARGUMENT);
    *out = level(first, second);
    return NVML_SUCCESS;
}

/* The others whose common ancestor with the card is at exactly this level. */
nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(
    nvmlDevice_t device, nvmlGpuTopologyLevel_t wanted, unsigned int *count, nvmlDevice_t *devices) {
    unsigned int index, found = 0, room;
    TRY(nvml_index(device, &index));
    NEED(count && (devices || !*count) && wanted >= 0 && wanted <= NVML_TOPOLOGY_SYSTEM && wanted % 10 == 0,
        NVML_ERROR_INVALID_ARGUMENT);
    room = *count;
    for (unsigned int i = 0; i < nvml.spec.gpus; i++)
        if (i != index && level(i, index) == wanted) {
            if (found < room)
                devices[found] = nvml_handle(i);
            found++;
        }
    *count = room && found > room ? room : found;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t a, nvmlDevice_t b, int *same) {
    unsigned int first, second;
    TRY(nvml_index(a, &first));
    TRY(nvml_index(b, &second));
    NEED(same, NVML_ERROR_INVALID_ARGUMENT);
    *same = first == second;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(
    nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t capability, nvmlGpuP2PStatus_t *status) {
    unsigned int first, second;
    TRY(nvml_index(a, &first));
    TRY(nvml_index(b, &second));
    NEED(status && first != second && capability >= 0 && capability <= 4, NVML_ERROR_INVALID_ARGUMENT);
    *status = capability == 2 ? NOT_SUPPORTED : 0; /* read, write, NVLink, atomics, PCIe */
    return NVML_SUCCESS;
}

/* The CPUs of NUMA node 0 as Linux lists them ("0-3,8"), or all where there are no nodes; cut to the caller's set. */
static void cpus_of_node(unsigned int words, unsigned long *set) {
    char text[1024] = "", *at = text;
    FILE *file = fopen("/sys/devices/system/node/node0/cpulist", "re");
    if (!file || !fgets(text, sizeof(text), file))
        snprintf(text, sizeof(text), "0-%ld", sysconf(_SC_NPROCESSORS_CONF) - 1);
    if (file)
        fclose(file);
    memset(set, 0, words * sizeof(*set));
    unsigned int first, last;
    int used;
    while (sscanf(at, "%u%n", &first, &used) == 1) {
        at += used;
        last = first;
        if (sscanf(at, "-%u%n", &last, &used) == 1)
            at += used;
        for (unsigned int cpu = first; cpu <= last && cpu / WORD < words; cpu++)
            set[cpu / WORD] |= 1ul << cpu % WORD;
        at += *at == ',';
    }
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(
    nvmlDevice_t device, unsigned int size, unsigned long *set, nvmlAffinityScope_t scope) {
    unsigned int index;
    TRY(nvml_index(device, &index));
    NEED(set && size && scope <= 1, NVML_ERROR_INVALID_ARGUMENT); /* node, socket: the same here */
    cpus_of_node(size, set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int size, unsigned long *set) {
    return nvmlDeviceGetCpuAffinityWithinScope(device, size, set, 0);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(
    nvmlDevice_t device, unsigned int size, unsigned long *set, nvmlAffinityScope_t scope) {
    unsigned int index;
    TRY(nvml_index(device, &index));
    NEED(set && size && scope <= 1, NVML_ERROR_INVALID_ARGUMENT);
    memset(set, 0, size * sizeof(*set));
    set[0] = 1;
    return NVML_SUCCESS;
}
