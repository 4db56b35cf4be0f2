/*
 * account.h - the memory this process holds of its tenant: reserved before the driver is asked, given back after.
 *
 * The daemon's ledger is the truth (agent_memory_reserve). Here stands this process's part of it: per device `held`, all
 * that the daemon has counted for us, and of it `credit`, what nobody uses at the moment. A reservation takes credit
 * first and a message only for the rest. Whatever is reserved is either in use (the ledger says for what) or on its way.
 *
 * Any thread. The lock is held for bookkeeping only: never across a driver call or a message. After fork the child
 * starts with nothing: what the parent allocated is the parent's.
 */
#ifndef GEMINI_RUNTIME_ACCOUNT_H
#define GEMINI_RUNTIME_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/core/ledger.h"

#pragma GCC visibility push(hidden)

/* Reserve; 0, or -ENOMEM, the only refusal: without a daemon (running free) everything is allowed, and counted for the
 * day it comes back. `spare`: ask for some credit on the way, for reservations that come often. */
int account_reserve(int device, uint64_t bytes, bool spare);

/* Give back what was reserved. `keep`: up to a bound as credit for the next reservation, until the daemon recalls it. */
void account_return(int device, uint64_t bytes, bool keep);

/* For the agent: the daemon has counted so much for a reservation that is under way. */
void account_granted(int device, uint64_t bytes);

/* For the agent: take unused credit out of the books; all that is held; and of it the credit. */
uint64_t account_take_credit(int device, uint64_t bytes);
uint64_t account_held(int device);
/* All that is held, and a count that changes with every reservation and return. False while one of them is under way
 * between these books and the mailbox: what is held is not what the daemon has been told then. */
bool account_settled(int device, uint64_t *held, uint64_t *moves);
uint64_t account_credit(int device);

/* The ledger of this process, under the lock of these books. What account_lock returns may be used until unlock. */
struct ledger *account_lock(void);
void account_unlock(void);

/* Single steps under the lock. Enter: an entry that finds no room is not remembered, and its bytes stay counted. */
void account_enter(const struct ledger_entry *entry);
bool account_take(uint32_t kind, uint64_t key, struct ledger_entry *entry);

/* A context or the like has ended: everything that it owns was freed with it. */
void account_owner_ended(uint64_t owner);

#pragma GCC visibility pop

#endif
