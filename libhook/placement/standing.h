/*
 * standing.h - which card a node would give a simple ask, and which of many nodes stands best. Pure, no allocation.
 *
 * What gemini/placement/single.py and standing.py do for each pod, on their arrays. Between two pods of a kind something
 * changes on one node, or on a few: the steps are too few for operations on arrays, and too many for an interpreter.
 */
#ifndef GEMINI_PLACEMENT_STANDING_H
#define GEMINI_PLACEMENT_STANDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
/* A card of a node for one ask. Of each: core, memory, slots (gemini/placement/shape.py says in which units). */
struct standing_card {
    int64_t most[3];    /* so much may be used already */
    int64_t weights[3]; /* what used adds up with to the card's score */
    int64_t of_need;    /* and what the ask adds */
};

/* For each of `rows` nodes of one shape the first of its cards that has room and whose score, times `sign`, is least; -1:
 * none has room. `usable` has one flag for each card, node by node; `used` their core in the same order, their memory
 * `plane` numbers on, and their slots twice as far. `scores`: of those cards with the pod on them, else 0. A sum of
 * weights times what may be used at most must fit 62 bits. */
void standing_look(const struct standing_card *cards, size_t columns, const bool *usable, const int64_t *used,
    size_t plane, size_t rows, int64_t sign, int64_t *found, int64_t *scores);
/* How many of the nodes can take the pod; `best` is the one of them whose numbers, by policy [policy * nodes + ordinal],
 * are least, the first policy's first, and of equals the one of the least ordinal. An ordinal below 0 is no node. */
size_t standing_best(const bool *possible, const double *numbers, size_t policies, size_t nodes,
    const int64_t *ordinals, size_t count, int64_t *best);
/* cffi: end */

#endif
