/*
 * pool.c - stream-ordered allocation. What counts is what a pool has reserved from the card, not what was cut from it.
 *
 * A pool grows when an allocation does not fit, by an amount that the driver chooses, and shrinks at later
 * synchronisations or when it is trimmed. So an allocation first reserves the most by which the pool may grow. After
 * the call the pool is asked (CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) and the books are settled: what it did not take
 * becomes credit for the next allocation, so that a warm pool costs no message.
 *
 * By how much does a pool grow? By the request rounded up to a step of the driver's, which is learned from the growths
 * that are seen; until then it is taken for the 32 MiB of NVIDIA's. Where that much cannot be had, the request itself (in
 * pages) is tried, then what the pool holds free. A pool that took more after all has its allocation freed again and the
 * caller gets out-of-memory.
 *
 * Several threads settle at once: what their reservations are worth lies in one `promised` sum per device, from which
 * growth is paid, whoever sees it first. An answer of the driver that is older than the last settling is asked anew.
 *
 * A destroyed pool whose allocations are still in use is counted with them until the last is freed ("orphan").
 * Imported pools cannot be allocated from, and host pools take no device memory: neither is in the ledger. Pools of managed
 * memory are, for that lies on the card as what cuMemAllocManaged makes does: with the card that is their preferred
 * location, else with that of the context in which the program met them.
 */
#include <errno.h>
#include <stddef.h>

#include "libhook/core/ledger.h"
#include "libhook/core/wire.h"
#include "libhook/driver/real.h"
#include "libhook/hooks/memory.h"
#include "libhook/hooks/streams.h"
#include "libhook/runtime/account.h"
#include "libhook/runtime/agent.h"
#include "libhook/runtime/devices.h"

static const uint64_t STEP = 32ull << 20;
static const uint64_t PAGE = 2ull << 20;
static const uint64_t PIECE = 64ull << 10;

bool memory_pools_used;

/* All under the lock of the books (account_lock). */
static uint64_t promised[WIRE_MAX_DEVICES];
static uint32_t settled;   /* grows with each settling; read without the lock before the driver is asked */
static uint64_t step = 32ull << 20; /* by which pools grow, as far as is known */
static uint64_t orphans;   /* counted up for their keys */

/* An allocation on its way. */
struct claim {
    CUmemoryPool pool; /* NULL: not counted */
    int device;
    uint64_t bytes;
    uint64_t asked;
};

static uint64_t round_up(uint64_t bytes, uint64_t step) {
    return bytes > UINT64_MAX - step ? bytes : (bytes + step - 1) / step * step;
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which) {
    cuuint64_t bytes = 0;
    return real.cuMemPoolGetAttribute(pool, which, &bytes) == CUDA_SUCCESS ? bytes : 0;
}

static uint64_t key_of(CUmemoryPool pool) {
    return (uint64_t)(uintptr_t)pool;
}

/* Two threads may meet it at once. */
static void meet_pool(CUmemoryPool pool, int device) {
    struct ledger *ledger = account_lock();
    if (ledger_find(ledger, LEDGER_POOL, key_of(pool)) == NULL)
        ledger_put(ledger, &(struct ledger_entry){.kind = LEDGER_POOL, .key = key_of(pool), .device = device});
    account_unlock();
    __atomic_store_n(&memory_pools_used, true, __ATOMIC_RELAXED);
}

/* The device with which memory of such a pool counts, or -1: with none. */
static int device_at(const CUmemLocation *location, CUmemAllocationType type) {
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        return memory_device_of(location->id);
    if (type != CU_MEM_ALLOCATION_TYPE_MANAGED)
        return -1;
    int device = memory_device();
    return device >= 0 ? device : memory_device_of(0);
}

/* The device whose memory this pool takes, or -1: none. The devices' own pools are entered when they are first met. */
static int device_of(CUmemoryPool pool) {
    struct ledger_entry *entry = ledger_find(account_lock(), LEDGER_POOL, key_of(pool));
    int device = entry == NULL ? -1 : entry->device;
    account_unlock();
    int devices = 0;
    if (device >= 0 || real.cuDeviceGetCount(&devices) != CUDA_SUCCESS)
        return device;
    for (CUdevice i = 0; i < devices; i++) {
        CUmemoryPool own = NULL;
        if (real.cuDeviceGetDefaultMemPool(&own, i) == CUDA_SUCCESS && own == pool) {
            device = devices_of_cuda(i);
            if (device >= 0)
                meet_pool(pool, device);
            return device;
        }
    }
    return -1;
}

/* All growths are multiples of the step: the least power of two that divides each of them is not below it. One that goes
 * beyond that says that we know nothing yet. */
static void learn(uint64_t grown, uint64_t asked) {
    uint64_t divides = grown & -grown;
    if (grown > round_up(asked, step))
        step = STEP;
    else if (divides < step)
        step = divides > PIECE ? divides : PIECE;
}

/*
 * Make the books agree with the pool. `claim` bytes of `promised` are the caller's and come back if they are not needed.
 * With `may_ask`, growth that nobody reserved is reserved now: -ENOMEM if that is refused (it stays uncounted then).
 */
static int settle(CUmemoryPool pool, int device, uint64_t claim, uint64_t asked, bool may_ask) {
    uint64_t back = 0;
    uint64_t missing = 0;
    for (;;) {
        uint32_t before_asking = __atomic_load_n(&settled, __ATOMIC_ACQUIRE);
        uint64_t now = attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        struct ledger *ledger = account_lock();
        if (before_asking != settled) {
            account_unlock();
            continue;
        }
        __atomic_store_n(&settled, settled + 1, __ATOMIC_RELEASE);
        struct ledger_entry *entry = ledger_find(ledger, LEDGER_POOL, key_of(pool));
        uint64_t before = entry == NULL ? 0 : entry->bytes;
        uint64_t grown = entry != NULL && now > before ? now - before : 0;
        if (claim > 0 && grown > 0)
            learn(grown, asked);
        uint64_t paid = grown < promised[device] ? grown : promised[device];
        promised[device] -= paid;
        uint64_t own = claim > paid ? claim - paid : 0;
        own = own < promised[device] ? own : promised[device];
        promised[device] -= own;
        back = own + (entry != NULL && before > now ? before - now : 0);
        missing = may_ask ? grown - paid : 0;
        if (entry != NULL)
            entry->bytes = now < before ? now : before + paid + missing;
        account_unlock();
        break;
    }
    account_return(device, back, true);
    if (missing == 0 || account_reserve(device, missing, false) == 0)
        return 0;
    struct ledger_entry *entry = ledger_find(account_lock(), LEDGER_POOL, key_of(pool));
    if (entry != NULL)
        entry->bytes -= missing < entry->bytes ? missing : entry->bytes;
    account_unlock();
    return -ENOMEM;
}

/* The pools in the ledger, one after another. One may be missed when the ledger grows meanwhile: the next call has it. */
void memory_settle_pools(bool shrink) {
    size_t cursor = 0;
    for (;;) {
        struct ledger *ledger = account_lock();
        struct ledger_entry *entry;
        do
            entry = ledger_next(ledger, &cursor);
        while (entry != NULL && (entry->kind != LEDGER_POOL || entry->refs != 0));
        CUmemoryPool pool = entry == NULL ? NULL : (CUmemoryPool)(uintptr_t)entry->key;
        int device = entry == NULL ? -1 : entry->device;
        account_unlock();
        if (pool == NULL)
            return;
        if (shrink)
            real.cuMemPoolTrimTo(pool, 0);
        settle(pool, device, 0, 0, false);
    }
}

/* What is promised counts from here on; false: the tenant has no such memory. */
static bool claim_bytes(struct claim *claim, uint64_t bytes) {
    if (account_reserve(claim->device, bytes, true) != 0)
        return false;
    account_lock();
    promised[claim->device] += bytes;
    account_unlock();
    claim->bytes = bytes;
    return true;
}

static bool fits_in_free_part(const struct claim *claim) {
    uint64_t reserved = attribute(claim->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    uint64_t used = attribute(claim->pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    return reserved >= used && reserved - used >= claim->asked;
}

/* Before the driver's call. Returns CUDA_ERROR_OUT_OF_MEMORY, or success with a claim for end(). */
static CUresult begin(struct claim *claim, CUmemoryPool pool, size_t bytes) {
    *claim = (struct claim){.device = -1, .asked = bytes};
    if (pool == NULL || bytes == 0 || !memory_is_counted())
        return CUDA_SUCCESS;
    claim->device = device_of(pool);
    if (claim->device < 0)
        return CUDA_SUCCESS;
    claim->pool = pool;
    uint64_t most = round_up(bytes, __atomic_load_n(&step, __ATOMIC_RELAXED));
    uint64_t least = round_up(bytes, PAGE);
    if (claim_bytes(claim, most) || (least < most && claim_bytes(claim, least)))
        return CUDA_SUCCESS;
    if (fits_in_free_part(claim))
        return CUDA_SUCCESS;
    memory_settle_pools(true);
    return claim_bytes(claim, least) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* After it. `free_again` is the driver's cuMemFreeAsync of the same flavour. */
static CUresult end(struct claim *claim, CUresult result, CUdeviceptr *pointer, CUstream stream,
    __typeof__(cuMemFreeAsync) *free_again) {
    if (claim->pool == NULL)
        return result;
    int error = settle(claim->pool, claim->device, claim->bytes, claim->asked, result == CUDA_SUCCESS);
    if (result != CUDA_SUCCESS)
        return result;
    if (error != 0) {
        free_again(*pointer, stream);
        *pointer = 0;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    account_enter(&(struct ledger_entry){.kind = LEDGER_POOLED,
        .key = *pointer,
        .bytes = claim->asked,
        .device = claim->device,
        .link = key_of(claim->pool)});
    return result;
}

/* The pool from which cuMemAllocAsync allocates: that of the stream's device. NULL: nothing is counted. */
static CUmemoryPool pool_in(CUstream stream, const CUdeviceptr *pointer) {
    CUmemoryPool pool = NULL;
    CUdevice device = pointer == NULL ? -1 : memory_device_in(stream);
    if (device < 0 || real.cuDeviceGetMemPool(&pool, device) != CUDA_SUCCESS)
        return NULL;
    return pool;
}

/* See memory_refused(). In a capture the driver would not say no, but make a node. */
static CUresult refuse(
    CUdeviceptr *pointer, CUmemoryPool pool, CUstream stream, __typeof__(cuMemAllocFromPoolAsync) *function) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = real.cuStreamIsCapturing(stream, &status);
    if (result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE)
        return memory_refused(result, false);
    return memory_refused(function(pointer, MEMORY_BEYOND_ANY_CARD, pool, stream), true);
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    struct claim claim;
    CUmemoryPool pool = pool_in(stream_legacy(stream), pointer);
    if (begin(&claim, pool, bytes) != CUDA_SUCCESS)
        return refuse(pointer, pool, stream_legacy(stream), real.cuMemAllocFromPoolAsync);
    return end(&claim, real.cuMemAllocAsync(pointer, bytes, stream), pointer, stream, real.cuMemFreeAsync);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    struct claim claim;
    CUmemoryPool pool = pool_in(stream_per_thread(stream), pointer);
    if (begin(&claim, pool, bytes) != CUDA_SUCCESS)
        return refuse(pointer, pool, stream_per_thread(stream), real.cuMemAllocFromPoolAsync_ptsz);
    return end(&claim, real.cuMemAllocAsync_ptsz(pointer, bytes, stream), pointer, stream, real.cuMemFreeAsync_ptsz);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
    struct claim claim;
    if (begin(&claim, pointer == NULL ? NULL : pool, bytes) != CUDA_SUCCESS)
        return refuse(pointer, pool, stream_legacy(stream), real.cuMemAllocFromPoolAsync);
    CUresult result = real.cuMemAllocFromPoolAsync(pointer, bytes, pool, stream);
    return end(&claim, result, pointer, stream, real.cuMemFreeAsync);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
    struct claim claim;
    if (begin(&claim, pointer == NULL ? NULL : pool, bytes) != CUDA_SUCCESS)
        return refuse(pointer, pool, stream_per_thread(stream), real.cuMemAllocFromPoolAsync_ptsz);
    CUresult result = real.cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream);
    return end(&claim, result, pointer, stream, real.cuMemFreeAsync_ptsz);
}

/* An allocation of an orphan was freed: the pool's bytes go with it. Called with the lock; returns what is free. */
static uint64_t shrink_orphan(struct ledger *ledger, const struct ledger_entry *pooled) {
    struct ledger_entry *pool = ledger_find(ledger, LEDGER_POOL, pooled->link);
    if (pool == NULL || pool->refs == 0)
        return 0;
    struct ledger_entry gone;
    uint64_t freed = pooled->bytes < pool->bytes ? pooled->bytes : pool->bytes;
    pool->bytes -= freed;
    pool->refs--;
    if (pool->refs == 0 && ledger_take(ledger, LEDGER_POOL, pooled->link, &gone))
        freed += gone.bytes;
    return freed;
}

void memory_freed_pooled(const struct ledger_entry *entry) {
    uint64_t freed = shrink_orphan(account_lock(), entry);
    account_unlock();
    account_return(entry->device, freed, false);
}

static CUresult free_async(CUdeviceptr pointer, CUstream stream, __typeof__(cuMemFreeAsync) *function) {
    struct ledger_entry entry;
    memory_freeing(pointer, &entry);
    CUresult result = function(pointer, stream);
    memory_freed(&entry, result);
    return result;
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    return free_async(pointer, stream, real.cuMemFreeAsync);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
    return free_async(pointer, stream, real.cuMemFreeAsync_ptsz);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *pool_props) {
    CUresult result = real.cuMemPoolCreate(pool, pool_props);
    int device = result == CUDA_SUCCESS ? device_at(&pool_props->location, pool_props->allocType) : -1;
    if (device >= 0)
        meet_pool(*pool, device);
    return result;
}

/* The driver's own pools. Those of pinned memory are met when something is allocated from them (device_of). */
static CUresult given(
    CUresult result, const CUmemoryPool *pool, const CUmemLocation *location, CUmemAllocationType type) {
    int device = result == CUDA_SUCCESS && type == CU_MEM_ALLOCATION_TYPE_MANAGED ? device_at(location, type) : -1;
    if (device >= 0)
        meet_pool(*pool, device);
    return result;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type) {
    return given(real.cuMemGetDefaultMemPool(pool_out, location, type), pool_out, location, type);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    return given(real.cuMemGetMemPool(pool, location, type), pool, location, type);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t min_bytes_to_keep) {
    CUresult result = real.cuMemPoolTrimTo(pool, min_bytes_to_keep);
    memory_synchronized();
    return result;
}

/* The allocations of a pool that is being destroyed get a pool of our own to belong to. Under the lock. */
static uint32_t adopt(struct ledger *ledger, uint64_t from, uint64_t to, uint64_t *bytes) {
    uint32_t adopted = 0;
    size_t cursor = 0;
    for (struct ledger_entry *entry; (entry = ledger_next(ledger, &cursor)) != NULL;) {
        if (entry->kind != LEDGER_POOLED || entry->link != from)
            continue;
        entry->link = to;
        *bytes += entry->bytes;
        adopted++;
    }
    return adopted;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    struct ledger_entry entry;
    bool known = account_take(LEDGER_POOL, key_of(pool), &entry);
    CUresult result = real.cuMemPoolDestroy(pool);
    if (!known)
        return result;
    if (result != CUDA_SUCCESS) {
        account_enter(&entry);
        return result;
    }
    struct ledger *ledger = account_lock();
    struct ledger_entry orphan = {.kind = LEDGER_POOL, .key = ++orphans, .device = entry.device};
    orphan.refs = adopt(ledger, entry.key, orphan.key, &orphan.bytes);
    if (orphan.bytes > entry.bytes)
        orphan.bytes = entry.bytes;
    if (orphan.refs > 0)
        ledger_put(ledger, &orphan);
    account_unlock();
    account_return(entry.device, entry.bytes - orphan.bytes, false);
    return result;
}
