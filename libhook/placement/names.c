#include "libhook/placement/names.h"

#include <string.h>

#define BLOCK 128 /* bytes; so many quotes fit a byte */
#define WORD 8    /* bytes */
#define AHEAD 16  /* names; their slots are on the way from memory while the others are hashed */

static bool plain(char c) {
    return (signed char)c >= ' ' && c != '\\'; /* what is not ASCII is negative */
}

__attribute__((optimize("O3"))) /* for vectors; gcc 12 makes none of it by -O2 */
size_t
names_count(const char *text, size_t length) {
    size_t quotes = 0, at = 0;
    uint8_t odd = 0;
    for (; at + BLOCK <= length; at += BLOCK) {
        uint8_t here = 0;
        for (size_t i = 0; i < BLOCK; i++) {
            char c = text[at + i];
            here += c == '"';
            odd |= !plain(c);
        }
        quotes += here;
    }
    for (; at < length; at++) {
        quotes += text[at] == '"';
        odd |= !plain(text[at]);
    }
    return odd || quotes % 2 ? 0 : quotes / 2;
}

/* Where all names are as long as the first, as they are in most clusters. With as many quotes as names need none is
 * inside of one. */
static bool split_evenly(const char *text, size_t length, int32_t *ends, size_t count, size_t step) {
    if (count * step != length + 1)
        return false;
    for (size_t i = 0, begin = 0; i < count; i++, begin += step) {
        size_t end = begin + step - 2;
        if (text[begin] != '"' || text[end] != '"' || (i + 1 < count && text[end + 1] != ','))
            return false;
        ends[i] = (int32_t)end;
    }
    return true;
}

bool names_split(const char *text, size_t length, int32_t *ends, size_t count) {
    if (count == 0 || length < 2 || length > INT32_MAX || text[0] != '"')
        return false;
    for (size_t i = 0, begin = 1;; i++) {
        const char *quote = memchr(text + begin, '"', length - begin);
        if (quote == NULL)
            return false;
        size_t end = (size_t)(quote - text);
        if (i == 0 && split_evenly(text, length, ends, count, end + 2))
            return true;
        ends[i] = (int32_t)end;
        if (i + 1 == count)
            return end + 1 == length;
        if (end + 3 >= length || text[end + 1] != ',' || text[end + 2] != '"')
            return false;
        begin = end + 3;
    }
}

static inline uint64_t mixed(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t word_at(const char *name, size_t length) {
    uint64_t word = 0;
    memcpy(&word, name, length);
    return word;
}

/* Multiply and fold, as wyhash does (Wang Yi): two words a time, of which the last two may reach into those before. */
static inline uint64_t hash_of(const char *name, size_t length, const uint64_t key[2]) {
    uint64_t hash = key[1], first, last;
    for (size_t at = 0; at + 2 * WORD < length; at += 2 * WORD)
        hash = mixed(word_at(name + at, WORD) ^ key[0], word_at(name + at + WORD, WORD) ^ hash);
    if (length >= WORD) {
        first = word_at(length < 2 * WORD ? name : name + length - 2 * WORD, WORD);
        last = word_at(name + length - WORD, WORD);
    } else {
        first = word_at(name, length);
        last = 0;
    }
    return mixed(mixed(first ^ key[0], last ^ hash) ^ key[1], key[0] ^ length);
}

static inline size_t begin_of(const int32_t *ends, size_t i) {
    return i == 0 ? 1 : (size_t)ends[i - 1] + 3;
}

bool names_enter(struct names_slot *slots, uint64_t mask, const uint64_t key[2], const char *text, const int32_t *ends,
    size_t count, const int64_t *numbers) {
    for (size_t i = 0; i < count; i++) {
        size_t begin = begin_of(ends, i);
        uint64_t hash = hash_of(text + begin, (size_t)ends[i] - begin, key), at = hash & mask;
        for (; slots[at].number >= 0; at = (at + 1) & mask)
            if (slots[at].hash == hash)
                return false;
        slots[at] = (struct names_slot){hash, numbers[i]};
    }
    return true;
}

void names_find(const struct names_slot *slots, uint64_t mask, const uint64_t key[2], const char *text,
    const int32_t *ends, size_t count, int64_t *numbers) {
    uint64_t hashes[AHEAD];
    for (size_t first = 0; first < count; first += AHEAD) {
        size_t some = count - first < AHEAD ? count - first : AHEAD;
        for (size_t i = 0; i < some; i++) {
            size_t begin = begin_of(ends, first + i);
            hashes[i] = hash_of(text + begin, (size_t)ends[first + i] - begin, key);
            __builtin_prefetch(&slots[hashes[i] & mask]);
        }
        for (size_t i = 0; i < some; i++) {
            uint64_t at = hashes[i] & mask;
            while (slots[at].number >= 0 && slots[at].hash != hashes[i])
                at = (at + 1) & mask;
            numbers[first + i] = slots[at].number;
        }
    }
}

void names_part(const char *text, const int32_t *ends, size_t count, const int8_t *marks, size_t parts, char *to,
    size_t room, int32_t *part_ends, size_t *counts) {
    char *at[NAMES_PARTS];
    for (size_t i = 0; i < parts; i++) {
        at[i] = to + i * room;
        counts[i] = 0;
    }
    for (size_t i = 0; i < count; i++) { /* no branch: which part is next cannot be foreseen */
        size_t mark = (size_t)marks[i], begin = begin_of(ends, i) - 1, size = (size_t)ends[i] + 1 - begin;
        memcpy(at[mark], text + begin, size);
        at[mark] += size;
        part_ends[mark * count + counts[mark]++] = (int32_t)(at[mark] - (to + mark * room)) - 1;
        *at[mark]++ = ',';
    }
}

size_t names_join(const char *text, const int32_t *ends, size_t count, const char *before, size_t before_length,
    const char *behind, size_t behind_length, char *to) {
    char *start = to;
    for (size_t i = 0; i < count; i++) {
        size_t begin = begin_of(ends, i) - 1, size = (size_t)ends[i] + 1 - begin;
        if (i > 0)
            *to++ = ',';
        memcpy(to, before, before_length);
        to += before_length;
        memcpy(to, text + begin, size);
        to += size;
        memcpy(to, behind, behind_length);
        to += behind_length;
    }
    return (size_t)(to - start);
}
