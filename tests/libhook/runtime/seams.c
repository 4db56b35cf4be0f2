/*
 * seams.c - the hidden functions of libhook/runtime by name, for tests that call one file of it from Python.
 *
 * Linked with the files of libhook/runtime that seams.py lists, as they are. `real` is an empty table here, which a test
 * fills; there is no agent, and its kicks are counted.
 */
#include <stddef.h>
#include <string.h>

#include "libhook/driver/real.h"
#include "libhook/runtime/agent_kick.h"
#include "libhook/runtime/behind.h"
#include "libhook/runtime/belief.h"
#include "libhook/runtime/captures.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/log.h"
#include "libhook/runtime/page.h"
#include "libhook/runtime/segments.h"
#include "libhook/runtime/visit.h"

struct real_driver real;
uint32_t agent_kicks;

void agent_kick(void) {
    agent_kicks++;
}

/* A gate as the agent would leave it. */
static void set_gate(int ordinal, bool open, uint64_t cap_ns, uint64_t close_by_ns, bool shared) {
    static uint64_t ticket;
    struct gate *gate = &gates[ordinal];
    gate->ordinal = ordinal;
    gate->page_word = &gate->epoch;
    gate->epoch = ticket + 1;
    gate->ticket = open ? ++ticket : 0;
    gate->cap_ns = cap_ns;
    gate->close_by_ns = close_by_ns;
    gate->shared = shared;
}

static struct gate *gate_at(int ordinal) {
    return &gates[ordinal];
}

struct seam {
    const char *name;
    void *address;
};

#define SEAM(symbol) {#symbol, (void *)&(symbol)}
static const struct seam seams[] = {
    SEAM(agent_kicks),
    SEAM(behind_after),
    SEAM(behind_paused),
    SEAM(belief_of),
    SEAM(captures_beginning),
    SEAM(captures_begun),
    SEAM(captures_ended),
    SEAM(captures_lost),
    SEAM(captures_reset_after_fork),
    SEAM(gate_at),
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
    SEAM(segments_add),
    SEAM(segments_begin),
    SEAM(segments_call_for),
    SEAM(segments_have_room),
    SEAM(segments_held),
    SEAM(segments_in_stream),
    SEAM(segments_is_released),
    SEAM(segments_look),
    SEAM(segments_opened),
    SEAM(segments_over_cap_ns),
    SEAM(segments_pump),
    SEAM(segments_release),
    SEAM(segments_released_ns),
    SEAM(segments_reset_after_fork),
    SEAM(segments_shared_ns),
    SEAM(segments_take),
    SEAM(segments_take_back),
    SEAM(segments_words),
    SEAM(set_gate),
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
