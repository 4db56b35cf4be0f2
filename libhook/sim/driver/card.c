/*
 * The card's memory, and how many contexts are on it: what this process adds to the books that all processes share.
 */
#include "libhook/sim/driver/driver.h"
#include "libhook/sim/model/roster.h"

struct change {
    CUdevice device;
    uint64_t bytes;
    bool take;
    int contexts;
};

static int account(struct sim_state *state, void *argument) {
    const struct change *change = argument;
    uint32_t device = driver.physical[change->device];
    int at = roster_client(state, driver.seat.owner, device, true);
    if (at < 0)
        return -1;
    struct sim_client *client = &state->client[at];
    if (change->take) {
        uint64_t used = roster_memory_used(state, device);
        if (change->bytes > spec()->memory_bytes || used > spec()->memory_bytes - change->bytes)
            return -1;
        client->memory_bytes += change->bytes;
    } else {
        client->memory_bytes -= change->bytes < client->memory_bytes ? change->bytes : client->memory_bytes;
    }
    client->contexts += (uint32_t)change->contexts;
    return 0;
}

/* The card is given out in pages of 2 MiB; small allocations share one. */
uint64_t card_room(uint64_t bytes) {
    uint64_t step = bytes > 1 << 20 ? 2 << 20 : 512;
    return bytes > UINT64_MAX - step ? bytes : (bytes + step - 1) / step * step;
}

CUresult card_change(CUdevice device, uint64_t bytes, bool take, int contexts) {
    struct change change = {device, bytes, take, contexts};
    return sim_commit(&driver.seat, account, &change) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult card_take(CUdevice device, uint64_t bytes) {
    return card_change(device, card_room(bytes), true, 0);
}

struct left {
    uint32_t device;
    uint64_t owner, bytes;
};

static int find_owner(struct sim_state *state, void *argument) {
    const struct left *left = argument;
    int at = roster_client(state, left->owner, left->device, false);
    return at < 0 || state->client[at].dead ? -1 : 0;
}

bool card_has(CUdevice device, uint64_t owner) {
    struct left left = {driver.physical[device], owner, 0};
    return sim_commit(&driver.seat, find_owner, &left) == 0;
}

static int take_over(struct sim_state *state, void *argument) {
    const struct left *left = argument;
    int at = roster_client(state, left->owner, left->device, true);
    if (at < 0)
        return -1;
    state->client[at].memory_bytes += left->bytes;
    return 0;
}

bool card_adopt(CUdevice device, uint64_t bytes) {
    struct left left = {driver.physical[device], driver.seat.owner, card_room(bytes)};
    return sim_commit(&driver.seat, take_over, &left) == 0;
}

void card_give(CUdevice device, uint64_t bytes) {
    card_change(device, card_room(bytes), false, 0);
}

struct figures {
    CUdevice device;
    uint64_t used;
};

static int read_figures(struct sim_state *state, void *argument) {
    struct figures *figures = argument;
    figures->used = roster_memory_used(state, driver.physical[figures->device]);
    return 0;
}

void card_figures(CUdevice device, uint64_t *used, uint64_t *total) {
    struct figures figures = {device, 0};
    sim_commit(&driver.seat, read_figures, &figures);
    *used = figures.used;
    *total = spec()->memory_bytes;
}
