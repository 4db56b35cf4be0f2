/*
 * carrier.h - the daemon's small thread that carries out the prepared hand-overs of each GPU.
 *
 * Two message hops, four wake-ups and the interpreter are most of what a hand-over costs, and the card idles meanwhile.
 * But who is next is known before the holder has drained. So the token machine decides ahead ("when A's epoch 7 has
 * drained, B has epoch 8") and the order waits here, outside of the interpreter. The holder says on its page connection
 * that it has drained (struct wire_page_drained). This thread stores the two words of the two pages and wakes who
 * sleeps on the second. Then it tells the interpreter, for which it is an event like any other. It tells it late: as a
 * rule the holder's Return comes soon, and with it the question what was carried out (carrier_take_back). So the
 * interpreter wakes once for both, and not while the threads that were woken need the processor. Where the Return
 * stands behind the word itself it is kept with the order, so that no other thread wakes for it, and no library reads
 * it. While there is another order behind the one that was carried out, the interpreter sleeps on.
 *
 * An order is taken back before the machine looks at anything else (carrier_take_back), so the machine never decides
 * while a decision of before may still be carried out. What a client writes can do no more than its Return could: say
 * that it has drained. A connection that talks nonsense, or one of a tenant that talks without end, is not listened to
 * any more.
 *
 * All functions are the loop thread's; one mutex guards what the two threads share, held for no blocking call.
 */
#ifndef GEMINI_CARRIER_H
#define GEMINI_CARRIER_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/core/wire.h"

/* cffi: begin */
#define CARRIER_GPUS 64
#define CARRIER_CLIENTS 16384
#define CARRIER_ACCOUNTS 4096
#define CARRIER_OF_ACCOUNT 256 /* connections of one account; and so many processes a tenant may have */
#define CARRIER_AHEAD 4 /* orders of one GPU */
#define CARRIER_WAKES 128 /* of those who sleep on a word, which anybody may who has the page */

struct carrier;

/* Starts the thread. NULL: no thread, memory or descriptors; errno says which. */
struct carrier *carrier_start(void);
/* A timerfd (the carrier's) that is readable soon after an order was carried out, if nobody asked before: after TAKEN_NS
 * where the Return came with the word, after TOLD_NS where it should come by itself, at once for an order by_message. */
int carrier_done_fd(const struct carrier *carrier);
/* Ends the thread and frees all; what was prepared is not carried out any more. */
void carrier_stop(struct carrier *carrier);
/* Listen to this page connection (a copy of the descriptor is kept). Connections of one `account` may together say so
 * much and no more, and be so many: nobody takes all numbers from the others. An account is one of CARRIER_ACCOUNTS
 * numbers. Returns the connection's number, or -errno (EUSERS: too many). The number is nobody else's until
 * carrier_forget, also where the connection has ended or is not listened to any more. */
int carrier_listen(struct carrier *carrier, int fd, uint32_t account);
void carrier_forget(struct carrier *carrier, int number);
/* When client `number` says that `holder_epoch` has drained, clear its word and show `next_epoch` in the other page.
 * One that says so before `not_before_ns` (CLOCK_MONOTONIC) hands nothing on, one that wants more at once neither before
 * `wanting_from_ns`. It replaces all orders of this GPU; or, `behind` them, it counts once the last of them was carried
 * out for a holder that wanted more, and wanting_from_ns from then on. Returns 0, or -EINVAL: numbers out of range or
 * not listened to, CARRIER_AHEAD orders there already, or none to stand behind, or one that does not
 * show `holder_epoch`, or it was carried out meanwhile. `by_message`: the next has no page and hears of it only from the
 * interpreter, so that is told at once. */
int carrier_prepare(struct carrier *carrier, uint32_t gpu, bool behind, int number, struct wire_page *holder_page,
    uint32_t holder_slot, uint64_t holder_epoch, struct wire_page *next_page, uint32_t next_slot, uint64_t next_epoch,
    uint64_t not_before_ns, uint64_t wanting_from_ns, bool by_message);

/* One that was carried out. */
struct carrier_done {
    uint64_t epoch;      /* that it showed */
    uint64_t carried_ns; /* when; CLOCK_MONOTONIC */
    bool returned;       /* the holder's Return stood behind its word: `said`; else that comes by message */
    struct wire_return said; /* it has passed wire_check and is of that epoch; the rest is only what a client says */
};

/* How many were carried out and are not told yet; the others stand. */
int carrier_carried(struct carrier *carrier, uint32_t gpu);
/* The orders are off; `done` has room for CARRIER_AHEAD. Returns how many had been carried out, in the order of their
 * time. Before the pages are unmapped! Who asks for one GPU asks for all: what was carried out is then taken for told. */
int carrier_take_back(struct carrier *carrier, uint32_t gpu, struct carrier_done *done);
/* cffi: end */

#endif
