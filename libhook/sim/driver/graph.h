/*
 * graph.h - graphs, their nodes, and executable graphs. Everything here is under driver.lock unless it says otherwise.
 *
 * Theory. A node owns its operation (arguments copied, op_keep). An executable graph is a clone whose nodes stand in
 * an order that keeps all dependencies; launching it appends them to the stream in that order, back-to-back kernels,
 * copies inside the card and memsets as one entry. So branches of a graph run one after another, as on one engine
 * they would.
 */
#ifndef GEMINI_SIM_GRAPH_H
#define GEMINI_SIM_GRAPH_H

#include "libhook/sim/driver/op.h"

struct CUgraphNode_st {
    struct slab_head head;
    struct CUgraph_st *graph;
    struct op op;
    size_t needs; /* how many nodes it depends on */
    struct CUgraphNode_st **need;
    struct CUgraphNode_st *original; /* of which it is the clone */
    bool enabled;
    uint32_t mark;
};

struct CUgraph_st {
    struct slab_head head;
    size_t nodes;
    struct CUgraphNode_st **node;
    struct CUgraphNode_st *parent; /* the node whose child it is */
    size_t objects;
    struct CUuserObject_st **object;
};

struct CUgraphExec_st {
    struct slab_head head;
    struct CUgraph_st *graph; /* its own */
    size_t count;
    struct CUgraphNode_st **order;
    unsigned long long flags;
};

/* The nodes that the next one of a stream will depend on. */
struct node_set {
    size_t count;
    struct CUgraphNode_st *node[];
};

struct CUgraph_st *graph_make(void);
void graph_end(struct CUgraph_st *graph);
void graph_end_node(struct CUgraphNode_st *node);

/* Add a node; the operation is copied. */
CUresult graph_add(struct CUgraph_st *graph, const struct op *op, struct CUgraphNode_st *const *needs, size_t count,
    struct CUgraphNode_st **out);
/* An own copy of what an operation points to; and the end of it. */
CUresult op_keep(struct op *to, const struct op *from);
void op_drop(struct op *op);
CUresult graph_need(struct CUgraphNode_st *node, struct CUgraphNode_st *on);
CUresult graph_clone(const struct CUgraph_st *graph, struct CUgraph_st **out);

/* In an order that keeps the dependencies; NULL if there is none or no memory. The caller frees it. */
struct CUgraphNode_st **graph_order(struct CUgraph_st *graph);

/* Is `node` among what one of `from` depends on, or one of them itself? */
bool graph_reaches(struct CUgraph_st *graph, const struct node_set *from, const struct CUgraphNode_st *node);

/* Handles. */
CUresult graph_of(CUgraph handle, struct CUgraph_st **out);
CUresult node_of(CUgraphNode handle, struct CUgraphNode_st **out);

/* object.c: `count` references fewer; with the last the program's function is called. */
void object_drop(struct CUuserObject_st *object, unsigned int count);

/* exec.c: the node of the executable graph that was made from this one. */
CUresult exec_node(CUgraphExec handle, CUgraphNode original, CUgraphNodeType type, struct CUgraphNode_st **out);

/* node.c: replace a node's operation by another of the same type. */
CUresult node_set(struct CUgraphNode_st *node, const struct op *op);

#endif
