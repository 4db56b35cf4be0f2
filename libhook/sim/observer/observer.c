#include "libhook/sim/observer/observer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libhook/sim/model/machine.h"
#include "libhook/sim/model/seat.h"

struct observer {
    struct sim_seat seat;
};

int observer_open(const char *spec, int make, struct observer **out, char *why, int why_size) {
    struct observer *observer = malloc(sizeof(*observer));
    int error = observer ? sim_sit(&observer->seat, spec, make, why, (size_t)why_size) : -ENOMEM;
    if (error) {
        free(observer);
        return error;
    }
    *out = observer;
    return 0;
}

void observer_close(struct observer *observer) {
    sim_rise(&observer->seat);
    free(observer);
}

uint32_t observer_devices(struct observer *observer) {
    return observer->seat.machine->spec.gpus;
}

int observer_device(struct observer *observer, uint32_t device, char name[64], uint8_t uuid[16], uint64_t *memory) {
    const struct sim_machine *machine = observer->seat.machine;
    if (device >= machine->spec.gpus)
        return -ENODEV;
    memcpy(name, machine->spec.name, SIM_NAME);
    machine_uuid(machine, device, uuid);
    *memory = machine->spec.memory_bytes;
    return 0;
}

struct reading {
    uint32_t device;
    uint64_t now_ns, switches, log_next;
    struct observer_busy *out;
    int room, count;
};

static int read_clients(struct sim_state *state, void *argument) {
    struct reading *reading = argument;
    reading->now_ns = state->now_ns;
    reading->switches = state->device[reading->device].switches;
    reading->count = 0;
    for (uint32_t i = 0; i < state->clients; i++) {
        const struct sim_client *client = &state->client[i];
        if (client->device != reading->device)
            continue;
        if (reading->count < reading->room)
            reading->out[reading->count] = (struct observer_busy){
                .pid = (int32_t)(uint32_t)client->owner,
                .alive = !client->dead,
                .busy_ns = client->busy_ns,
                .to_device_ns = client->h2d_ns,
                .to_host_ns = client->d2h_ns,
                .memory_bytes = client->memory_bytes,
            };
        reading->count++;
    }
    return 0;
}

int observer_read(struct observer *observer, uint32_t device, uint64_t *now_ns, struct observer_busy *out, int room) {
    struct reading reading = {.device = device, .out = out, .room = room};
    if (device >= observer->seat.machine->spec.gpus)
        return -ENODEV;
    sim_commit(&observer->seat, read_clients, &reading);
    *now_ns = reading.now_ns;
    return reading.count;
}

uint64_t observer_switches(struct observer *observer, uint32_t device) {
    struct reading reading = {.device = device};
    sim_commit(&observer->seat, read_clients, &reading);
    return reading.switches;
}

static int flush(struct sim_state *state, void *argument) {
    struct reading *reading = argument;
    engine_flush(state, reading->device);
    reading->log_next = state->device[reading->device].log_next;
    return 0;
}

int observer_segments(struct observer *observer, uint32_t device, uint64_t *sequence, uint64_t *lost,
    struct observer_segment *out, int room) {
    struct reading reading = {.device = device};
    int count = 0;
    if (device >= observer->seat.machine->spec.gpus)
        return -ENODEV;
    sim_commit(&observer->seat, flush, &reading);
    *lost = 0;
    if (*sequence + SIM_LOG < reading.log_next) {
        *lost = reading.log_next - SIM_LOG - *sequence;
        *sequence = reading.log_next - SIM_LOG;
    }
    for (; *sequence < reading.log_next && count < room; ++*sequence) {
        const struct sim_record *record = &observer->seat.machine->log[device][*sequence % SIM_LOG];
        struct observer_segment segment = {
            .pid = (int32_t)(uint32_t)record->owner,
            .kernels = record->kernels,
            .stream = record->queue,
            .start_ns = record->start_ns,
            .end_ns = record->end_ns,
        };
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load(&record->sequence) == *sequence + 1)
            out[count++] = segment;
        else
            ++*lost;
    }
    return count;
}
