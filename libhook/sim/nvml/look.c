/*
 * Reading the model. One commit brings the machine to now and copies the figures; the window is then read backwards
 * from the card's log, whose records follow one another in time, plus the stretch that is not in the log yet. (The
 * observer makes the model log that stretch; a monitor that is asked ten times a second should not cut it up.)
 */
#include "libhook/sim/nvml/nvml.h"

#include <string.h>

struct glance {
    uint32_t device;
    struct look *look;
    struct sim_stretch open;
    uint64_t log_next;
};

static void count_process(struct look *look, uint32_t pid, uint64_t bytes) {
    uint32_t i = 0;
    while (i < look->processes && look->process[i].pid != pid)
        i++;
    if (i == look->processes) {
        if (look->processes == SIM_PROCESSES)
            return;
        look->process[look->processes].pid = pid;
        look->process[look->processes++].bytes = 0;
    }
    look->process[i].bytes += bytes;
}

static void count_share(struct look *look, uint32_t pid, uint64_t busy_ns) {
    uint32_t i = 0;
    while (i < look->sharers && look->sharer[i].pid != pid)
        i++;
    if (i == look->sharers) {
        if (look->sharers == SIM_CLIENTS)
            return;
        look->sharer[look->sharers].pid = pid;
        look->sharer[look->sharers++].busy_ns = 0;
    }
    look->sharer[i].busy_ns += busy_ns;
    look->window_busy_ns += busy_ns;
}

static int read_state(struct sim_state *state, void *argument) {
    struct glance *glance = argument;
    struct look *look = glance->look;
    memset(look, 0, offsetof(struct look, process));
    look->now_ns = state->now_ns;
    for (uint32_t i = 0; i < state->clients; i++) {
        const struct sim_client *client = &state->client[i];
        if (client->device != glance->device)
            continue;
        look->busy_ns += client->busy_ns;
        look->to_device_ns += client->h2d_ns;
        look->to_host_ns += client->d2h_ns;
        look->used_bytes += client->memory_bytes;
        if ((client->contexts || client->memory_bytes) && !nvml.spec.hidden_pids)
            count_process(look, (uint32_t)client->owner, client->memory_bytes);
    }
    glance->open = state->device[glance->device].open;
    glance->log_next = state->device[glance->device].log_next;
    return 0;
}

/* The part of [start, end] that lies in the window goes to `owner`. Returns whether earlier work can lie in it too. */
static bool read_stretch(struct look *look, uint64_t owner, uint64_t start_ns, uint64_t end_ns) {
    uint64_t since_ns = look->now_ns - look->window_ns;
    uint64_t from_ns = start_ns > since_ns ? start_ns : since_ns;
    if (end_ns > from_ns)
        count_share(look, (uint32_t)owner, end_ns - from_ns);
    return start_ns > since_ns;
}

static void read_window(const struct glance *glance) {
    struct look *look = glance->look;
    const struct sim_stretch *open = &glance->open;
    bool more = open->end_ns == open->start_ns || read_stretch(look, open->owner, open->start_ns, open->end_ns);
    for (uint64_t left = glance->log_next; more && left > 0 && left + SIM_LOG > glance->log_next; left--) {
        const struct sim_record *record = &nvml.seat.machine->log[glance->device][(left - 1) % SIM_LOG];
        uint64_t owner = record->owner, start_ns = record->start_ns, end_ns = record->end_ns;
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load(&record->sequence) != left)
            break; /* overwritten since: so is all before it */
        more = read_stretch(look, owner, start_ns, end_ns);
    }
}

nvmlReturn_t nvml_look(unsigned int index, uint64_t window_ns, struct look *look) {
    struct glance glance = {.device = index, .look = look};
    char why[256];
    nvmlReturn_t result = NVML_SUCCESS;
    if (pthread_rwlock_rdlock(&nvml.lock))
        return NVML_ERROR_UNKNOWN;
    if (nvml.users && !nvml.seated) { /* a forked child's first look */
        pthread_rwlock_unlock(&nvml.lock);
        pthread_rwlock_wrlock(&nvml.lock);
        if (nvml.users && !nvml.seated)
            nvml.seated = sim_sit(&nvml.seat, nvml.text, true, why, sizeof(why)) == 0;
        pthread_rwlock_unlock(&nvml.lock);
        pthread_rwlock_rdlock(&nvml.lock);
    }
    if (!nvml.users) {
        result = NVML_ERROR_UNINITIALIZED;
    } else if (!nvml.seated || index >= nvml.seat.machine->spec.gpus) {
        result = NVML_ERROR_GPU_IS_LOST;
    } else {
        sim_commit(&nvml.seat, read_state, &glance);
        look->age_ns = look->now_ns - nvml.began_ns;
        look->window_ns = window_ns < look->now_ns ? window_ns : look->now_ns;
        if (window_ns)
            read_window(&glance);
    }
    pthread_rwlock_unlock(&nvml.lock);
    return result;
}

unsigned int nvml_percent(uint64_t busy_ns, uint64_t window_ns) {
    if (!busy_ns || !window_ns)
        return 0;
    uint64_t percent = (busy_ns * 100 + window_ns / 2) / window_ns;
    return percent < 1 ? 1 : percent > 100 ? 100 : (unsigned int)percent;
}
