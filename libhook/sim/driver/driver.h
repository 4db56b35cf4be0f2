/*
 * driver.h - the objects of the simulated libcuda.so.1 inside one process, and the calls its parts make to one another.
 *
 * Theory. A CUDA handle is the address of an object in a slab of its type, so that any value a program hands in can
 * be told from a live handle (slab.h). What takes time is pushed into a queue (queue.h): a ring in the shared
 * machine, whose model decides when it runs. Bytes move at once, in the calling thread, when a copy is submitted;
 * only behind a pending host function do they wait for their turn (host.h). One operation of a stream is a struct op
 * (op.h), whether it is run, captured into a graph, or part of a graph that is launched.
 *
 * Locks, outermost first: driver.lock (objects, captures, graphs), a queue's mutex, the seat's mutex. None is held
 * while a callback of the program runs.
 */
#ifndef GEMINI_SIM_DRIVER_H
#define GEMINI_SIM_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "libhook/driver/cuda_abi.h"
#include "libhook/sim/driver/slab.h"
#include "libhook/sim/driver/strict.h"
#include "libhook/sim/model/machine.h"
#include "libhook/sim/model/seat.h"

enum { LIMITS = 16, STACK = 32, DEAD = 0xdead };

struct capture;
struct node_set;
struct queue;
struct thread;

struct CUctx_st {
    struct slab_head head;
    CUdevice device;
    unsigned int flags, api_version;
    bool primary;
    int references; /* of the primary context: retains */
    uint64_t id;
    atomic_bool grown; /* it ran a kernel: spec.growth_bytes */
    uint32_t peers; /* bit per device that peer access was enabled to */
    size_t limit[LIMITS];
    int cache_config, shared_config;
    struct CUstream_st *legacy;  /* its default stream */
    struct CUstream_st *streams; /* all, the default ones included */
    _Atomic uint32_t blocking_streams; /* that synchronise with the legacy stream and were used */
    _Atomic uint64_t capturing_blocking; /* of them, those in a capture */
};

enum stream_kind { STREAM_CREATED, STREAM_LEGACY, STREAM_THREAD };

struct CUstream_st {
    struct slab_head head;
    struct CUctx_st *ctx;
    struct CUstream_st *next;
    enum stream_kind kind;
    const struct thread *thread; /* whose default stream it is */
    unsigned int flags;
    int priority;
    uint64_t id;
    struct queue *queue; /* NULL until first used */
    _Atomic uint64_t last; /* index of its newest entry, plus 1 */
    uint64_t legacy_seen;  /* value of ctx->legacy->last that it waits for already */
    _Atomic(struct capture *) capture;
    struct node_set *tips; /* while capturing: what the next node depends on */
    CUlaunchAttributeValue attribute[20];
};

struct CUevent_st {
    struct slab_head head;
    struct CUctx_st *ctx;
    unsigned int flags;
    /* Any thread records, any looks: mark says which entry of which queue (event.c). */
    _Atomic bool recorded;
    _Atomic uint64_t mark;
    _Atomic uint64_t done_mark, done_ns;  /* when the entry of done_mark was over; kept when it leaves the queue */
    _Atomic(struct capture *) captured;   /* its last record was in this capture */
    _Atomic uint64_t captured_id;
    struct node_set *tips;
    struct slot *shared; /* where other processes see it (event_shared.h), or NULL */
    bool imported, exported;
};

struct symbol {
    char *name;
    size_t bytes;
    CUdeviceptr address; /* of a global variable, when it was placed */
};

/* A parsed image: what a module or a library was made of. Shared, counted. */
struct image {
    int references;
    uint32_t kernels, globals;
    struct kernel_facts {
        char *name;
        uint32_t parameters;
        struct {
            uint32_t offset, bytes;
        } parameter[64];
        uint32_t registers, shared_bytes, local_bytes, max_threads;
        uint64_t fixed_ns; /* 0: its first argument says */
        bool collective;
        bool work;     /* its arguments are arithmetic, bytes and precision: roofline.h */
        bool by_shape; /* nothing is known but its grid and block: roofline.h */
    } *kernel;
    struct symbol *global;
};

struct CUfunc_st {
    struct slab_head head;
    _Atomic bool loaded;
    const struct kernel_facts *facts;
    struct CUmod_st *module;
    int attribute[16];
};

struct CUmod_st {
    struct slab_head head;
    struct CUctx_st *ctx;
    struct CUlib_st *library; /* it was made for one, or NULL */
    struct image *image;
    struct CUfunc_st **function;
    struct symbol *global;
};

struct CUkern_st {
    struct slab_head head;
    _Atomic bool loaded; /* also by its functions */
    struct CUlib_st *library;
    const struct kernel_facts *facts;
    int attribute[16];
};

struct CUlib_st {
    struct slab_head head;
    struct image *image;
    struct CUkern_st **kernel;
    struct CUmod_st **module; /* one for each context it was used in */
    uint32_t modules;
};

struct driver {
    bool initialised;
    const char *spec_text;
    int devices;                     /* that this process may see: CUDA_VISIBLE_DEVICES */
    uint32_t physical[SIM_DEVICES];  /* the machine's number of each */
    struct sim_seat seat;
    pthread_mutex_t lock;
    struct CUctx_st *primary[SIM_DEVICES];
    unsigned int primary_flags[SIM_DEVICES];
    uint32_t contexts[SIM_DEVICES];
    _Atomic uint64_t next_id;
    _Atomic uint32_t captures; /* going on in this process, invalidated ones included */
    _Atomic uint32_t host_pending;
};

struct thread {
    struct CUctx_st *stack[STACK];
    int depth;
    CUstreamCaptureMode capture_mode;
    struct CUstream_st *streams; /* its per-thread default streams */
};

_Static_assert(offsetof(struct thread, depth) == SIM_THREAD_DEPTH, "strict.S looks there");

extern struct driver driver;
extern _Thread_local struct thread thread __attribute__((tls_model("initial-exec")));

static inline const struct sim_spec *spec(void) {
    return &driver.seat.machine->spec;
}

/* The current context, or why there is none. */
static inline CUresult context_current(struct CUctx_st **out) {
    if (__builtin_expect(!driver.initialised, 0))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (__builtin_expect(thread.depth == 0 || !thread.stack[thread.depth - 1], 0))
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = thread.stack[thread.depth - 1];
    return __builtin_expect(slab_live(&(*out)->head), 1) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        CUresult try_result = (call);                                                                                  \
        if (__builtin_expect(try_result != 0, 0))                                                                      \
            return try_result;                                                                                         \
    } while (0)

#define NEED(condition, error)                                                                                         \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return (error);                                                                                            \
    } while (0)

/* What it answers to more memory than any card has. */
#define VAST_BYTES (1ull << 46)
static inline CUresult vast(void) {
    return spec()->bounds ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
}

/* init.c: exit() was called, on a card of which no thread but that one may ask anything then. */
extern bool driver_ended;
void driver_called_after_end(void);
static inline void driver_alive(void) {
    if (__builtin_expect(__atomic_load_n(&driver_ended, __ATOMIC_ACQUIRE), 0))
        driver_called_after_end();
}

#define INIT() NEED(driver.initialised, CUDA_ERROR_NOT_INITIALIZED)

static inline bool device_exists(CUdevice device) {
    return device >= 0 && device < driver.devices;
}

/* context.c */
void context_forget_all(void);

/* visible.c: which cards CUDA_VISIBLE_DEVICES leaves, in which order. Fills driver.devices and driver.physical. */
void visible_devices(const char *list);

/* card.c: memory accounting on the card, shared by all processes; 0 or CUDA_ERROR_OUT_OF_MEMORY. Above 1 MiB in pages of
 * 2 MiB (card_room), so what was taken at once must be given back at once. */
CUresult card_take(CUdevice device, uint64_t bytes);
void card_give(CUdevice device, uint64_t bytes);
/* The same of exactly so many bytes, with as many contexts more or fewer. */
CUresult card_change(CUdevice device, uint64_t bytes, bool take, int contexts);
uint64_t card_room(uint64_t bytes);
/* Is this owner's process there, with something on this card? And memory of one that has ended: it is on the card. */
bool card_has(CUdevice device, uint64_t owner);
bool card_adopt(CUdevice device, uint64_t bytes);
/* vmm.c: give back what was exported and is gone everywhere, take over what makers left. Without driver.lock. */
void vmm_reap(void);
void card_figures(CUdevice device, uint64_t *used, uint64_t *total);

#endif
