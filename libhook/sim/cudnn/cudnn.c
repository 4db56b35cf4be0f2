/*
 * A stand-in for cuDNN as far as frameworks need one to start: handles, streams, versions. XLA compiles nothing without a
 * handle. All that would launch is refused by name (refused.c).
 */
#include <stdlib.h>

#include "libhook/sim/compute/compute.h"
#include "libhook/sim/cudnn/types.h"

enum { VERSION_MAJOR = 9, VERSION_MINOR = 28, VERSION_PATCH = 1 }; /* frameworks refuse one older than theirs */

struct cudnnContext {
    CUstream stream;
};
typedef struct cudnnContext *cudnnHandle_t;

EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t *out);
cudnnStatus_t cudnnCreate(cudnnHandle_t *out) {
    if (!out)
        return CUDNN_STATUS_BAD_PARAM;
    if (!compute_ready())
        return CUDNN_STATUS_NOT_INITIALIZED;
    *out = calloc(1, sizeof(**out));
    return *out ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR;
}

EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, CUstream stream);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, CUstream stream) {
    if (!handle)
        return CUDNN_STATUS_BAD_PARAM;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, CUstream *out);
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, CUstream *out) {
    if (!handle || !out)
        return CUDNN_STATUS_BAD_PARAM;
    *out = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT size_t cudnnGetVersion(void);
size_t cudnnGetVersion(void) {
    return VERSION_MAJOR * 10000 + VERSION_MINOR * 100 + VERSION_PATCH;
}

EXPORT cudnnStatus_t cudnnGetProperty(int what, int *out);
cudnnStatus_t cudnnGetProperty(int what, int *out) {
    static const int parts[] = {VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH};
    if (!out || what < 0 || what > 2)
        return CUDNN_STATUS_BAD_PARAM;
    *out = parts[what];
    return CUDNN_STATUS_SUCCESS;
}

EXPORT const char *cudnnGetErrorString(cudnnStatus_t status);
const char *cudnnGetErrorString(cudnnStatus_t status) {
    switch (status) {
#define NAME(name, value)                                                                                              \
    case name: return #name;
        CUDNN_STATUSES(NAME)
    }
    return "CUDNN_UNKNOWN_STATUS";
}

EXPORT void cudnnGetLastErrorString(char *message, size_t size);
void cudnnGetLastErrorString(char *message, size_t size) {
    if (message && size)
        *message = '\0';
}

/* Parts of the library that are looked at for being of one version: there is one part here. */
#define OF_ONE_VERSION(name)                                                                                           \
    EXPORT cudnnStatus_t name(void);                                                                                   \
    cudnnStatus_t name(void) {                                                                                         \
        return CUDNN_STATUS_SUCCESS;                                                                                   \
    }
OF_ONE_VERSION(cudnnAdvVersionCheck)
OF_ONE_VERSION(cudnnCnnVersionCheck)
OF_ONE_VERSION(cudnnGraphVersionCheck)
OF_ONE_VERSION(cudnnOpsVersionCheck)
