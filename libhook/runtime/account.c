/*
 * account.c - see account.h. Lock order: this lock is a leaf; nothing is called with it held but the ledger.
 */
#include "libhook/runtime/account.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "libhook/core/wire.h"
#include "libhook/runtime/agent_memory.h"
#include "libhook/runtime/forks.h"

/* What a process may sit on without using it. One step by which NVIDIA's memory pools grow (32 MiB, seen as
 * CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT after an allocation of one byte), so that a pool that breathes costs no message. */
static const uint64_t CREDIT_KEPT = 32ull << 20;

struct books {
    uint64_t held; /* credit included */
    uint64_t credit;
    uint64_t moves;  /* reservations and returns so far */
    uint32_t moving; /* of these, how many are under way */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct books books[WIRE_MAX_DEVICES]; /* under lock */
static struct ledger ledger;                 /* under lock */

static void forget_in_child(void) {
    /* The lock may have been held by a thread that does not exist here; the ledger's memory is left to it. */
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    memset(books, 0, sizeof(books));
    memset(&ledger, 0, sizeof(ledger));
}

static bool has_books(int device) {
    return device >= 0 && device < WIRE_MAX_DEVICES;
}

struct ledger *account_lock(void) {
    static int watching;
    forks_watch(&watching, forget_in_child);
    pthread_mutex_lock(&lock);
    return &ledger;
}

void account_unlock(void) {
    pthread_mutex_unlock(&lock);
}

static uint64_t begin_from_credit(int device, uint64_t bytes) {
    account_lock();
    books[device].moving++;
    books[device].moves++;
    uint64_t taken = books[device].credit < bytes ? books[device].credit : bytes;
    books[device].credit -= taken;
    account_unlock();
    return taken;
}

int account_reserve(int device, uint64_t bytes, bool spare) {
    if (!has_books(device) || bytes == 0)
        return 0;
    uint64_t taken = begin_from_credit(device, bytes);
    uint64_t missing = bytes - taken;
    uint64_t credit = 0;
    int error = missing == 0 ? 0 : agent_memory_reserve(device, missing, spare ? &credit : NULL);
    account_lock();
    if (error == -ENOMEM) {
        books[device].credit += taken;
    } else {
        books[device].held += error == 0 ? 0 : missing; /* account_granted has counted it, unless nobody was asked */
        books[device].credit += credit;
    }
    books[device].moving--;
    account_unlock();
    return error == -ENOMEM ? -ENOMEM : 0;
}

void account_granted(int device, uint64_t bytes) {
    if (!has_books(device))
        return;
    account_lock();
    books[device].held += bytes;
    account_unlock();
}

void account_return(int device, uint64_t bytes, bool keep) {
    if (!has_books(device) || bytes == 0)
        return;
    account_lock();
    struct books *of = &books[device];
    uint64_t kept = 0;
    if (keep && of->credit < CREDIT_KEPT)
        kept = bytes < CREDIT_KEPT - of->credit ? bytes : CREDIT_KEPT - of->credit;
    of->credit += kept;
    uint64_t given = bytes - kept;
    of->held -= given < of->held ? given : of->held;
    of->moving++;
    of->moves++;
    account_unlock();
    if (given > 0)
        agent_memory_release(device, given);
    account_lock();
    of->moving--;
    account_unlock();
}

uint64_t account_take_credit(int device, uint64_t bytes) {
    if (!has_books(device))
        return 0;
    account_lock();
    uint64_t taken = books[device].credit < bytes ? books[device].credit : bytes;
    books[device].credit -= taken;
    books[device].held -= taken;
    account_unlock();
    return taken;
}

uint64_t account_held(int device) {
    if (!has_books(device))
        return 0;
    account_lock();
    uint64_t held = books[device].held;
    account_unlock();
    return held;
}

bool account_settled(int device, uint64_t *held, uint64_t *moves) {
    if (!has_books(device))
        return false;
    account_lock();
    *held = books[device].held;
    *moves = books[device].moves;
    bool settled = books[device].moving == 0;
    account_unlock();
    return settled;
}

uint64_t account_credit(int device) {
    if (!has_books(device))
        return 0;
    account_lock();
    uint64_t credit = books[device].credit;
    account_unlock();
    return credit;
}

void account_enter(const struct ledger_entry *entry) {
    ledger_put(account_lock(), entry);
    account_unlock();
}

bool account_take(uint32_t kind, uint64_t key, struct ledger_entry *entry) {
    bool found = ledger_take(account_lock(), kind, key, entry);
    account_unlock();
    return found;
}

void account_owner_ended(uint64_t owner) {
    uint64_t freed[WIRE_MAX_DEVICES] = {0};
    struct ledger *of = account_lock();
    size_t cursor = 0;
    for (struct ledger_entry *entry; owner != 0 && (entry = ledger_next(of, &cursor)) != NULL;) {
        struct ledger_entry taken;
        if (entry->owner == owner && ledger_take(of, entry->kind, entry->key, &taken) && has_books(taken.device))
            freed[taken.device] += taken.bytes;
    }
    account_unlock();
    for (int device = 0; device < WIRE_MAX_DEVICES; device++)
        account_return(device, freed[device], false);
}
