/*
 * seams.c - the hidden functions of libhook/runtime by name, for tests that call one file of it from Python.
 *
 * Linked with the files of libhook/runtime that seams.py lists, as they are. `real` and `nvml` are empty tables here,
 * which a test fills, and so is `ledger`: what the daemon answers about memory. There is no agent; its kicks are counted.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "libhook/driver/real.h"
#include "libhook/driver/real_nvml.h"
#include "libhook/runtime/account.h"
#include "libhook/runtime/agent_kick.h"
#include "libhook/runtime/agent_memory.h"
#include "libhook/runtime/away.h"
#include "libhook/runtime/behind.h"
#include "libhook/runtime/belief.h"
#include "libhook/runtime/captures.h"
#include "libhook/runtime/context.h"
#include "libhook/runtime/devices.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/link.h"
#include "libhook/runtime/log.h"
#include "libhook/runtime/page.h"
#include "libhook/runtime/segments.h"
#include "libhook/runtime/thread.h"
#include "libhook/runtime/visit.h"
#include "libhook/runtime/waited.h"

struct real_driver real;
struct real_nvml nvml;
uint32_t agent_kicks;
static struct {
    int (*reserve)(int device, uint64_t bytes, uint64_t *credit_bytes);
    void (*release)(int device, uint64_t bytes);
} ledger;

void agent_kick(void) {
    agent_kicks++;
}

bool real_loaded(void) {
    return real.cuDeviceGetCount != NULL;
}

bool real_load(const char *hint) {
    (void)hint;
    return true;
}

CUresult real_missing(void) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

const struct real_nvml *real_nvml(bool open) {
    (void)open;
    return nvml.nvmlDeviceGetCount_v2 ? &nvml : NULL;
}

/* Nobody is there to ask where a test gave no answer. */
int agent_memory_reserve(int device, uint64_t bytes, uint64_t *credit_bytes) {
    return ledger.reserve ? ledger.reserve(device, bytes, credit_bytes) : -ENOTCONN;
}

void agent_memory_release(int device, uint64_t bytes) {
    if (ledger.release)
        ledger.release(device, bytes);
}

static size_t link_size(void) {
    return sizeof(struct link);
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
    SEAM(account_credit),
    SEAM(account_enter),
    SEAM(account_granted),
    SEAM(account_held),
    SEAM(account_owner_ended),
    SEAM(account_reserve),
    SEAM(account_return),
    SEAM(account_settled),
    SEAM(account_take),
    SEAM(account_take_credit),
    SEAM(agent_kicks),
    SEAM(away_waits),
    SEAM(away_is_expected),
    SEAM(away_reset_after_fork),
    SEAM(away_seen),
    SEAM(behind_after),
    SEAM(behind_paused),
    SEAM(belief_is_old),
    SEAM(belief_learn),
    SEAM(belief_of),
    SEAM(captures_beginning),
    SEAM(captures_begun),
    SEAM(captures_ended),
    SEAM(captures_lost),
    SEAM(captures_reset_after_fork),
    SEAM(context_changed),
    SEAM(context_current),
    SEAM(context_ended),
    SEAM(context_of_stream),
    SEAM(devices_begun),
    SEAM(devices_list),
    SEAM(devices_of_cuda),
    SEAM(devices_of_uuid),
    SEAM(devices_parse_uuid),
    SEAM(gate_at),
    SEAM(gate_share),
    SEAM(gate_captures),
    SEAM(gate_shared_estimates),
    SEAM(ledger.release),
    SEAM(ledger.reserve),
    SEAM(link_close),
    SEAM(link_deadline),
    SEAM(link_drop),
    SEAM(link_open),
    SEAM(link_send),
    SEAM(link_size),
    SEAM(link_step),
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
    SEAM(segments_release_due),
    SEAM(segments_released_ns),
    SEAM(segments_reset_after_fork),
    SEAM(segments_shared_ns),
    SEAM(segments_take),
    SEAM(segments_take_back),
    SEAM(segments_words),
    SEAM(set_gate),
    SEAM(thread_begins),
    SEAM(thread_start),
    SEAM(visit_agent_enters),
    SEAM(visit_agent_leaves),
    SEAM(visit_begin),
    SEAM(visit_end),
    SEAM(visit_keep_agent_out),
    SEAM(visit_let_agent_in),
    SEAM(visit_reset_after_fork),
    SEAM(visit_try_to_keep_agent_out),
    SEAM(waited_alone),
    SEAM(waited_beside),
#define HOOK(symbol, name, since, flavour, class_) {"real." #symbol, (void *)&real.symbol},
#define PASS(symbol, name, since, flavour, reason) {"real." #symbol, (void *)&real.symbol},
#include "libhook/driver/cuda_hooks.h"
#define HOOK(symbol, class_) {"nvml." #symbol, (void *)&nvml.symbol},
#define PASS(symbol) {"nvml." #symbol, (void *)&nvml.symbol},
#include "libhook/driver/nvml_hooks.h"
};

/* NULL: there is none of that name. */
void *seam(const char *name) {
    for (size_t i = 0; i < sizeof seams / sizeof *seams; i++)
        if (!strcmp(seams[i].name, name))
            return seams[i].address;
    return NULL;
}
