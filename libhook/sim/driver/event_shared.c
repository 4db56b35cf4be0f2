#define _GNU_SOURCE
#include "libhook/sim/driver/event_shared.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libhook/sim/driver/event_mark.h"
#include "libhook/sim/driver/host.h"
#include "libhook/sim/model/roster.h"

enum { PAGE = 4096, SLOTS = 1 << 20, LOOK_NS = 50 * 1000, MAGIC = 0x47494d45 };

struct slot {
    _Atomic uint64_t owner; /* as the machine calls the process; 0: never recorded */
    _Atomic uint64_t mark;  /* entry << 8 | queue; written first */
    uint64_t rest[6];
};
_Static_assert(sizeof(struct slot) == 64, "one cache line");

struct ipc {
    uint32_t magic;
    int32_t pid, fd;
    uint32_t slot;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot *slots;
static int file = -1;
static uint32_t used, spare[256], spares; /* spare: slots that nobody else was told of */

static bool open_file(void) {
    file = memfd_create("gemini-sim-events", MFD_CLOEXEC);
    if (file >= 0 && !ftruncate(file, (off_t)SLOTS * (off_t)sizeof(struct slot))) {
        void *at = mmap(NULL, SLOTS * sizeof(struct slot), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        slots = at == MAP_FAILED ? NULL : at;
    }
    return slots;
}

CUresult event_share(struct CUevent_st *event) {
    pthread_mutex_lock(&lock);
    if ((slots || open_file()) && (spares || used < SLOTS)) {
        event->shared = &slots[spares ? spare[--spares] : used++];
        memset(event->shared, 0, sizeof(struct slot));
    }
    pthread_mutex_unlock(&lock);
    return event->shared ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void event_unshare(struct CUevent_st *event) {
    if (event->imported) {
        munmap((void *)((uintptr_t)event->shared & -(uintptr_t)PAGE), PAGE);
    } else if (event->shared && !event->exported) {
        pthread_mutex_lock(&lock);
        if (spares < sizeof(spare) / sizeof(spare[0]))
            spare[spares++] = (uint32_t)(event->shared - slots);
        pthread_mutex_unlock(&lock);
    }
}

void event_shared_forget(void) {
    pthread_mutex_init(&lock, NULL);
    if (slots)
        munmap(slots, SLOTS * sizeof(struct slot));
    if (file >= 0)
        close(file);
    slots = NULL;
    file = -1;
    used = spares = 0;
}

void event_tell(struct CUevent_st *event, uint32_t queue, uint64_t index) {
    atomic_store(&event->shared->mark, index << 8 | queue);
    atomic_store(&event->shared->owner, driver.seat.owner);
}

bool event_foreign(const struct CUevent_st *event) {
    uint64_t owner = event->shared ? atomic_load(&event->shared->owner) : 0;
    return owner && owner != driver.seat.owner;
}

struct place {
    uint64_t owner, mark;
};

static struct place place_of(const struct CUevent_st *event) {
    return (struct place){atomic_load(&event->shared->owner), atomic_load(&event->shared->mark)};
}

/* 0: it is over, or its process is, which nobody need wait for. */
static int outstanding(struct sim_state *state, void *argument) {
    const struct place *place = argument;
    int at = roster_queue(state, place->owner, (uint32_t)(place->mark & 0xff));
    return at >= 0 && state->queue[at].head <= place->mark >> 8;
}

static bool over(void *place) {
    return sim_commit(&driver.seat, outstanding, place) == 0;
}

bool event_foreign_done(const struct CUevent_st *event) {
    struct place place = place_of(event);
    return over(&place);
}

void event_foreign_synchronize(const struct CUevent_st *event) {
    struct place place = place_of(event);
    while (!over(&place))
        sim_sleep(sim_now() + LOOK_NS);
}

CUresult event_foreign_wait(const struct CUevent_st *event, struct CUstream_st *stream) {
    struct place now = place_of(event), *place;
    if (over(&now))
        return CUDA_SUCCESS;
    NEED(place = malloc(sizeof(*place)), CUDA_ERROR_OUT_OF_MEMORY);
    *place = now;
    CUresult result = host_push(stream, &(struct host_step){over, free, place, false});
    if (result)
        free(place);
    return result;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent of) {
    struct CUevent_st *event;
    TRY(event_of(of, &event));
    NEED(handle, CUDA_ERROR_INVALID_VALUE);
    NEED(event->shared && !event->imported, CUDA_ERROR_INVALID_HANDLE);
    struct ipc ipc = {MAGIC, getpid(), file, (uint32_t)(event->shared - slots)};
    event->exported = true;
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &ipc, sizeof(ipc));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle) {
    struct CUctx_st *ctx;
    struct ipc ipc;
    char path[64];
    memcpy(&ipc, &handle, sizeof(ipc));
    NEED(out, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    NEED(ipc.magic == MAGIC && ipc.slot < SLOTS, CUDA_ERROR_INVALID_HANDLE);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", ipc.pid, ipc.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    NEED(fd >= 0, CUDA_ERROR_INVALID_HANDLE);
    uint64_t offset = (uint64_t)ipc.slot * sizeof(struct slot), before = offset % PAGE;
    char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - before));
    close(fd);
    NEED(page != MAP_FAILED, CUDA_ERROR_INVALID_HANDLE);
    struct CUevent_st *event = slab_take(SLAB_EVENT, sizeof(*event));
    if (!event) {
        munmap(page, PAGE);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->ctx = ctx;
    event->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    event->shared = (struct slot *)(page + before);
    event->imported = true;
    *out = event;
    return CUDA_SUCCESS;
}
