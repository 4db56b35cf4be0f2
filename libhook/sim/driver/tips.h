/* tips.h - the nodes that what is captured next in a stream, or behind an event, depends on. */
#ifndef GEMINI_SIM_TIPS_H
#define GEMINI_SIM_TIPS_H

#include "libhook/sim/driver/graph.h"

/* False: there is no memory, and the set is as before. */
bool tips_set(struct node_set **tips, struct CUgraphNode_st *const *node, size_t count);
bool tips_add(struct node_set **tips, struct CUgraphNode_st *const *node, size_t count);
void tips_free(struct node_set **tips);

#endif
