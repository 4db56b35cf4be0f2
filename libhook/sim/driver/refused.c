/*
 * What the library must know of and no simulated card has: other machines' memory, graphics, external semaphores, and
 * capturing again into a graph. A card without them answers the same.
 */
#include "libhook/sim/driver/driver.h"

#define REFUSED(name, parameters)                                                                                      \
    CUresult name parameters {                                                                                         \
        return CUDA_ERROR_NOT_SUPPORTED;                                                                               \
    }                                                                                                                  \
    CUresult name##_ptsz parameters {                                                                                  \
        return CUDA_ERROR_NOT_SUPPORTED;                                                                               \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
REFUSED(cuFabricCpyBatchAsync,
    (size_t num_ops, CUDA_FABRIC_COPY_BATCH_OP *op_list, unsigned long long flags, CUstream stream))
REFUSED(cuWaitExternalSemaphoresAsync,
    (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned int count,
        CUstream stream))
REFUSED(cuStreamBeginRecaptureToGraph,
    (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, void *user_data))
REFUSED(cuStreamBeginCaptureToCig, (CUstream stream, CUstreamCigCaptureParams *params))
REFUSED(cuStreamEndCaptureToCig, (CUstream stream))
