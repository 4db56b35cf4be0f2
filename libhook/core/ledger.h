/*
 * ledger.h - who holds which bytes: what this process has taken of device memory, by pointer or handle.
 *
 * A hash from (kind, key) to an entry. Pure: no lock, no clock, no driver; the caller serialises. Memory is taken from
 * malloc when it grows, never on a launch path. An entry's meaning is its kind's:
 *
 *     POINTER   key: device pointer; freed by cuMemFree                owner: the context whose end frees it too
 *     ARRAY     key: CUarray or CUmipmappedArray                       owner: as above
 *     CONTEXT   key: CUcontext; bytes: what the context itself costs
 *     POOL      key: CUmemoryPool; bytes: what was counted for what the pool has reserved
 *     POOLED    key: device pointer; bytes: as asked, counted with its pool; link: the key of that
 *     GRAPHS    key: the device; bytes: what was counted for what the driver holds for graphs
 *     LIMIT + n key: CUcontext; bytes: what its limit n was raised by; link: what it had of it from the start
 *     PAUSING   key: CUgraphExec, one that may stand still on its way; no bytes
 *     OBJECT    key: a number of our own; bytes: one cuMemCreate, or one import that is not charged elsewhere; refs: its
 *               handles and mappings, and one for ever once it was exported; owner: enum ledger_object; link: of an
 *               import, its size where that is known
 *     HANDLE    key: a cuMemCreate handle; refs: how often it was handed out; link: its object
 *     MAPPING   key: the address of a cuMemMap; bytes: its length; link: its object
 *
 * Physical memory made by cuMemCreate has an object of its own because a handle's value may be used again as soon as it
 * was released, while mappings still keep the memory alive.
 */
#ifndef GEMINI_CORE_LEDGER_H
#define GEMINI_CORE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
enum ledger_kind {
    LEDGER_POINTER = 1,
    LEDGER_ARRAY = 2,
    LEDGER_CONTEXT = 3,
    LEDGER_POOL = 4,
    LEDGER_OBJECT = 5,
    LEDGER_HANDLE = 6,
    LEDGER_MAPPING = 7,
    LEDGER_POOLED = 8,
    LEDGER_GRAPHS = 9,
    LEDGER_LIMIT = 10, /* and the two after it: CUlimit 0 to 2 */
    LEDGER_PAUSING = 13
};

enum ledger_object { LEDGER_MADE = 0, LEDGER_EXPORTED = 1, LEDGER_OWN_IMPORT = 2, LEDGER_FOREIGN_IMPORT = 3 };

struct ledger_entry {
    uint64_t key;
    uint64_t bytes;
    uint64_t owner; /* 0: nobody's end frees it */
    uint64_t link;
    uint32_t kind; /* enum ledger_kind */
    uint32_t refs;
    int32_t device;
    uint32_t reserved;
};

struct ledger {
    struct ledger_entry *slots; /* capacity of them, or NULL */
    size_t capacity;            /* 0 or a power of two */
    size_t live;
    size_t buried; /* slots of entries that were taken out */
};

/* Enter a copy; an entry of the same kind and key is replaced (its driver-side owner must be gone). 0 or -ENOMEM. */
int ledger_put(struct ledger *ledger, const struct ledger_entry *entry);

/* The entry, valid until the next put or take; NULL if there is none. */
struct ledger_entry *ledger_find(const struct ledger *ledger, uint32_t kind, uint64_t key);

/* Take it out, into *entry. False if there is none. */
bool ledger_take(struct ledger *ledger, uint32_t kind, uint64_t key, struct ledger_entry *entry);

/* Walk: the first entry at or after *cursor; starts with 0. Entries may be taken out on the way, not put. */
struct ledger_entry *ledger_next(const struct ledger *ledger, size_t *cursor);

/* Forget everything and free the memory. */
void ledger_clear(struct ledger *ledger);
/* cffi: end */

#endif
