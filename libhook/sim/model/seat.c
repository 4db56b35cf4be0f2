/* The commit protocol (theory in state.h), waiting, and noticing the dead. */
#define _GNU_SOURCE
#include "libhook/sim/model/seat.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libhook/sim/model/clock.h"
#include "libhook/sim/model/machine.h"
#include "libhook/sim/model/words.h"
#include "libhook/sim/model/roster.h"

enum {
    ALIVE_CHECK_NS = 1000 * 1000,   /* how often the machine looks for the dead */
    UNWATCH_NS = 1000 * 1000 * 1000,/* how often a process lets go of those that others found */
    LOOK_AGAIN_NS = 2 * 1000 * 1000,/* the others may die: sleep no longer than this while they have work */
    UNKNOWN_NS = 50 * 1000,         /* between looks at work whose end nobody knows */
};

/* Copy the used parts only. The source may change under our hands: the counts are bounded, the caller checks later. */
static void copy_state(struct sim_state *to, const struct sim_state *from) {
    memcpy(to, from, offsetof(struct sim_state, client));
    if (to->clients > SIM_CLIENTS)
        to->clients = 0;
    if (to->queues > SIM_ALL_QUEUES)
        to->queues = 0;
    if (to->effects > SIM_EFFECTS)
        to->effects = 0;
    memcpy(to->client, from->client, to->clients * sizeof(to->client[0]));
    memcpy(to->queue, from->queue, to->queues * sizeof(to->queue[0]));
    memcpy(to->effect, from->effect, to->effects * sizeof(to->effect[0]));
}

/* Write out what a commit left behind; doing it twice does no harm. */
static void publish(struct sim_machine *machine, const struct sim_state *state) {
    for (uint32_t i = 0; i < state->effects; i++) {
        const struct sim_effect *effect = &state->effect[i];
        if (effect->device < SIM_DEVICES) {
            struct sim_record *record = &machine->log[effect->device][effect->sequence % SIM_LOG];
            if (atomic_load(&record->sequence) > effect->sequence)
                continue;
            record->owner = effect->stretch.owner;
            record->start_ns = effect->stretch.start_ns;
            record->end_ns = effect->stretch.end_ns;
            record->kernels = effect->stretch.kernels;
            record->queue = effect->stretch.queue;
            atomic_store_explicit(&record->sequence, effect->sequence + 1, memory_order_release);
        } else {
            struct sim_process *process = &machine->process[effect->process];
            struct sim_entry *entry = &process->ring[effect->queue].entry[effect->sequence % SIM_RING];
            uint64_t pending = SIM_PENDING | effect->sequence;
            atomic_compare_exchange_strong(&entry->done, &pending, effect->stretch.end_ns);
        }
    }
}

/* Close the descriptors of processes whose seats somebody else has freed. */
static void unwatch(struct sim_seat *seat, uint64_t now) {
    if (now < seat->unwatched_ns + UNWATCH_NS)
        return;
    seat->unwatched_ns = now;
    for (int i = 0; i < SIM_PROCESSES; i++) {
        struct sim_watch *watch = &seat->watch[i];
        if (watch->owner &&
            watch->owner != atomic_load_explicit(&seat->machine->process[i].owner, memory_order_acquire)) {
            close(watch->pidfd);
            watch->owner = 0;
        }
    }
}

/* Which processes have died? Fills `dead` and returns their number; -1 if it was not yet time to look. */
static int find_dead(struct sim_seat *seat, uint64_t now, uint64_t dead[SIM_PROCESSES]) {
    struct sim_machine *machine = seat->machine;
    unwatch(seat, now);
    uint64_t last = atomic_load_explicit(&machine->alive_checked_ns, memory_order_relaxed);
    if (now < last + ALIVE_CHECK_NS || !atomic_compare_exchange_strong(&machine->alive_checked_ns, &last, now))
        return -1;
    struct pollfd fds[SIM_PROCESSES];
    uint64_t owners[SIM_PROCESSES];
    int polled = 0, found = 0;
    for (int i = 0; i < SIM_PROCESSES; i++) {
        struct sim_watch *watch = &seat->watch[i];
        uint64_t owner = atomic_load_explicit(&machine->process[i].owner, memory_order_acquire);
        if (watch->owner != owner && watch->owner) { /* since it was looked at above */
            close(watch->pidfd);
            watch->owner = 0;
        }
        if (!owner || i == seat->number)
            continue;
        if (!watch->owner) {
            int fd = (int)syscall(SYS_pidfd_open, (pid_t)(uint32_t)owner, 0);
            if ((fd < 0 && errno == ESRCH) || !machine_same_process(&machine->process[i])) {
                if (fd >= 0)
                    close(fd);
                dead[found++] = owner;
                continue;
            }
            if (fd < 0)
                continue;
            watch->owner = owner;
            watch->pidfd = fd;
        }
        owners[polled] = owner;
        fds[polled++] = (struct pollfd){.fd = watch->pidfd, .events = POLLIN};
    }
    if (polled && poll(fds, (nfds_t)polled, 0) > 0)
        for (int i = 0; i < polled; i++)
            if (fds[i].revents & POLLIN)
                dead[found++] = owners[i];
    return found;
}

/* Remove who holds no seat any more, too: its seat may have been freed by a process that then died itself. */
static void bury(struct sim_machine *machine, struct sim_state *state, const uint64_t *dead, int count) {
    for (int k = 0; k < count; k++)
        roster_remove_owner(state, dead[k]);
    for (uint32_t c = 0; count >= 0 && c < state->clients; c++) {
        bool seated = state->client[c].dead;
        for (int i = 0; !seated && i < SIM_PROCESSES; i++)
            seated = atomic_load_explicit(&machine->process[i].owner, memory_order_relaxed) == state->client[c].owner;
        if (!seated)
            roster_remove_owner(state, state->client[c].owner);
    }
}

static void free_seats(struct sim_machine *machine, const uint64_t *dead, int count) {
    for (int k = 0; k < count; k++)
        for (int i = 0; i < SIM_PROCESSES; i++)
            machine_free_seat(&machine->process[i], dead[k]);
}

bool sim_value_comes(struct sim_seat *seat, uint32_t queue, uint64_t index) {
    uint64_t last = seat->value[queue].last;
    bool first = last <= __atomic_load_n(&seat->value[queue].written, __ATOMIC_ACQUIRE);
    if (first)
        __atomic_store_n(&seat->value[queue].written, index, __ATOMIC_RELAXED);
    __atomic_store_n(&seat->value[queue].last, index + 1, __ATOMIC_RELEASE);
    return first;
}

/* Store what our queue has written by now: each value once, in order, and before anybody sees its entry retired. */
static void write_values(struct sim_seat *seat, const struct sim_queue *queue) {
    uint64_t last = __atomic_load_n(&seat->value[queue->queue].last, __ATOMIC_ACQUIRE);
    uint64_t at = __atomic_load_n(&seat->value[queue->queue].written, __ATOMIC_RELAXED);
    last = last < queue->head ? last : queue->head;
    if (at >= last)
        return;
    for (; at < last; at++) {
        const struct sim_entry *entry = &seat->machine->process[seat->number].ring[queue->queue].entry[at % SIM_RING];
        if (entry->kind == SIM_VALUE_WRITE)
            words_store(entry);
    }
    __atomic_store_n(&seat->value[queue->queue].written, at, __ATOMIC_RELEASE);
}

/* With the seat's mutex held. Leaves the committed state in seat->work and the engine on it. */
static int commit(struct sim_seat *seat, sim_change change, void *argument) {
    struct sim_machine *machine = seat->machine;
    struct sim_state *work = seat->work;
    uint64_t dead[SIM_PROCESSES];
    int errors = errno, died = find_dead(seat, sim_now(), dead);
    errno = errors;
    for (;;) {
        uint64_t current = atomic_load_explicit(&machine->current, memory_order_acquire);
        uint32_t number = (uint32_t)(current >> 1 & 0x7fff), side = (uint32_t)(current & 1);
        copy_state(work, current >> 16 ? &machine->process[number].buffer[side] : &machine->first);
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&machine->current, memory_order_relaxed) != current)
            continue;
        publish(machine, work);
        work->effects = 0;
        uint64_t now = sim_now();
        if (work->now_ns > now)
            now = work->now_ns;
        bury(machine, work, dead, died);
        engine_begin(seat->engine, machine, work);
        engine_advance(seat->engine, now);
        if (seat->engine->stale)
            continue;
        bool there = work->now_ns >= now;
        int result = 0;
        if (there && change) {
            uint32_t effects = work->effects;
            copy_state(seat->ahead, work);
            result = change(work, argument);
            if (result) {
                copy_state(work, seat->ahead);
                work->effects = effects;
            }
        }
        uint32_t mine = (int)number == seat->number && current >> 16 ? !side : 0;
        copy_state(&machine->process[seat->number].buffer[mine], work);
        uint64_t next = ((current >> 16) + 1) << 16 | (uint64_t)seat->number << 1 | mine;
        if (!atomic_compare_exchange_strong(&machine->current, &current, next))
            continue;
        publish(machine, work);
        for (uint32_t i = 0; i < work->queues; i++)
            if (work->queue[i].owner == seat->owner) {
                write_values(seat, &work->queue[i]);
                __atomic_store_n(&seat->seen_head[work->queue[i].queue], work->queue[i].head, __ATOMIC_RELEASE);
            }
        if (!there)
            continue;
        free_seats(machine, dead, died);
        return result;
    }
}

int sim_commit(struct sim_seat *seat, sim_change change, void *argument) {
    pthread_mutex_lock(&seat->mutex);
    int result = commit(seat, change, argument);
    pthread_mutex_unlock(&seat->mutex);
    return result;
}

static int remove_all(struct sim_state *state, void *owner) {
    roster_remove_owner(state, *(uint64_t *)owner);
    return 0;
}

void sim_leave(struct sim_seat *seat) {
    struct timespec patience;
    clock_gettime(CLOCK_REALTIME, &patience);
    patience.tv_sec += 1;
    if (pthread_mutex_timedlock(&seat->mutex, &patience))
        return;
    commit(seat, remove_all, &seat->owner);
    pthread_mutex_unlock(&seat->mutex);
}

bool sim_retired(struct sim_seat *seat, uint32_t queue, uint64_t index) {
    if (sim_seen_retired(seat, queue, index))
        return true;
    sim_commit(seat, NULL, NULL);
    return sim_seen_retired(seat, queue, index);
}

/* Waits that our queues come to later and that are met by now are so before they come there. */
static void look_ahead(const struct sim_seat *seat) {
    for (uint32_t i = 0; i < seat->work->queues; i++) {
        const struct sim_queue *queue = &seat->work->queue[i];
        if (queue->owner != seat->owner)
            continue;
        struct sim_entry *entries = seat->machine->process[seat->number].ring[queue->queue].entry;
        uint64_t last = __atomic_load_n(&seat->value[queue->queue].last, __ATOMIC_ACQUIRE);
        for (uint64_t at = queue->head + 1; at < last; at++) {
            struct sim_entry *entry = &entries[at % SIM_RING];
            uint64_t by_ns;
            bool known;
            if (entry->kind != SIM_VALUE_WAIT || !entry->unmet || entry->duration_ns)
                continue;
            if (atomic_load_explicit(&entry->index, memory_order_acquire) != at ||
                !words_look(&seat->owner, seat->owner, entry, &known, &by_ns))
                break; /* those behind it are likely not either */
            __atomic_store_n(&entry->duration_ns, by_ns, __ATOMIC_RELEASE);
        }
    }
}

uint64_t sim_next_value(struct sim_seat *seat, struct engine_unmet *unmet) {
    pthread_mutex_lock(&seat->mutex);
    commit(seat, NULL, NULL);
    look_ahead(seat);
    copy_state(seat->ahead, seat->work);
    engine_begin(seat->engine, seat->machine, seat->ahead);
    uint64_t next_ns = engine_next_value(seat->engine, seat->owner, unmet);
    pthread_mutex_unlock(&seat->mutex);
    return next_ns;
}

static bool others_have_work(const struct sim_seat *seat) {
    const struct sim_state *work = seat->work;
    for (uint32_t i = 0; i < work->queues; i++)
        if (work->queue[i].owner != seat->owner && work->queue[i].ready_ns != SIM_NEVER)
            return true;
    return false;
}

bool sim_wait(struct sim_seat *seat, uint32_t queue, uint64_t index, uint64_t patience_ns) {
    uint64_t give_up_ns = patience_ns ? sim_now() + patience_ns : SIM_NEVER;
    for (;;) {
        if (sim_seen_retired(seat, queue, index))
            return true;
        pthread_mutex_lock(&seat->mutex);
        commit(seat, NULL, NULL);
        int at = roster_queue(seat->work, seat->owner, queue);
        if (at < 0 || seat->work->queue[at].head > index) {
            pthread_mutex_unlock(&seat->mutex);
            return true;
        }
        uint64_t now = sim_now(), limit = others_have_work(seat) ? now + LOOK_AGAIN_NS : SIM_NEVER;
        copy_state(seat->ahead, seat->work);
        engine_begin(seat->engine, seat->machine, seat->ahead);
        uint64_t end_ns = engine_foresee(seat->engine, (uint32_t)at, index);
        pthread_mutex_unlock(&seat->mutex);
        if (now >= give_up_ns)
            return false;
        if (end_ns == SIM_NEVER)
            end_ns = now + UNKNOWN_NS;
        end_ns = end_ns < limit ? end_ns : limit;
        sim_sleep(end_ns < give_up_ns ? end_ns : give_up_ns);
    }
}

/* ---- sitting down and rising ---- */

int sim_sit(struct sim_seat *seat, const char *text, bool make, char *why, size_t why_size) {
    memset(seat, 0, sizeof(*seat));
    seat->number = -1;
    pthread_mutex_init(&seat->mutex, NULL);
    int error = machine_join(text, make, &seat->machine, &seat->number, &seat->owner, why, why_size);
    if (error)
        goto out;
    seat->work = calloc(2, sizeof(*seat->work));
    seat->engine = malloc(sizeof(*seat->engine));
    if (!seat->work || !seat->engine) {
        error = -ENOMEM;
        goto out;
    }
    seat->ahead = seat->work + 1;
    seat->engine->look = words_look;
    seat->engine->looker = &seat->owner;
    return 0;
out:
    sim_rise(seat);
    return error;
}

void sim_rise(struct sim_seat *seat) {
    if (seat->machine && seat->number >= 0) {
        uint64_t owner = seat->owner;
        if (seat->engine && seat->work)
            sim_commit(seat, remove_all, &owner);
        machine_free_seat(&seat->machine->process[seat->number], owner);
    }
    sim_forget(seat);
}

void sim_forget(struct sim_seat *seat) {
    for (int i = 0; i < SIM_PROCESSES; i++)
        if (seat->watch[i].owner)
            close(seat->watch[i].pidfd);
    if (seat->machine)
        munmap(seat->machine, sizeof(*seat->machine));
    free(seat->work);
    free(seat->engine);
    memset(seat, 0, sizeof(*seat));
    seat->number = -1;
}
