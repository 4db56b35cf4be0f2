/* agent_memory.c - figures, reservations and reports of memory (agent_memory.h). */
#include "libhook/runtime/agent_memory.h"

#include <errno.h>
#include <string.h>

#include "libhook/runtime/agent_kick.h"
#include "libhook/runtime/mailbox.h"

#define REPORTS 2                  /* of what is held after it changed, a second apart: one may be lost */
#define CREDIT_BYTES (32ull << 20) /* so that the next small allocations cost no message */

/* What the daemon said last of memory; written by the agent, read by any thread. */
static struct {
    bool managed;
    uint64_t limit_bytes, used_bytes;
} memory[WIRE_MAX_DEVICES];

/* The agent's own: the count of changes that was reported last, and how many reports of it are to come. */
static struct {
    uint64_t moves;
    int left;
} reports[WIRE_MAX_DEVICES];

/* ---- any thread ---- */

static int attached_device(int device) {
    int error = agent_attach();

    if (error)
        return error;
    if (device < 0 || device >= WIRE_MAX_DEVICES || !__atomic_load_n(&memory[device].managed, __ATOMIC_ACQUIRE))
        return -ENODEV;
    return 0;
}

int agent_memory_figures(int device, bool fresh, uint64_t *limit_bytes, uint64_t *used_bytes) {
    struct mailbox_answer answer;
    int error = attached_device(device);

    if (error)
        return error;
    *limit_bytes = __atomic_load_n(&memory[device].limit_bytes, __ATOMIC_RELAXED);
    *used_bytes = __atomic_load_n(&memory[device].used_bytes, __ATOMIC_RELAXED);
    if (!fresh)
        return 0;
    mailbox_reserve(device, 0, 0, &answer);
    if (answer.error)
        return answer.error;
    *limit_bytes = answer.limit_bytes;
    *used_bytes = answer.used_bytes;
    return 0;
}

int agent_memory_reserve(int device, uint64_t bytes, uint64_t *credit_bytes) {
    struct mailbox_answer answer = {.error = 0};
    int error = attached_device(device);

    if (credit_bytes)
        *credit_bytes = 0;
    if (error)
        return error == -ENOMEM ? -ENOMEM : -ENOTCONN; /* free, or a device that nobody counts: allowed */
    mailbox_reserve(device, bytes, credit_bytes ? CREDIT_BYTES : 0, &answer);
    if (credit_bytes)
        *credit_bytes = answer.credit_bytes;
    return answer.error;
}

uint64_t agent_memory_of_context(int device, uint64_t held_bytes) {
    struct mailbox_answer answer;

    if (attached_device(device))
        return 0;
    mailbox_ask_context(device, held_bytes, &answer);
    return answer.error ? 0 : answer.credit_bytes;
}

uint64_t agent_memory_context_known(int device) {
    return agent_memory_of_context(device, WIRE_CONTEXT_KNOWN);
}

uint64_t agent_memory_exported(int device, int64_t more_bytes) {
    struct mailbox_answer answer;

    if (device < 0 || device >= WIRE_MAX_DEVICES)
        return 0;
    mailbox_note_exported(device, more_bytes);
    if (attached_device(device))
        return 0;
    mailbox_tell_exported(device, &answer);
    return answer.error ? 0 : answer.credit_bytes;
}

void agent_memory_release(int device, uint64_t bytes) {
    if (!bytes || device < 0 || device >= WIRE_MAX_DEVICES || !agent_welcomed())
        return;
    mailbox_release(device, bytes);
}

/* ---- the agent ---- */

void agent_memory_on_welcome(uint32_t device, bool managed, uint64_t limit_bytes, uint64_t used_bytes) {
    __atomic_store_n(&memory[device].limit_bytes, limit_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&memory[device].used_bytes, used_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&memory[device].managed, managed, __ATOMIC_RELEASE);
}

void agent_memory_repeat_exported(
    uint32_t device, int (*send)(void *message, int type), uint64_t (*next_serial)(void)) {
    if (memory[device].managed)
        mailbox_repeat_exported((int)device, send, next_serial());
}

void agent_memory_on_reply(const struct wire_mem_reply *reply, const struct agent_callbacks *hooks) {
    __atomic_store_n(&memory[reply->device].limit_bytes, reply->limit_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&memory[reply->device].used_bytes, reply->used_bytes, __ATOMIC_RELAXED);
    mailbox_on_reply(reply, hooks->memory_granted);
}

void agent_memory_on_recall(
    const struct wire_mem_recall *recall, const struct agent_callbacks *hooks, int (*send)(void *message, int type)) {
    struct wire_mem_release message;

    wire_init(&message, WIRE_MEM_RELEASE, 0);
    message.device = recall->device;
    message.flags = WIRE_MEM_RELEASE_RECALLED; /* refusals wait for it */
    message.bytes = hooks->take_credit ? hooks->take_credit((int)recall->device, recall->bytes) : 0;
    send(&message, WIRE_MEM_RELEASE);
}

void agent_memory_report(uint32_t device, const struct agent_callbacks *hooks, int (*send)(void *message, int type)) {
    struct wire_mem_release message;
    uint64_t held, moves;

    if (!memory[device].managed || !hooks->memory_settled || !hooks->memory_settled((int)device, &held, &moves) ||
        !mailbox_flushed((int)device))
        return;
    if (reports[device].moves != moves)
        reports[device].left = REPORTS;
    reports[device].moves = moves;
    if (!reports[device].left)
        return;
    reports[device].left--;
    wire_init(&message, WIRE_MEM_RELEASE, 0);
    message.device = device;
    message.flags = WIRE_MEM_RELEASE_WHOLE;
    message.bytes = held;
    send(&message, WIRE_MEM_RELEASE);
}

bool agent_memory_owes_report(uint32_t device, const struct agent_callbacks *hooks) {
    uint64_t held, moves;

    if (reports[device].left)
        return true;
    if (!memory[device].managed || !hooks->memory_settled)
        return false;
    hooks->memory_settled((int)device, &held, &moves);
    return moves != reports[device].moves;
}

void agent_memory_reset_after_fork(void) {
    memset(memory, 0, sizeof memory);
}
