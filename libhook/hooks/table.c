/*
 * table.c - the two tables joined, and a hash over them.
 *
 * A CUDA runtime asks for some 500 names at start, so a search through all rows each time would cost half a
 * millisecond. The hash is built by whoever searches first; others who come meanwhile (or a child forked in that very
 * moment) search the rows one by one rather than wait.
 */
#include "libhook/hooks/table.h"

#include <stddef.h>
#include <string.h>

#include "libhook/driver/nvml_abi.h"
#include "libhook/driver/cuda_abi.h"

static void *const ours[ROWS] = {
#define HOOK(symbol, name, since, flavour, class_) (void *)symbol,
#define PASS(symbol, name, since, flavour, reason) NULL,
#define KNOWN(symbol, name, since, flavour, reason) NULL,
#include "libhook/driver/cuda_hooks.h"
#define HOOK(symbol, class_) (void *)symbol,
#define PASS(symbol) NULL,
#include "libhook/driver/nvml_hooks.h"
};

void *table_ours(const struct row *row) {
    return ours[row - rows];
}

enum { SLOTS = 2048, EMPTY = 0 };
_Static_assert(ROWS * 2 < SLOTS, "the hash is to stay half empty");

enum { NOT_BUILT, BEING_BUILT, BUILT };
static int state;
/* Row number + 1; EMPTY: none. Written by the builder before `state` says BUILT. */
static uint16_t symbol_slots[SLOTS];
static uint16_t name_slots[SLOTS];

static uint32_t hash(const char *text) {
    uint32_t value = 2166136261u; /* FNV-1a */
    for (; *text != '\0'; text++)
        value = (value ^ (unsigned char)*text) * 16777619u;
    return value ^ value >> 15;
}

static void put(uint16_t *slots, const char *key, size_t row) {
    uint32_t at = hash(key) % SLOTS;
    while (slots[at] != EMPTY)
        at = (at + 1) % SLOTS;
    slots[at] = (uint16_t)(row + 1);
}

/* True when the hash may be used. */
static int built(void) {
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == BUILT)
        return 1;
    int expected = NOT_BUILT;
    if (!__atomic_compare_exchange_n(&state, &expected, BEING_BUILT, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return expected == BUILT;
    for (size_t i = 0; i < ROWS; i++) {
        put(symbol_slots, row_symbol(&rows[i]), i);
        if (rows[i].name != 0)
            put(name_slots, row_name(&rows[i]), i);
    }
    __atomic_store_n(&state, BUILT, __ATOMIC_RELEASE);
    return 1;
}

const struct row *table_by_symbol(const char *symbol) {
    if (built()) {
        for (uint32_t at = hash(symbol) % SLOTS; symbol_slots[at] != EMPTY; at = (at + 1) % SLOTS)
            if (strcmp(row_symbol(&rows[symbol_slots[at] - 1]), symbol) == 0)
                return &rows[symbol_slots[at] - 1];
        return NULL;
    }
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(row_symbol(&rows[i]), symbol) == 0)
            return &rows[i];
    return NULL;
}

const struct row *table_next_by_name(const char *name, const struct row *after) {
    /* Rows of one name lie in their probe sequence in the order of the table, so "after" is a comparison. */
    if (built()) {
        for (uint32_t at = hash(name) % SLOTS; name_slots[at] != EMPTY; at = (at + 1) % SLOTS) {
            const struct row *row = &rows[name_slots[at] - 1];
            if ((after == NULL || row > after) && strcmp(row_name(row), name) == 0)
                return row;
        }
        return NULL;
    }
    for (const struct row *row = after == NULL ? rows : after + 1; row < rows + ROWS; row++)
        if (strcmp(row_name(row), name) == 0)
            return row;
    return NULL;
}
