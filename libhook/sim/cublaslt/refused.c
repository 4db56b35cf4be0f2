/*
 * What cuBLASLt exports and the stand-in has not: a program that is linked against any of it loads, and is told by name
 * when it calls it. Of CUDA 12 and 13 together.
 */
#include "libhook/sim/compute/compute.h"
#include "libhook/sim/cublas/types.h"

#define REFUSED(name)                                                                                                  \
    EXPORT cublasStatus_t name(void);                                                                                  \
    cublasStatus_t name(void) {                                                                                        \
        static unsigned char said;                                                                                     \
        compute_refuse(#name, &said);                                                                                  \
        return CUBLAS_STATUS_NOT_SUPPORTED;                                                                            \
    }

/* clang-format off */
REFUSED(cublasLtACCMatmul) REFUSED(cublasLtACCMatmulAlgoCapGetAttribute) REFUSED(cublasLtACCMatmulAlgoCheck)
REFUSED(cublasLtACCMatmulAlgoGetHeuristic) REFUSED(cublasLtACCMatmulAlgoGetIds) REFUSED(cublasLtACCMatmulAlgoInit)
REFUSED(cublasLtAlgoCharacteristicGetAttribute) REFUSED(cublasLtBIIMatmul)
REFUSED(cublasLtBIIMatmulAlgoCapGetAttribute) REFUSED(cublasLtBIIMatmulAlgoCheck)
REFUSED(cublasLtBIIMatmulAlgoGetHeuristic) REFUSED(cublasLtBIIMatmulAlgoGetIds) REFUSED(cublasLtBIIMatmulAlgoInit)
REFUSED(cublasLtBSBMatmul) REFUSED(cublasLtBSBMatmulAlgoCapGetAttribute) REFUSED(cublasLtBSBMatmulAlgoCheck)
REFUSED(cublasLtBSBMatmulAlgoGetHeuristic) REFUSED(cublasLtBSBMatmulAlgoGetIds) REFUSED(cublasLtBSBMatmulAlgoInit)
REFUSED(cublasLtBSSMatmul) REFUSED(cublasLtBSSMatmulAlgoCapGetAttribute) REFUSED(cublasLtBSSMatmulAlgoCheck)
REFUSED(cublasLtBSSMatmulAlgoGetHeuristic) REFUSED(cublasLtBSSMatmulAlgoGetIds) REFUSED(cublasLtBSSMatmulAlgoInit)
REFUSED(cublasLtCCCMatmul) REFUSED(cublasLtCCCMatmulAlgoCapGetAttribute) REFUSED(cublasLtCCCMatmulAlgoCheck)
REFUSED(cublasLtCCCMatmulAlgoGetHeuristic) REFUSED(cublasLtCCCMatmulAlgoGetIds) REFUSED(cublasLtCCCMatmulAlgoInit)
REFUSED(cublasLtClearNvjetCache) REFUSED(cublasLtCtxInit) REFUSED(cublasLtDDDMatmul)
REFUSED(cublasLtDDDMatmulAlgoCapGetAttribute) REFUSED(cublasLtDDDMatmulAlgoCheck)
REFUSED(cublasLtDDDMatmulAlgoGetHeuristic) REFUSED(cublasLtDDDMatmulAlgoGetIds) REFUSED(cublasLtDDDMatmulAlgoInit)
REFUSED(cublasLtEmulationDescCreate) REFUSED(cublasLtEmulationDescDestroy) REFUSED(cublasLtEmulationDescGetAttribute)
REFUSED(cublasLtEmulationDescInit_internal) REFUSED(cublasLtEmulationDescSetAttribute)
REFUSED(cublasLtGetEnvironmentMode) REFUSED(cublasLtGroupedMatrixLayoutCreate)
REFUSED(cublasLtGroupedMatrixLayoutInit_internal) REFUSED(cublasLtHHHMatmul)
REFUSED(cublasLtHHHMatmulAlgoCapGetAttribute) REFUSED(cublasLtHHHMatmulAlgoCheck)
REFUSED(cublasLtHHHMatmulAlgoGetHeuristic) REFUSED(cublasLtHHHMatmulAlgoGetIds) REFUSED(cublasLtHHHMatmulAlgoInit)
REFUSED(cublasLtHSHMatmul) REFUSED(cublasLtHSHMatmulAlgoCapGetAttribute) REFUSED(cublasLtHSHMatmulAlgoCheck)
REFUSED(cublasLtHSHMatmulAlgoGetHeuristic) REFUSED(cublasLtHSHMatmulAlgoGetIds) REFUSED(cublasLtHSHMatmulAlgoInit)
REFUSED(cublasLtHSSMatmul) REFUSED(cublasLtHSSMatmulAlgoCapGetAttribute) REFUSED(cublasLtHSSMatmulAlgoCheck)
REFUSED(cublasLtHSSMatmulAlgoGetHeuristic) REFUSED(cublasLtHSSMatmulAlgoGetIds) REFUSED(cublasLtHSSMatmulAlgoInit)
REFUSED(cublasLtHeuristicLutSerializeEntry) REFUSED(cublasLtHeuristicsCacheCreate)
REFUSED(cublasLtHeuristicsCacheDestroy) REFUSED(cublasLtHeuristicsCacheGet)
REFUSED(cublasLtHeuristicsCacheGetCapacity) REFUSED(cublasLtHeuristicsCachePut)
REFUSED(cublasLtHeuristicsCacheSetCapacity) REFUSED(cublasLtKCCMatmul) REFUSED(cublasLtKCCMatmulAlgoCapGetAttribute)
REFUSED(cublasLtKCCMatmulAlgoCheck) REFUSED(cublasLtKCCMatmulAlgoGetHeuristic) REFUSED(cublasLtKCCMatmulAlgoGetIds)
REFUSED(cublasLtKCCMatmulAlgoInit) REFUSED(cublasLtKCKMatmul) REFUSED(cublasLtKCKMatmulAlgoCapGetAttribute)
REFUSED(cublasLtKCKMatmulAlgoCheck) REFUSED(cublasLtKCKMatmulAlgoGetHeuristic) REFUSED(cublasLtKCKMatmulAlgoGetIds)
REFUSED(cublasLtKCKMatmulAlgoInit) REFUSED(cublasLtLegacyGemmACC) REFUSED(cublasLtLegacyGemmBII)
REFUSED(cublasLtLegacyGemmBSS) REFUSED(cublasLtLegacyGemmCCC) REFUSED(cublasLtLegacyGemmDDD)
REFUSED(cublasLtLegacyGemmHHH) REFUSED(cublasLtLegacyGemmHSH) REFUSED(cublasLtLegacyGemmHSS)
REFUSED(cublasLtLegacyGemmSSS) REFUSED(cublasLtLegacyGemmTSS) REFUSED(cublasLtLegacyGemmTST)
REFUSED(cublasLtLegacyGemmUtilizationCCC) REFUSED(cublasLtLegacyGemmUtilizationDDD)
REFUSED(cublasLtLegacyGemmUtilizationZZZ) REFUSED(cublasLtLegacyGemmZZZ) REFUSED(cublasLtLoggerForceDisable)
REFUSED(cublasLtLoggerOpenFile) REFUSED(cublasLtLoggerSetCallback) REFUSED(cublasLtLoggerSetFile)
REFUSED(cublasLtLoggerSetLevel) REFUSED(cublasLtLoggerSetMask) REFUSED(cublasLtMatmulAlgoCapGetAttribute)
REFUSED(cublasLtMatmulAlgoConfigGetAttributeRange) REFUSED(cublasLtMatmulDescInit_internal)
REFUSED(cublasLtMatmulPreferenceInit_internal) REFUSED(cublasLtMatrixLayoutInit_internal)
REFUSED(cublasLtMatrixTransform) REFUSED(cublasLtMatrixTransformDescCreate)
REFUSED(cublasLtMatrixTransformDescDestroy) REFUSED(cublasLtMatrixTransformDescGetAttribute)
REFUSED(cublasLtMatrixTransformDescInit_internal) REFUSED(cublasLtMatrixTransformDescSetAttribute)
REFUSED(cublasLtSSSMatmul) REFUSED(cublasLtSSSMatmulAlgoCapGetAttribute) REFUSED(cublasLtSSSMatmulAlgoCheck)
REFUSED(cublasLtSSSMatmulAlgoGetHeuristic) REFUSED(cublasLtSSSMatmulAlgoGetIds) REFUSED(cublasLtSSSMatmulAlgoInit)
REFUSED(cublasLtSetEnvironmentMode) REFUSED(cublasLtShutdownCtx) REFUSED(cublasLtTSSMatmul)
REFUSED(cublasLtTSSMatmulAlgoCapGetAttribute) REFUSED(cublasLtTSSMatmulAlgoCheck)
REFUSED(cublasLtTSSMatmulAlgoGetHeuristic) REFUSED(cublasLtTSSMatmulAlgoGetIds) REFUSED(cublasLtTSSMatmulAlgoInit)
REFUSED(cublasLtTSTMatmul) REFUSED(cublasLtTSTMatmulAlgoCapGetAttribute) REFUSED(cublasLtTSTMatmulAlgoCheck)
REFUSED(cublasLtTSTMatmulAlgoGetHeuristic) REFUSED(cublasLtTSTMatmulAlgoGetIds) REFUSED(cublasLtTSTMatmulAlgoInit)
REFUSED(cublasLtVCCMatmul) REFUSED(cublasLtVCCMatmulAlgoCapGetAttribute) REFUSED(cublasLtVCCMatmulAlgoCheck)
REFUSED(cublasLtVCCMatmulAlgoGetHeuristic) REFUSED(cublasLtVCCMatmulAlgoGetIds) REFUSED(cublasLtVCCMatmulAlgoInit)
REFUSED(cublasLtVCVMatmul) REFUSED(cublasLtVCVMatmulAlgoCapGetAttribute) REFUSED(cublasLtVCVMatmulAlgoCheck)
REFUSED(cublasLtVCVMatmulAlgoGetHeuristic) REFUSED(cublasLtVCVMatmulAlgoGetIds) REFUSED(cublasLtVCVMatmulAlgoInit)
REFUSED(cublasLtZZZMatmul) REFUSED(cublasLtZZZMatmulAlgoCapGetAttribute) REFUSED(cublasLtZZZMatmulAlgoCheck)
REFUSED(cublasLtZZZMatmulAlgoGetHeuristic) REFUSED(cublasLtZZZMatmulAlgoGetIds) REFUSED(cublasLtZZZMatmulAlgoInit)
REFUSED(cublasLt_for_cublas_BII) REFUSED(cublasLt_for_cublas_BSS) REFUSED(cublasLt_for_cublas_CCC)
REFUSED(cublasLt_for_cublas_DDD) REFUSED(cublasLt_for_cublas_HHH) REFUSED(cublasLt_for_cublas_HSH)
REFUSED(cublasLt_for_cublas_HSS) REFUSED(cublasLt_for_cublas_SSS) REFUSED(cublasLt_for_cublas_TSS)
REFUSED(cublasLt_for_cublas_TST) REFUSED(cublasLt_for_cublas_ZZZ)
    /* clang-format on */
