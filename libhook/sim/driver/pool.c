/*
 * Memory pools. `used` is what the program holds, `reserved` what the pool took of the card, in steps of 2 MiB. What
 * is freed stays reserved until a synchronisation finds more than the release threshold unused. A free takes effect
 * when it is called and not in stream order: addresses may be handed out again earlier than on a real card, which no
 * kernel that computes nothing can notice. A pool of managed memory takes it of the card that is its preferred location,
 * else of the card of the context in which it was made.
 */
#include "libhook/sim/driver/pool.h"

#include "libhook/sim/driver/heap.h"

enum { GRAIN = 512 };

/* Where a default pool stands: the devices' own come first, then managed memory of each device, of none, of the host; and
 * pinned memory of the host. */
enum { MANAGED_AT = SIM_DEVICES, NOWHERE_AT = 2 * SIM_DEVICES, MANAGED_HOST_AT, HOST_AT, PLACES };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over the pools' figures; inside driver.lock */
static struct CUmemPoolHandle_st *default_pool[PLACES], *current_pool[PLACES], *graph_pool[SIM_DEVICES];
_Atomic uint32_t pool_count;

/* `device`: whose memory it takes, unless it is the host's. */
static struct CUmemPoolHandle_st *make_by(const CUmemPoolProps *props, CUdevice device) {
    struct CUmemPoolHandle_st *pool = slab_take(SLAB_POOL, sizeof(*pool));
    if (!pool)
        return NULL;
    pool->managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    pool->host = !pool->managed && props->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    pool->device = device;
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    pool->access = 1u << (device & 31);
    pool->props = *props;
    atomic_fetch_add(&pool_count, 1);
    return pool;
}

static struct CUmemPoolHandle_st *make(CUdevice device) {
    return make_by(&(CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}},
        device);
}

/* -1: such pools there are none. */
static int place_of(const CUmemLocation *location, CUmemAllocationType type) {
    bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    if (!managed && type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return -1;
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_INVALID: return managed ? NOWHERE_AT : -1;
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return !device_exists(location->id) ? -1 : managed ? MANAGED_AT + location->id : location->id;
    default: return managed ? MANAGED_HOST_AT : HOST_AT;
    }
}

static CUdevice device_of(const CUmemLocation *location) {
    struct CUctx_st *ctx;
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        return location->id;
    return context_current(&ctx) == CUDA_SUCCESS ? ctx->device : 0;
}

CUresult pool_default(CUdevice device, struct CUmemPoolHandle_st **out) {
    pthread_mutex_lock(&lock);
    if (!default_pool[device])
        default_pool[device] = make(device);
    *out = default_pool[device];
    pthread_mutex_unlock(&lock);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult pool_of_graphs(CUdevice device, struct CUmemPoolHandle_st **out) {
    pthread_mutex_lock(&lock);
    if (!graph_pool[device] && (graph_pool[device] = make(device)))
        graph_pool[device]->threshold = UINT64_MAX; /* given back by cuDeviceGraphMemTrim only */
    *out = graph_pool[device];
    pthread_mutex_unlock(&lock);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void pool_forget_all(void) {
    pthread_mutex_init(&lock, NULL);
    memset(default_pool, 0, sizeof(default_pool));
    memset(current_pool, 0, sizeof(current_pool));
    memset(graph_pool, 0, sizeof(graph_pool));
    pool_count = 0;
}

/* With the lock held. */
static void trim(struct CUmemPoolHandle_st *pool, uint64_t keep) {
    uint64_t need = (pool->used + POOL_STEP - 1) / POOL_STEP * POOL_STEP;
    uint64_t target = need > keep ? need : keep;
    if (pool->reserved <= target)
        return;
    target = (target + POOL_STEP - 1) / POOL_STEP *
             POOL_STEP; /* below what is reserved, so it cannot overflow; never above it */
    if (!pool->host)
        card_give(pool->device, pool->reserved - target);
    pool->reserved = target;
}

void pool_trim_all_slow(void) {
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < slab_used(SLAB_POOL); i++) {
        struct CUmemPoolHandle_st *pool = slab_at(SLAB_POOL, i);
        if (pool)
            trim(pool, pool->threshold);
    }
    pthread_mutex_unlock(&lock);
}

CUresult pool_take(struct CUmemPoolHandle_st *pool, struct CUctx_st *ctx, size_t bytes, CUdeviceptr *out) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    NEED(bytes < 1ull << 46, result); /* beyond any card, and beyond what can be rounded up */
    uint64_t room = ((uint64_t)bytes + GRAIN - 1) / GRAIN * GRAIN;
    pthread_mutex_lock(&lock);
    uint64_t need = pool->used + room;
    uint64_t more = need > pool->reserved ? (need - pool->reserved + POOL_STEP - 1) / POOL_STEP * POOL_STEP : 0;
    if (pool->props.maxSize && need > pool->props.maxSize)
        goto out;
    if (more && !pool->host && card_take(pool->device, more))
        goto out;
    pool->reserved += more;
    *out = heap_take(&(struct block){.bytes = bytes,
                         .kind = pool->host ? BLOCK_HOST : BLOCK_POOLED,
                         .managed = pool->managed,
                         .device = pool->device,
                         .id = atomic_fetch_add(&driver.next_id, 1) + 1,
                         .ctx = ctx,
                         .of = pool},
        GRAIN);
    if (!*out)
        goto out;
    pool->used = need;
    pool->used_high = need > pool->used_high ? need : pool->used_high;
    pool->reserved_high = pool->reserved > pool->reserved_high ? pool->reserved : pool->reserved_high;
    result = CUDA_SUCCESS;
out:
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult pool_give(CUdeviceptr pointer) {
    struct block block;
    NEED(heap_find(pointer, &block) && block.address == pointer, CUDA_ERROR_INVALID_VALUE);
    if (block.kind != BLOCK_POOLED || !slab_has(SLAB_POOL, block.of))
        return cuMemFree_v2(pointer); /* memory of cuMemAlloc may be freed in stream order, too */
    struct CUmemPoolHandle_st *pool = block.of;
    if (block.nodes) { /* its graph keeps the address, for the next launch */
        pool_ran(pointer, false);
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&lock);
    heap_give(pointer, &block);
    pool->used -= block.room < pool->used ? block.room : pool->used;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static bool of_graph(CUdeviceptr pointer, struct block *block) {
    return heap_find(pointer, block) && block->address == pointer && block->kind == BLOCK_POOLED &&
           block->of == graph_pool[block->device];
}

void pool_node(CUdeviceptr pointer) {
    struct block block;
    if (!of_graph(pointer, &block))
        return;
    block.nodes++;
    heap_update(pointer, &block);
}

void pool_end_of_node(CUdeviceptr pointer) {
    struct block block;
    if (!of_graph(pointer, &block) || !block.nodes)
        return;
    block.nodes--;
    heap_update(pointer, &block);
    if (!block.nodes && !block.live)
        pool_give(pointer);
}

void pool_ran(CUdeviceptr pointer, bool live) {
    struct block block;
    if (!of_graph(pointer, &block))
        return;
    block.live = live;
    heap_update(pointer, &block);
}

CUresult pool_of(CUmemoryPool handle, struct CUmemPoolHandle_st **out) {
    INIT();
    NEED(slab_has(SLAB_POOL, handle), CUDA_ERROR_INVALID_VALUE);
    *out = handle;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    INIT();
    NEED(pool, CUDA_ERROR_INVALID_VALUE);
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    return pool_default(device, pool);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    TRY(cuDeviceGetDefaultMemPool(pool, device));
    if (slab_has(SLAB_POOL, current_pool[device]))
        *pool = current_pool[device];
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
    struct CUmemPoolHandle_st *pool;
    INIT();
    NEED(device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    TRY(pool_of(handle, &pool));
    NEED(pool->device == device && !pool->host && !pool->managed, CUDA_ERROR_INVALID_DEVICE);
    current_pool[device] = pool;
    return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type) {
    INIT();
    NEED(out && location, CUDA_ERROR_INVALID_VALUE);
    int place = place_of(location, type);
    NEED(place >= 0, CUDA_ERROR_INVALID_VALUE);
    CUdevice device = device_of(location);
    pthread_mutex_lock(&lock);
    if (!default_pool[place])
        default_pool[place] = make_by(&(CUmemPoolProps){.allocType = type, .location = *location}, device);
    *out = default_pool[place];
    pthread_mutex_unlock(&lock);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    TRY(cuMemGetDefaultMemPool(pool, location, type));
    struct CUmemPoolHandle_st *current = current_pool[place_of(location, type)];
    if (slab_has(SLAB_POOL, current))
        *pool = current;
    return CUDA_SUCCESS;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool handle) {
    struct CUmemPoolHandle_st *pool;
    INIT();
    NEED(location, CUDA_ERROR_INVALID_VALUE);
    TRY(pool_of(handle, &pool));
    int place = place_of(location, type);
    NEED(place >= 0 && place == place_of(&pool->props.location, pool->props.allocType), CUDA_ERROR_INVALID_VALUE);
    current_pool[place] = pool;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props) {
    INIT();
    NEED(out && props && place_of(&props->location, props->allocType) >= 0, CUDA_ERROR_INVALID_VALUE);
    NEED(props->allocType != CU_MEM_ALLOCATION_TYPE_MANAGED || (!props->maxSize && !props->handleTypes),
        CUDA_ERROR_INVALID_VALUE);
    CUdevice device = device_of(&props->location);
    pthread_mutex_lock(&lock);
    *out = make_by(props, device);
    pthread_mutex_unlock(&lock);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool is_default(const struct CUmemPoolHandle_st *pool) {
    for (int place = 0; place < PLACES; place++)
        if (default_pool[place] == pool)
            return true;
    return false;
}

CUresult pool_end(struct CUmemPoolHandle_st *pool) {
    struct block block;
    NEED(!is_default(pool), CUDA_ERROR_INVALID_VALUE);
    for (uint64_t at = 0; heap_next(at, &block); at = block.address + 1)
        if (block.of == pool)
            heap_give(block.address, &block);
    pthread_mutex_lock(&lock);
    pool->used = 0;
    trim(pool, 0);
    slab_give(SLAB_POOL, pool);
    atomic_fetch_sub(&pool_count, 1);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes) {
    struct CUmemPoolHandle_st *pool;
    TRY(pool_of(handle, &pool));
    pthread_mutex_lock(&lock);
    trim(pool, bytes);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* With the lock held. */
static CUresult set_attribute(struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute, void *value) {
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attribute - 1] = *(int *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: pool->threshold = *(uint64_t *)value; return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        NEED(*(uint64_t *)value == 0, CUDA_ERROR_INVALID_VALUE);
        pool->reserved_high = pool->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        NEED(*(uint64_t *)value == 0, CUDA_ERROR_INVALID_VALUE);
        pool->used_high = pool->used;
        return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    struct CUmemPoolHandle_st *pool;
    NEED(value, CUDA_ERROR_INVALID_VALUE);
    TRY(pool_of(handle, &pool));
    pthread_mutex_lock(&lock);
    CUresult result = set_attribute(pool, attribute, value);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    struct CUmemPoolHandle_st *pool;
    NEED(value, CUDA_ERROR_INVALID_VALUE);
    TRY(pool_of(handle, &pool));
    NEED(attribute >= 1 && attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&lock);
    const uint64_t figures[] = {pool->threshold, pool->reserved, pool->reserved_high, pool->used, pool->used_high};
    if (attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        *(int *)value = pool->reuse[attribute - 1];
    else
        *(uint64_t *)value = figures[attribute - CU_MEMPOOL_ATTR_RELEASE_THRESHOLD];
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count) {
    struct CUmemPoolHandle_st *pool;
    NEED(map || !count, CUDA_ERROR_INVALID_VALUE);
    TRY(pool_of(handle, &pool));
    for (size_t i = 0; i < count; i++) {
        NEED(map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && device_exists(map[i].location.id),
            CUDA_ERROR_INVALID_DEVICE);
        NEED(map[i].location.id != pool->device || map[i].flags, CUDA_ERROR_INVALID_DEVICE);
        uint32_t bit = 1u << map[i].location.id;
        pool->access = map[i].flags ? pool->access | bit : pool->access & ~bit;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location) {
    struct CUmemPoolHandle_st *pool;
    NEED(flags && location, CUDA_ERROR_INVALID_VALUE);
    TRY(pool_of(handle, &pool));
    NEED(device_exists(location->id), CUDA_ERROR_INVALID_DEVICE);
    *flags = pool->access & 1u << location->id ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
