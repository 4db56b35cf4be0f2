/*
 * ledger.c - open addressing with linear probing. An entry that is taken out leaves a buried slot, so that walking and
 * taking can go together; growing (at two thirds full, buried slots included) leaves the buried ones behind.
 */
#include "libhook/core/ledger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { EMPTY = 0, SMALLEST = 64 };
static const uint32_t BURIED = UINT32_MAX;

static size_t slot_of(uint32_t kind, uint64_t key, size_t capacity) {
    uint64_t mixed = (key ^ (uint64_t)kind << 56) * 0x9E3779B97F4A7C15ull; /* Fibonacci hashing: keys are aligned */
    return (size_t)(mixed >> 20) & (capacity - 1);
}

static struct ledger_entry *free_slot(struct ledger_entry *slots, size_t capacity, uint32_t kind, uint64_t key) {
    size_t at = slot_of(kind, key, capacity);
    while (slots[at].kind != EMPTY)
        at = (at + 1) & (capacity - 1);
    return &slots[at];
}

static int grow(struct ledger *ledger) {
    size_t capacity = SMALLEST;
    while (capacity < ledger->live * 4)
        capacity *= 2;
    struct ledger_entry *slots = calloc(capacity, sizeof(*slots));
    if (slots == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < ledger->capacity; i++) {
        const struct ledger_entry *entry = &ledger->slots[i];
        if (entry->kind != EMPTY && entry->kind != BURIED)
            *free_slot(slots, capacity, entry->kind, entry->key) = *entry;
    }
    free(ledger->slots);
    ledger->slots = slots;
    ledger->capacity = capacity;
    ledger->buried = 0;
    return 0;
}

struct ledger_entry *ledger_find(const struct ledger *ledger, uint32_t kind, uint64_t key) {
    if (ledger->capacity == 0)
        return NULL;
    for (size_t at = slot_of(kind, key, ledger->capacity); ledger->slots[at].kind != EMPTY;
        at = (at + 1) & (ledger->capacity - 1))
        if (ledger->slots[at].kind == kind && ledger->slots[at].key == key)
            return &ledger->slots[at];
    return NULL;
}

int ledger_put(struct ledger *ledger, const struct ledger_entry *entry) {
    struct ledger_entry *same = ledger_find(ledger, entry->kind, entry->key);
    if (same != NULL) {
        *same = *entry;
        return 0;
    }
    if ((ledger->live + ledger->buried + 1) * 3 > ledger->capacity * 2) {
        int error = grow(ledger);
        if (error != 0)
            return error;
    }
    *free_slot(ledger->slots, ledger->capacity, entry->kind, entry->key) = *entry;
    ledger->live++;
    return 0;
}

bool ledger_take(struct ledger *ledger, uint32_t kind, uint64_t key, struct ledger_entry *entry) {
    struct ledger_entry *found = ledger_find(ledger, kind, key);
    if (found == NULL)
        return false;
    *entry = *found;
    memset(found, 0, sizeof(*found));
    found->kind = BURIED;
    ledger->live--;
    ledger->buried++;
    return true;
}

struct ledger_entry *ledger_next(const struct ledger *ledger, size_t *cursor) {
    while (*cursor < ledger->capacity) {
        struct ledger_entry *entry = &ledger->slots[(*cursor)++];
        if (entry->kind != EMPTY && entry->kind != BURIED)
            return entry;
    }
    return NULL;
}

void ledger_clear(struct ledger *ledger) {
    free(ledger->slots);
    memset(ledger, 0, sizeof(*ledger));
}
