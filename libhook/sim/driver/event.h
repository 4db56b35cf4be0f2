/* event.h - CUDA events: marks in queues. */
#ifndef GEMINI_SIM_EVENT_H
#define GEMINI_SIM_EVENT_H

#include "libhook/sim/driver/driver.h"

/* Record and wait outside of captures. */
CUresult event_record(struct CUevent_st *event, struct CUstream_st *stream);
CUresult event_wait(struct CUevent_st *event, struct CUstream_st *stream);

#endif
