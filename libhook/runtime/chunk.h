/*
 * chunk.h - some launches of a lane that end with an event (lane.h).
 */
#ifndef GEMINI_RUNTIME_CHUNK_H
#define GEMINI_RUNTIME_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/driver/cuda_types.h"

struct chunk {
    CUevent event;
    uint64_t key; /* 0: launches of several kinds */
    uint64_t kinds[2]; /* ... of these, if they were two */
    uint64_t close_by_ns; /* when the work in flight was to be over then; UINT64_MAX: no end */
    uint64_t estimated_ns;
    uint64_t most_ns;   /* of a wild launch (belief.h): what it may take; else 0 */
    uint64_t wanted_ns; /* when the program wanted to launch the first of it */
    uint64_t first_ns;  /* when it did */
    uint64_t cut_ns;    /* when the event was recorded */
    uint64_t from;      /* `launched` before the first of it */
    uint32_t launches;
    uint32_t held;      /* 0, or the number of the segment that it was held in (segments.h) */
    bool unknown;       /* nothing was known of its length: no telling what is left of it */
    bool alone;         /* events stand directly before and after: its length is the launch's */
    bool late;          /* it may have begun late: a wait stands before it, or in it, whose end no event tells */
    uint64_t waited_ns; /* of all time, when its first was launched (waited.h) */
};

#endif
