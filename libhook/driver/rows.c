/*
 * rows.c - see rows.h. The block of text is a struct with one member for each name, so that the compiler does the
 * counting.
 */
#include "libhook/driver/rows.h"

#include <stddef.h>

#include "libhook/driver/pointers.h"

struct text {
    char none[1];
#define HOOK(symbol, name, since, flavour, class_) char symbol[sizeof(#symbol)], name_of_##symbol[sizeof(name)];
#define PASS(symbol, name, since, flavour, reason) char symbol[sizeof(#symbol)], name_of_##symbol[sizeof(name)];
#define KNOWN(symbol, name, since, flavour, reason) char symbol[sizeof(#symbol)], name_of_##symbol[sizeof(name)];
#include "libhook/driver/cuda_hooks.h"
#define HOOK(symbol, class_) char symbol[sizeof(#symbol)];
#define PASS(symbol) char symbol[sizeof(#symbol)];
#include "libhook/driver/nvml_hooks.h"
};

_Static_assert(sizeof(struct text) <= UINT16_MAX, "places are 16 bits wide");

static const struct text text = {
#define HOOK(symbol, name, since, flavour, class_) .symbol = #symbol, .name_of_##symbol = name,
#define PASS(symbol, name, since, flavour, reason) .symbol = #symbol, .name_of_##symbol = name,
#define KNOWN(symbol, name, since, flavour, reason) .symbol = #symbol, .name_of_##symbol = name,
#include "libhook/driver/cuda_hooks.h"
#define HOOK(symbol, class_) .symbol = #symbol,
#define PASS(symbol) .symbol = #symbol,
#include "libhook/driver/nvml_hooks.h"
};

#define POINTER(symbol) (offsetof(struct real_driver, symbol) / sizeof(void *))
#define CUDA_ROW(symbol, since, pointer, flavour, kind)                                                                \
    {offsetof(struct text, symbol), offsetof(struct text, name_of_##symbol), since, pointer, flavour, ROW_CUDA, kind},

const struct row rows[ROWS] = {
#define HOOK(symbol, name, since, flavour, class_) CUDA_ROW(symbol, since, POINTER(symbol), flavour, ROW_HOOK)
#define PASS(symbol, name, since, flavour, reason) CUDA_ROW(symbol, since, POINTER(symbol), flavour, ROW_PASS)
#define KNOWN(symbol, name, since, flavour, reason) CUDA_ROW(symbol, since, ROW_NO_POINTER, flavour, ROW_KNOWN)
#include "libhook/driver/cuda_hooks.h"
#define HOOK(symbol, class_) {offsetof(struct text, symbol), 0, 0, ROW_NO_POINTER, ANY, ROW_NVML, ROW_HOOK},
#define PASS(symbol) {offsetof(struct text, symbol), 0, 0, ROW_NO_POINTER, ANY, ROW_NVML, ROW_PASS},
#include "libhook/driver/nvml_hooks.h"
};

const char *row_symbol(const struct row *row) {
    return (const char *)&text + row->symbol;
}

const char *row_name(const struct row *row) {
    return (const char *)&text + row->name;
}
