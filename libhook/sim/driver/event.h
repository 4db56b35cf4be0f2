/* event.h - CUDA events: marks in queues. */
#ifndef GEMINI_SIM_EVENT_H
#define GEMINI_SIM_EVENT_H

#include "libhook/sim/driver/driver.h"

/* An entry of an event is about to be overwritten: what time did it leave? Called with the queue's mutex held. */
void event_keep_time(uint32_t queue, struct sim_entry *entry);

CUresult event_of(CUevent handle, struct CUevent_st **out);

/* Record and wait outside of captures. */
CUresult event_record(struct CUevent_st *event, struct CUstream_st *stream);
CUresult event_wait(struct CUevent_st *event, struct CUstream_st *stream);

#endif
