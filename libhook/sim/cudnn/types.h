/*
 * types.h - the statuses of cuDNN 9 that the stand-in answers.
 */
#ifndef GEMINI_SIM_CUDNN_TYPES_H
#define GEMINI_SIM_CUDNN_TYPES_H

#define CUDNN_STATUSES(X)                                                                                              \
    X(CUDNN_STATUS_SUCCESS, 0)                                                                                         \
    X(CUDNN_STATUS_NOT_INITIALIZED, 1001)                                                                              \
    X(CUDNN_STATUS_BAD_PARAM, 2000)                                                                                    \
    X(CUDNN_STATUS_NOT_SUPPORTED, 3000)                                                                                \
    X(CUDNN_STATUS_INTERNAL_ERROR, 4000)
#define STATUS(name, value) name = value,
typedef enum { CUDNN_STATUSES(STATUS) } cudnnStatus_t;
#undef STATUS

#endif
