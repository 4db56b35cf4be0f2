/*
 * resolve.c - cuGetProcAddress and its second version.
 *
 * The driver is asked first, always: it owns which functions exist, for which version, and with what status. Its answer
 * is then replaced by our function of the same ABI. Which ABI that is, is found in two steps:
 *
 *   1. By address. A driver answers with what it exports under some name, so the row whose real function has that very
 *      address is the one, whatever was asked. (Several rows may share an address; then step 2 chooses among them.)
 *   2. By the documented rule, where the answer is the address of none: the newest row whose `since` is not above the
 *      version asked for, of the flavour that the flags ask for.
 *
 * Step 2 would be a guess where the driver knows a newer version of the function than the table does. That can only be
 * when more was asked for than our newest row needs, and shows in the driver's exports (cuX_v4 beside our cuX_v3). Then
 * the driver's answer is handed out as it is: an ungated call does less harm than a call with the wrong arguments. It
 * is counted, and said once for each name.
 */
#include "libhook/hooks/resolve.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "libhook/driver/real.h"
#include "libhook/hooks/table.h"
#include "libhook/runtime/log.h"

enum { ASK_PER_THREAD_STREAM = 2 };   /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
enum { PER_THREAD_STREAM_SINCE = 7000 }; /* before CUDA 7 there was none to ask for */

static uint64_t ungated_lookups;

uint64_t resolve_ungated_lookups(void) {
    return __atomic_load_n(&ungated_lookups, __ATOMIC_RELAXED);
}

/* A driver that is not bound inside itself may well answer with ours: we come first in the search order. */
static bool has_address(const struct row *row, void *address) {
    if (table_ours(row) != NULL && table_ours(row) == address)
        return true;
    return real_symbol(row_symbol(row)) == address;
}

/* The newest row of `name` that fits; with `address` only among the rows whose real function stands there. */
static const struct row *fitting(const char *name, int version, cuuint64_t flags, void *address) {
    enum row_flavour wanted =
        (flags & ASK_PER_THREAD_STREAM) != 0 && version >= PER_THREAD_STREAM_SINCE ? PER_THREAD : LEGACY;
    const struct row *best = NULL;
    bool best_exact = false;
    for (const struct row *row = NULL; (row = table_next_by_name(name, row)) != NULL;) {
        if (row->since > version || (wanted == LEGACY && row->flavour == PER_THREAD))
            continue;
        if (address != NULL && !has_address(row, address))
            continue;
        bool exact = row->flavour == (uint8_t)wanted; /* a per-thread row comes before any other, if there is one */
        if (best == NULL || exact > best_exact || (exact == best_exact && row->since >= best->since)) {
            best = row;
            best_exact = exact;
        }
    }
    return best;
}

/* Any row of the name at that address. */
static const struct row *at_address(const char *name, void *address) {
    for (const struct row *row = NULL; (row = table_next_by_name(name, row)) != NULL;)
        if (has_address(row, address))
            return row;
    return NULL;
}

/* The highest N, at most 9, such that cuX_vN (of any flavour) is `there`; `above` if there is none above it. */
static int newest_version(const char *name, int above, bool (*there)(const char *symbol)) {
    static const char *const flavours[] = {"", "_ptsz", "_ptds"};
    char symbol[128];
    for (int version = 9; version > above; version--)
        for (size_t i = 0; i < sizeof(flavours) / sizeof(flavours[0]); i++)
            if (snprintf(symbol, sizeof(symbol), "%s_v%d%s", name, version, flavours[i]) < (int)sizeof(symbol) &&
                there(symbol))
                return version;
    return above;
}

static bool in_table(const char *symbol) {
    return table_by_symbol(symbol) != NULL;
}

static bool in_driver(const char *symbol) {
    return real_symbol(symbol) != NULL;
}

/* Does the driver export a version of `name` above all that the table has? */
static bool driver_knows_newer(const char *name) {
    int known = newest_version(name, 1, in_table);
    return newest_version(name, known, in_driver) > known;
}

static int newest_since(const char *name) {
    int newest = 0;
    for (const struct row *row = NULL; (row = table_next_by_name(name, row)) != NULL;)
        if (row->since > newest)
            newest = row->since;
    return newest;
}

static bool is_hooked(const char *name) {
    for (const struct row *row = NULL; (row = table_next_by_name(name, row)) != NULL;)
        if (table_ours(row) != NULL)
            return true;
    return false;
}

/* A name that is no base name, which a driver may answer to all the same: that of an exported function. Where it was
 * asked for the per-thread flavour it may have answered with that. */
static void *substitute_exported(const char *name, cuuint64_t flags, void *answer) {
    static const char *const suffixes[] = {"_ptsz", "_ptds", ""};
    const struct row *row = table_by_symbol(name);
    char symbol[128];
    for (size_t i = (flags & ASK_PER_THREAD_STREAM) != 0 ? 0 : 2; row != NULL && i < 3; i++) {
        const struct row *flavoured = NULL;
        if (snprintf(symbol, sizeof(symbol), "%s%s", name, suffixes[i]) < (int)sizeof(symbol))
            flavoured = table_by_symbol(symbol);
        if (flavoured != NULL && has_address(flavoured, answer)) {
            row = flavoured;
            break;
        }
    }
    return row != NULL && table_ours(row) != NULL ? table_ours(row) : answer;
}

/* What to hand out instead of the driver's `answer`. */
static void *substitute(const char *name, int version, cuuint64_t flags, void *answer) {
    if (table_next_by_name(name, NULL) == NULL)
        return substitute_exported(name, flags, answer);
    if (!is_hooked(name))
        return answer;
    const struct row *row = fitting(name, version, flags, answer);
    if (row == NULL)
        row = at_address(name, answer);
    if (row == NULL) {
        if (version > newest_since(name) && driver_knows_newer(name)) {
            if (__atomic_fetch_add(&ungated_lookups, 1, __ATOMIC_RELAXED) < 16)
                log_line(LOG_ERROR,
                    "this driver has a newer %s (asked for CUDA %d) than this library knows: calls through it are "
                    "neither gated nor counted; install a newer gemini",
                    name, version);
            return answer;
        }
        row = fitting(name, version, flags, NULL);
    }
    return row != NULL && table_ours(row) != NULL ? table_ours(row) : answer;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cuda_version, cuuint64_t flags) {
    CUresult result = real.cuGetProcAddress(symbol, pfn, cuda_version, flags);
    if (result == CUDA_SUCCESS && symbol != NULL && pfn != NULL && *pfn != NULL)
        *pfn = substitute(symbol, cuda_version, flags, *pfn);
    return result;
}

CUresult cuGetProcAddress_v2(
    const char *symbol, void **pfn, int cuda_version, cuuint64_t flags, CUdriverProcAddressQueryResult *symbol_status) {
    CUresult result = real.cuGetProcAddress_v2(symbol, pfn, cuda_version, flags, symbol_status);
    if (result == CUDA_SUCCESS && symbol != NULL && pfn != NULL && *pfn != NULL)
        *pfn = substitute(symbol, cuda_version, flags, *pfn);
    return result;
}
