/* tips.c - sets of nodes (tips.h). */
#include "libhook/sim/driver/tips.h"

#include <stdlib.h>
#include <string.h>

void tips_free(struct node_set **tips) {
    free(*tips);
    *tips = NULL;
}

static struct node_set *tips_copy(struct CUgraphNode_st *const *node, size_t count) {
    struct node_set *set = malloc(sizeof(*set) + count * sizeof(set->node[0]));
    if (!set)
        return NULL;
    set->count = count;
    if (count)
        memcpy(set->node, node, count * sizeof(set->node[0]));
    return set;
}

bool tips_set(struct node_set **tips, struct CUgraphNode_st *const *node, size_t count) {
    struct node_set *set = tips_copy(node, count);
    if (!set)
        return false;
    free(*tips);
    *tips = set;
    return true;
}

bool tips_add(struct node_set **tips, struct CUgraphNode_st *const *node, size_t count) {
    size_t had = *tips ? (*tips)->count : 0;
    struct node_set *set = realloc(*tips, sizeof(*set) + (had + count) * sizeof(set->node[0]));
    if (!set)
        return false;
    set->count = had;
    for (size_t i = 0; i < count; i++) {
        bool there = false;
        for (size_t k = 0; k < set->count; k++)
            there |= set->node[k] == node[i];
        if (!there)
            set->node[set->count++] = node[i];
    }
    *tips = set;
    return true;
}
