/*
 * seams.c - the hidden functions of libhook/runtime by name, for tests that call one file of it from Python.
 *
 * Linked with the files of libhook/runtime that seams.py lists, as they are. `real` and the shared estimates are
 * empty tables here, which a test fills.
 */
#include <stddef.h>
#include <string.h>

#include "libhook/driver/real.h"
#include "libhook/runtime/belief.h"
#include "libhook/runtime/captures.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/log.h"
#include "libhook/runtime/page.h"
#include "libhook/runtime/visit.h"

struct real_driver real;
_Alignas(64) struct estimate gate_shared_estimates[GATE_SHARED_ESTIMATES];

struct seam {
    const char *name;
    void *address;
};

#define SEAM(symbol) {#symbol, (void *)&(symbol)}
static const struct seam seams[] = {
    SEAM(belief_of),
    SEAM(captures_beginning),
    SEAM(captures_begun),
    SEAM(captures_ended),
    SEAM(captures_lost),
    SEAM(captures_reset_after_fork),
    SEAM(gate_captures),
    SEAM(gate_shared_estimates),
    SEAM(log_configure),
    SEAM(log_line),
    SEAM(log_wants),
    SEAM(page_connect),
    SEAM(page_disconnect),
    SEAM(page_has_taken),
    SEAM(page_open),
    SEAM(page_step),
    SEAM(page_store_local),
    SEAM(page_tell_drained),
    SEAM(visit_agent_enters),
    SEAM(visit_agent_leaves),
    SEAM(visit_begin),
    SEAM(visit_end),
    SEAM(visit_keep_agent_out),
    SEAM(visit_let_agent_in),
    SEAM(visit_reset_after_fork),
    SEAM(visit_try_to_keep_agent_out),
#define HOOK(symbol, name, since, flavour, class_) {"real." #symbol, (void *)&real.symbol},
#define PASS(symbol, name, since, flavour, reason) {"real." #symbol, (void *)&real.symbol},
#include "libhook/driver/cuda_hooks.h"
};

/* NULL: there is none of that name. */
void *seam(const char *name) {
    for (size_t i = 0; i < sizeof seams / sizeof *seams; i++)
        if (!strcmp(seams[i].name, name))
            return seams[i].address;
    return NULL;
}
