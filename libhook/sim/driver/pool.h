/* pool.h - stream-ordered memory pools. */
#ifndef GEMINI_SIM_POOL_H
#define GEMINI_SIM_POOL_H

#include "libhook/sim/driver/driver.h"

enum { POOL_STEP = 2 << 20 }; /* how much a pool takes of its card at a time */

struct CUmemPoolHandle_st {
    struct slab_head head;
    CUdevice device;
    bool host; /* memory of the host: nothing of the card */
    bool managed;
    CUmemPoolProps props;
    uint64_t threshold, reserved, reserved_high, used, used_high;
    int reuse[3];
    uint32_t access; /* bit per device */
};

/* Give unused memory above each pool's release threshold back to the card, as happens when a program synchronises. */
void pool_trim_all_slow(void);
extern _Atomic uint32_t pool_count;
static inline void pool_trim_all(void) {
    if (atomic_load_explicit(&pool_count, memory_order_relaxed))
        pool_trim_all_slow();
}

CUresult pool_of(CUmemoryPool handle, struct CUmemPoolHandle_st **out);
/* What is still held in it goes with its free, as documented. Not the default pool. */
CUresult pool_end(struct CUmemPoolHandle_st *pool);

/* Memory from the pool, at once; and back. */
CUresult pool_take(struct CUmemPoolHandle_st *pool, struct CUctx_st *ctx, size_t bytes, CUdeviceptr *out);
CUresult pool_give(CUdeviceptr pointer);
CUresult pool_default(CUdevice device, struct CUmemPoolHandle_st **out);
/* What allocation nodes of graphs take from: no program sees it but by cuDeviceGetGraphMemAttribute. */
CUresult pool_of_graphs(CUdevice device, struct CUmemPoolHandle_st **out);
/* One more allocation node, or executable graph's copy of one, has this address; and one fewer. The memory goes with the
 * last of them and the program's own free, whichever is later. */
void pool_node(CUdeviceptr pointer);
void pool_end_of_node(CUdeviceptr pointer);
/* A launch ran the address's allocation node (live) or its free node. */
void pool_ran(CUdeviceptr pointer, bool live);

void pool_forget_all(void);

#endif
