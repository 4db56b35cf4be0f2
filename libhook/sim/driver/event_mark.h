/*
 * event_mark.h - which entry of which queue an event's last record is, and when it was over.
 */
#ifndef GEMINI_SIM_EVENT_MARK_H
#define GEMINI_SIM_EVENT_MARK_H

#include "libhook/sim/driver/driver.h"

CUresult event_of(CUevent handle, struct CUevent_st **out);

/* One word for an entry of a queue, so that nobody sees the queue of one recording and the entry of another. */
static inline uint64_t event_mark(uint32_t queue, uint64_t index) {
    return index << 8 | queue;
}

static inline uint32_t event_mark_queue(uint64_t mark) {
    return (uint32_t)(mark & 0xff);
}

static inline uint64_t event_mark_index(uint64_t mark) {
    return mark >> 8;
}

/* When the entry was over, if it has left its queue; 0: it has not. */
uint64_t event_mark_kept_ns(struct CUevent_st *event, uint64_t mark);

/* An entry of an event is about to be overwritten: what time did it leave? Called with the queue's mutex held. */
void event_mark_keep_time(uint32_t queue, struct sim_entry *entry);

#endif
