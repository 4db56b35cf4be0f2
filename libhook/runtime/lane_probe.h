/*
 * lane_probe.h - is everything that a lane launched over? Asked by the agent, which is no owner of lanes (lane.h).
 */
#ifndef GEMINI_RUNTIME_LANE_PROBE_H
#define GEMINI_RUNTIME_LANE_PROBE_H

#include <stdbool.h>
#include <stdint.h>

struct lane;

#pragma GCC visibility push(hidden)

struct lane_probe {
    bool finished;
    bool unconfirmed;
    uint64_t wanted_ns, start_ns, end_ns; /* of what was in flight, as far as known */
    uint64_t mark_ns; /* finished: by then the last of it had been launched */
    uint64_t inflight_ns;
};
enum lane_look { LANE_NOW, LANE_WHEN_DUE /* without asking the driver before the work should be over */ };
/* The agent: is everything that this lane launched over? Marks open work with an event of our own. */
void lane_probe(struct lane *lane, enum lane_look how, uint64_t now_ns, struct lane_probe *probe);

/* A thread that destroys the stream, or begins a capture, the agent being out: cover a lane's open work with an event. */
void lane_foreign_record(struct lane *lane);

#pragma GCC visibility pop

#endif
