/*
 * graph_pause.h - graphs that may make their stream stand still: with host functions, waits for a value or for a semaphore.
 *
 * What is launched behind such a graph may have to be out before its host lets the graph go on, as behind a pause that was
 * put into the stream itself (pause.c). And how long it takes to its end says nothing of its work. Which graphs have one is
 * looked at when they are instantiated.
 */
#ifndef GEMINI_HOOKS_GRAPH_PAUSE_H
#define GEMINI_HOOKS_GRAPH_PAUSE_H

#include <stdbool.h>

#include "libhook/driver/cuda_types.h"

#pragma GCC visibility push(hidden)

/* The graph has become this executable one. */
void graph_pause_made(CUgraphExec exec, CUgraph graph);
void graph_pause_ended(CUgraphExec exec);
/* The executable graph is about to be launched into the stream, as the driver understands it. Does it have a pause? */
bool graph_pause_launching(CUgraphExec exec, CUstream stream);
/* ... and went: if it has one, what stands in one chunk with it teaches nothing. */
void graph_pause_launched(CUgraphExec exec);

#pragma GCC visibility pop

#endif
