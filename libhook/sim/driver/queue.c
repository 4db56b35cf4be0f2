#include "libhook/sim/driver/queue.h"

#include "libhook/sim/driver/event_mark.h"
#include "libhook/sim/model/words.h"
#include "libhook/sim/model/roster.h"

static struct queue queues[SIM_QUEUES];
static uint32_t made;

enum { FULL_PATIENCE_NS = 200 * 1000 }; /* who met a full ring leaves it some room before coming back */

struct registration {
    struct queue *queue;
    struct sim_seat *seat;
};

static int enrol(struct sim_state *state, void *argument) {
    struct registration *r = argument;
    uint32_t device = driver.physical[r->queue->device];
    int client = roster_client(state, r->seat->owner, device, true);
    if (client < 0 || state->queues >= SIM_ALL_QUEUES)
        return -1;
    int at = roster_queue(state, r->seat->owner, r->queue->number);
    if (at >= 0)
        roster_remove_queue(state, (uint32_t)at);
    state->queue[state->queues++] = (struct sim_queue){
        .owner = r->seat->owner,
        .process = (uint16_t)r->seat->number,
        .queue = (uint16_t)r->queue->number,
        .device = (uint16_t)device,
        .priority = (int16_t)r->queue->priority,
        .head = r->queue->tail,
        .ready_ns = SIM_NEVER,
        .client = (uint16_t)client,
    };
    return 0;
}

/* With driver.lock held: a queue nobody uses on this device and with this priority, a new one, or one to share. */
static struct queue *find(const struct CUctx_st *ctx, int priority) {
    struct queue *shared = NULL;
    int device = ctx->device;
    for (uint32_t i = 0; i < made; i++) {
        struct queue *q = &queues[i];
        if ((q->ctx == ctx || !q->ctx) && q->device == device && q->priority == priority && q->users == 0)
            return q;
        if (q->device == device && (!shared || q->users < shared->users))
            shared = q;
    }
    /* The last queues are kept for devices that have none yet. */
    if (made < SIM_QUEUES - (shared ? SIM_DEVICES : 0))
        return &queues[made];
    return shared;
}

CUresult queue_of(struct CUstream_st *stream, struct queue **out) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&driver.lock);
    struct queue *q = stream->queue;
    if (!q) {
        q = find(stream->ctx, stream->priority);
        if (q == &queues[made]) {
            pthread_mutex_init(&q->mutex, NULL);
            q->number = made;
            q->ring = &driver.seat.machine->process[driver.seat.number].ring[made];
            q->tail = atomic_load(&q->ring->tail);
            q->device = stream->ctx->device;
            q->priority = stream->priority;
            q->users = 0;
            __atomic_store_n(&driver.seat.seen_head[made], q->tail, __ATOMIC_RELEASE);
            driver.seat.value[made].last = driver.seat.value[made].written = 0;
            struct registration r = {q, &driver.seat};
            if (sim_commit(&driver.seat, enrol, &r))
                result = CUDA_ERROR_OUT_OF_MEMORY;
            else
                __atomic_store_n(
                    &made, made + 1, __ATOMIC_RELEASE); /* the thread of values counts them without the lock */
        }
        if (!result) {
            q->users++;
            q->ctx = stream->ctx;
            if (stream->kind != STREAM_LEGACY && !(stream->flags & CU_STREAM_NON_BLOCKING))
                atomic_fetch_add(&stream->ctx->blocking_streams, 1);
            __atomic_store_n(&stream->queue, q, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&driver.lock);
    *out = q;
    return result;
}

void queue_leave(struct CUstream_st *stream) {
    if (!stream->queue)
        return;
    stream->queue->users--;
    if (stream->kind != STREAM_LEGACY && !(stream->flags & CU_STREAM_NON_BLOCKING))
        atomic_fetch_sub(&stream->ctx->blocking_streams, 1);
    stream->queue = NULL;
}

void (*queue_value_came)(void);

void queue_end_context(const struct CUctx_st *ctx) {
    for (uint32_t i = 0; i < made; i++)
        if (queues[i].ctx == ctx)
            queues[i].ctx = NULL;
}

void queue_forget_all(void) {
    memset(queues, 0, sizeof(queues));
    made = 0;
}

/* With the queue's mutex held. */
static uint64_t append(struct queue *q, const struct work *work) {
    uint64_t index = q->tail;
    while (index - __atomic_load_n(&driver.seat.seen_head[q->number], __ATOMIC_ACQUIRE) >= SIM_RING) {
        sim_commit(&driver.seat, NULL, NULL);
        if (index - __atomic_load_n(&driver.seat.seen_head[q->number], __ATOMIC_ACQUIRE) < SIM_RING)
            break;
        uint64_t pause_ns = sim_now() + FULL_PATIENCE_NS;
        sim_wait(&driver.seat, q->number, index - SIM_RING, 0);
        sim_sleep(pause_ns);
    }
    struct sim_entry *entry = &q->ring->entry[index % SIM_RING];
    if (entry->kind == SIM_EVENT)
        event_mark_keep_time(q->number, entry);
    entry->kind = work->kind;
    entry->kernels = work->kernels;
    entry->duration_ns = work->duration_ns;
    entry->arg = work->arg;
    entry->until = work->until;
    entry->peers = work->peers;
    bool value = work->kind == SIM_VALUE_WAIT || work->kind == SIM_VALUE_WRITE, first = false, known;
    uint64_t by_ns;
    if (value) {
        entry->unmet =
            work->kind == SIM_VALUE_WAIT && !words_look(&driver.seat.owner, driver.seat.owner, entry, &known, &by_ns);
        first = sim_value_comes(&driver.seat, q->number, index);
    }
    atomic_store_explicit(&entry->done, SIM_PENDING | index, memory_order_relaxed);
    entry->submit_ns = sim_now();
    atomic_store_explicit(&entry->index, index, memory_order_relaxed);
    q->tail = index + 1;
    atomic_store_explicit(&q->ring->tail, index + 1, memory_order_release);
    if (first)
        queue_value_came();
    return index;
}

static void append_wait(struct queue *q, const struct queue *on, uint64_t last) {
    if (on == q || last == 0 || sim_seen_retired(&driver.seat, on->number, last - 1))
        return;
    append(q, &(struct work){.kind = SIM_WAIT, .arg = on->number, .until = last - 1});
}

/* What the default-stream rules make this push wait for. Blocking streams that were never used cost nothing. `walk`: the
 * list of streams stands still; without it there was no blocking stream a moment ago, and one that comes meanwhile is
 * ordered after this push. */
static void obey_legacy_rules(struct CUstream_st *stream, struct queue *q, bool walk) {
    struct CUctx_st *ctx = stream->ctx;
    if (stream->kind == STREAM_LEGACY) {
        if (!walk)
            return;
        for (struct CUstream_st *other = ctx->streams; other; other = other->next)
            if (other != stream && other->queue && !(other->flags & CU_STREAM_NON_BLOCKING))
                append_wait(q, other->queue, atomic_load(&other->last));
    } else if (!(stream->flags & CU_STREAM_NON_BLOCKING) && ctx->legacy) {
        uint64_t last = atomic_load_explicit(&ctx->legacy->last, memory_order_acquire);
        if (last != stream->legacy_seen) {
            stream->legacy_seen = last;
            append_wait(q, ctx->legacy->queue, last);
        }
    }
}

/* What a context's first kernel makes the driver take of the card. */
static CUresult grow(struct CUctx_st *ctx) {
    if (!spec()->growth_bytes || atomic_load_explicit(&ctx->grown, memory_order_relaxed) ||
        atomic_exchange(&ctx->grown, true))
        return CUDA_SUCCESS;
    CUresult result = card_change(ctx->device, spec()->growth_bytes, true, 0);
    atomic_store(&ctx->grown, result == CUDA_SUCCESS);
    return result;
}

CUresult queue_push(struct CUstream_st *stream, const struct work *work, uint64_t *index) {
    struct queue *q = __atomic_load_n(&stream->queue, __ATOMIC_ACQUIRE);
    if (__builtin_expect(!q, 0))
        TRY(queue_of(stream, &q));
    if (work->kind == SIM_KERNEL || work->kind == SIM_COLLECTIVE)
        TRY(grow(stream->ctx));
    bool walk =
        stream->kind == STREAM_LEGACY && atomic_load_explicit(&stream->ctx->blocking_streams, memory_order_relaxed);
    if (walk)
        pthread_mutex_lock(&driver.lock);
    pthread_mutex_lock(&q->mutex);
    obey_legacy_rules(stream, q, walk);
    if (walk)
        pthread_mutex_unlock(&driver.lock);
    uint64_t at = append(q, work);
    atomic_store_explicit(&stream->last, at + 1, memory_order_release);
    pthread_mutex_unlock(&q->mutex);
    if (index)
        *index = at;
    return CUDA_SUCCESS;
}

bool queue_entry_done(uint32_t queue, uint64_t index) {
    return sim_retired(&driver.seat, queue, index);
}

void queue_wait_entry(uint32_t queue, uint64_t index) {
    sim_wait(&driver.seat, queue, index, 0);
}

/* Everything that this stream's next operation would wait for, too. */
bool queue_stream_idle(struct CUstream_st *stream) {
    struct queue *q = __atomic_load_n(&stream->queue, __ATOMIC_ACQUIRE);
    uint64_t last = atomic_load_explicit(&stream->last, memory_order_acquire);
    if (q && last && !queue_entry_done(q->number, last - 1))
        return false;
    if (stream->kind != STREAM_LEGACY)
        return true;
    bool idle = true;
    pthread_mutex_lock(&driver.lock);
    for (struct CUstream_st *other = stream->ctx->streams; other && idle; other = other->next)
        if (other->queue && !(other->flags & CU_STREAM_NON_BLOCKING) && (last = atomic_load(&other->last)))
            idle = queue_entry_done(other->queue->number, last - 1);
    pthread_mutex_unlock(&driver.lock);
    return idle;
}

struct place {
    uint32_t queue;
    uint64_t last;
};

static void wait_places(const struct place *places, int count) {
    for (int i = 0; i < count; i++)
        queue_wait_entry(places[i].queue, places[i].last);
}

/* With driver.lock held. */
static int add_place(struct place *places, int count, const struct CUstream_st *stream) {
    uint64_t last = atomic_load(&stream->last);
    if (!stream->queue || !last)
        return count;
    for (int i = 0; i < count; i++)
        if (places[i].queue == stream->queue->number) {
            places[i].last = last - 1 > places[i].last ? last - 1 : places[i].last;
            return count;
        }
    places[count] = (struct place){stream->queue->number, last - 1};
    return count + 1;
}

void queue_wait_stream(struct CUstream_st *stream) {
    struct place places[SIM_QUEUES];
    int count = 0;
    pthread_mutex_lock(&driver.lock);
    count = add_place(places, count, stream);
    if (stream->kind == STREAM_LEGACY)
        for (struct CUstream_st *other = stream->ctx->streams; other; other = other->next)
            if (!(other->flags & CU_STREAM_NON_BLOCKING))
                count = add_place(places, count, other);
    pthread_mutex_unlock(&driver.lock);
    wait_places(places, count);
}

/* With driver.lock held: all that was ever pushed into the queue. */
static int add_queue(struct place *places, int count, const struct queue *q) {
    uint64_t tail = atomic_load(&q->ring->tail);
    if (tail)
        places[count++] = (struct place){q->number, tail - 1};
    return count;
}

void queue_wait_context(struct CUctx_st *ctx) {
    struct place places[SIM_QUEUES];
    int count = 0;
    pthread_mutex_lock(&driver.lock);
    for (uint32_t i = 0; i < made; i++)
        if (queues[i].ctx == ctx)
            count = add_queue(places, count, &queues[i]);
    pthread_mutex_unlock(&driver.lock);
    wait_places(places, count);
}

void queue_wait_device(CUdevice device) {
    struct place places[SIM_QUEUES];
    int count = 0;
    pthread_mutex_lock(&driver.lock);
    for (uint32_t i = 0; i < made; i++)
        if (queues[i].device == device)
            count = add_queue(places, count, &queues[i]);
    pthread_mutex_unlock(&driver.lock);
    wait_places(places, count);
}

bool queue_values_outstanding(void) {
    for (uint32_t i = 0; i < __atomic_load_n(&made, __ATOMIC_ACQUIRE); i++)
        if (sim_value_outstanding(&driver.seat, i))
            return true;
    return false;
}

static bool holds(const struct sim_entry *entry, const struct span *touched, int count) {
    uint64_t by_ns;
    bool known;
    if (entry->kind == SIM_VALUE_WAIT)
        return entry->unmet && !__atomic_load_n(&entry->duration_ns, __ATOMIC_ACQUIRE) &&
               !words_look(&driver.seat.owner, driver.seat.owner, entry, &known, &by_ns);
    for (int i = 0; entry->kind == SIM_VALUE_WRITE && i < count; i++)
        if (entry->arg + sizeof(uint64_t) > touched[i].start && entry->arg < touched[i].start + touched[i].bytes)
            return true;
    return false;
}

bool queue_values_hold(const struct span *touched, int count) {
    for (uint32_t i = 0; i < __atomic_load_n(&made, __ATOMIC_ACQUIRE); i++) {
        if (!sim_value_outstanding(&driver.seat, i))
            continue;
        uint64_t last = sim_value_last(&driver.seat, i);
        for (uint64_t at = __atomic_load_n(&driver.seat.seen_head[i], __ATOMIC_ACQUIRE); at < last; at++)
            if (holds(queue_entry(i, at), touched, count))
                return true;
    }
    return false;
}

struct sim_entry *queue_entry(uint32_t queue, uint64_t index) {
    return &queues[queue].ring->entry[index % SIM_RING];
}

uint64_t queue_event_ns(uint32_t queue, uint64_t index) {
    struct sim_entry *entry = queue_entry(queue, index);
    uint64_t done = atomic_load_explicit(&entry->done, memory_order_acquire);
    bool same = atomic_load_explicit(&entry->index, memory_order_acquire) == index;
    return same && !(done & SIM_PENDING) ? done : 0;
}
