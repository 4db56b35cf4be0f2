#include "libhook/placement/standing.h"

void standing_look(const struct standing_card *cards, size_t columns, const bool *usable, const int64_t *used,
    size_t plane, size_t rows, int64_t sign, int64_t *found, int64_t *scores) {
    for (size_t row = 0; row < rows; row++, usable += columns, used += columns) {
        int64_t best = -1, least = 0;
        for (size_t i = 0; i < columns; i++) {
            const struct standing_card *card = &cards[i];
            int64_t core = used[i], memory = used[plane + i], slots = used[2 * plane + i];
            if (!usable[i] || core > card->most[0] || memory > card->most[1] || slots > card->most[2])
                continue;
            int64_t score =
                card->of_need + core * card->weights[0] + memory * card->weights[1] + slots * card->weights[2];
            if (best < 0 || sign * score < sign * least) {
                best = (int64_t)i;
                least = score;
            }
        }
        found[row] = best;
        scores[row] = least;
    }
}

/* Whether `a` is better than `b`. */
static bool better(const double *numbers, size_t policies, size_t nodes, int64_t a, int64_t b) {
    for (size_t i = 0; i < policies; i++, numbers += nodes)
        if (numbers[a] != numbers[b])
            return numbers[a] < numbers[b];
    return a < b;
}

size_t standing_best(const bool *possible, const double *numbers, size_t policies, size_t nodes,
    const int64_t *ordinals, size_t count, int64_t *best) {
    size_t fit = 0;
    for (size_t i = 0; i < count; i++) {
        if (ordinals[i] < 0 || !possible[ordinals[i]])
            continue;
        if (fit++ == 0 || better(numbers, policies, nodes, ordinals[i], *best))
            *best = ordinals[i];
    }
    return fit;
}
