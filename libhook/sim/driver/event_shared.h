/*
 * event_shared.h - events that other processes see (CU_EVENT_INTERPROCESS).
 *
 * Each has a slot in a file that its maker's process shares: whose queue, and which entry of it, the event's last record
 * is. How far that queue has come all processes can see in the machine's state. So recording costs a store, and a stream
 * that waits for another process's work asks the state, again and again, by the process's own host thread.
 */
#ifndef GEMINI_SIM_EVENT_SHARED_H
#define GEMINI_SIM_EVENT_SHARED_H

#include "libhook/sim/driver/driver.h"

/* With the flag for it: a slot in event->shared. */
CUresult event_share(struct CUevent_st *event);
void event_unshare(struct CUevent_st *event);

/* The event was recorded here. */
void event_tell(struct CUevent_st *event, uint32_t queue, uint64_t index);

/* Is its last record another process's? */
bool event_foreign(const struct CUevent_st *event);

/* Of such a one: is it over; wait until it is; let the stream wait. */
bool event_foreign_done(const struct CUevent_st *event);
void event_foreign_synchronize(const struct CUevent_st *event);
CUresult event_foreign_wait(const struct CUevent_st *event, struct CUstream_st *stream);

void event_shared_forget(void);

#endif
