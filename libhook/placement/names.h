/*
 * names.h - thousands of node names as JSON has them, "a","b", read and looked up where they stand. Pure, no allocation.
 *
 * kube-scheduler asks the extender about each pod with up to 5,000 names, each time after a pause in which others had the
 * processor's caches: what that costs is what it touches. So nobody makes a string of a name here: one pass says whether
 * the text is plain, one where each name ends, one looks all up in step, and one writes those that are wanted.
 *
 * Names are told apart by a keyed hash of 64 bits alone. That a name which is not known hashes like one of 5,000 has a
 * chance of 3 in 10^16, and does no harm: whatever is done to one node (a binding) looks it up by its name.
 */
#ifndef GEMINI_PLACEMENT_NAMES_H
#define GEMINI_PLACEMENT_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
struct names_slot {
    uint64_t hash;
    int64_t number; /* -1: free */
};

/* How many names there may be in so many bytes of text: half of its quotes. 0: they are odd, or some byte is none of
 * printable ASCII, or is a backslash. */
size_t names_count(const char *text, size_t length);
/* Notes where each of `count` names ends: the place of its second quote. False: the text is not just so many names
 * between quotes with one comma between two of them. `count` must be names_count's. */
bool names_split(const char *text, size_t length, int32_t *ends, size_t count);
/* Enters names (text and ends by names_split) with their numbers, not below 0, in a table of `mask` + 1 slots: a power of
 * two, more than names, all free. False: two names are equal, or hash alike, and another key might do. */
bool names_enter(struct names_slot *slots, uint64_t mask, const uint64_t key[2], const char *text, const int32_t *ends,
    size_t count, const int64_t *numbers);
/* The number of each name, -1 for those that are not in the table. */
void names_find(const struct names_slot *slots, uint64_t mask, const uint64_t key[2], const char *text,
    const int32_t *ends, size_t count, int64_t *numbers);
#define NAMES_PARTS 127
/* Writes the names apart by their marks, each from 0 and below `parts` (at most NAMES_PARTS): for each part, `room` bytes
 * after the one before, its names with a comma behind each, and in `part_ends`, `count` numbers after, where names_split
 * would find their ends. `room` is more than the whole text. `counts`: the names of each part. */
void names_part(const char *text, const int32_t *ends, size_t count, const int8_t *marks, size_t parts, char *to,
    size_t room, int32_t *part_ends, size_t *counts);
/* Writes each name between its quotes, with `before` before it and `behind` behind it, commas between. `to` has room for
 * length + count * (before_length + behind_length + 1). Returns the bytes written. */
size_t names_join(const char *text, const int32_t *ends, size_t count, const char *before, size_t before_length,
    const char *behind, size_t behind_length, char *to);
/* cffi: end */

#endif
