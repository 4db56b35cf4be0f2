/*
 * lane_event.h - events behind chunks, and their times. Within a visit (visit.h).
 */
#ifndef GEMINI_RUNTIME_LANE_EVENT_H
#define GEMINI_RUNTIME_LANE_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/driver/cuda_types.h"

struct visit;

#pragma GCC visibility push(hidden)

/* Does this stream capture? Then what we record would become part of somebody's graph. */
bool lane_event_captures(CUstream stream);
/* cuEventRecord, of an event that is made when it is first needed. */
CUresult lane_event_record(const struct visit *visit, CUevent *event, CUstream stream);
/* When did the event happen, by our clock? It is over. `based`: `base_event` happened at `base_ns`. `now_ns` may be from
 * before that. `span_ns`: from the base to it, by the device's clock alone; 0: unknown. */
uint64_t lane_event_time(
    bool based, CUevent base_event, uint64_t base_ns, CUevent event, uint64_t now_ns, uint64_t *span_ns);

#pragma GCC visibility pop

#endif
