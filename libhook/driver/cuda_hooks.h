/*
 * cuda_hooks.h - THE table: every driver function we know, once. No include guard: include it with the macros you need.
 *
 *     HOOK(symbol, name, since, flavour, class)    the library puts its own function in the place of the driver's
 *     PASS(symbol, name, since, flavour, reason)   known, declared in cuda_abi.h, left alone, and why
 *     KNOWN(symbol, name, since, flavour, reason)  known by name only (no prototype, not in the simulated driver)
 *
 * symbol  what libcuda exports.
 * name    what a program asks of cuGetProcAddress; since: the CUDA version with which this symbol's ABI answers to it.
 *         The right row is the newest whose `since` is not above the version asked for.
 * flavour LEGACY and PER_THREAD rows differ by the meaning of stream 0 (flag 0x2 asks for PER_THREAD); ANY has one only.
 * class   GATED    starts GPU work: runs with the token only. Copies whose direction stands in their arguments are here.
 *         BILLED   copies between host and device: own engines, metered, never gated.
 *         COUNTED  takes or gives back device memory.
 *         VIRTUAL  answers with the tenant's own figures.
 *         WATCHED  passes through, seen on the way: contexts, synchronisation, captures, the end of handles, resolution.
 *
 * To hook one more function: make its row a HOOK with its class; the link fails until the library defines it.
 * Names, versions and variants are those of CUDA's public headers, 13.0 (rows) and 13.5 (names newer than 13.0).
 */
/* One row, one line. */
/* clang-format off */
#ifndef HOOK
#define HOOK(symbol, name, since, flavour, class_)
#endif
#ifndef PASS
#define PASS(symbol, name, since, flavour, reason)
#endif
#ifndef KNOWN
#define KNOWN(symbol, name, since, flavour, reason)
#endif

/* Initialisation and resolution. */
PASS(cuDriverGetVersion, "cuDriverGetVersion", 2020, ANY, "a constant answer")
PASS(cuGetErrorName, "cuGetErrorName", 6000, ANY, "a constant answer")
PASS(cuGetErrorString, "cuGetErrorString", 6000, ANY, "a constant answer")
PASS(cuGetExportTable, "cuGetExportTable", 3000, ANY, "private tables of NVIDIA's own libraries")
HOOK(cuGetProcAddress, "cuGetProcAddress", 11030, ANY, WATCHED)
HOOK(cuGetProcAddress_v2, "cuGetProcAddress", 12000, ANY, WATCHED)
HOOK(cuInit, "cuInit", 2000, ANY, WATCHED)

/* Devices. */
PASS(cuCtxDisablePeerAccess, "cuCtxDisablePeerAccess", 4000, ANY, "opens a way; copies over it are gated")
PASS(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess", 4000, ANY, "opens a way; copies over it are gated")
PASS(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", 4000, ANY, "no memory figure in it")
PASS(cuDeviceComputeCapability, "cuDeviceComputeCapability", 2000, ANY, "no memory figure in it")
PASS(cuDeviceGet, "cuDeviceGet", 2000, ANY, "no memory figure in it")
PASS(cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000, ANY, "no memory figure in it")
PASS(cuDeviceGetByPCIBusId, "cuDeviceGetByPCIBusId", 4010, ANY, "no memory figure in it")
PASS(cuDeviceGetCount, "cuDeviceGetCount", 2000, ANY, "no memory figure in it")
PASS(cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", 11020, ANY, "a pool; what comes from it is counted")
PASS(cuDeviceGetGraphMemAttribute, "cuDeviceGetGraphMemAttribute", 11040, ANY, "figures of this process only")
PASS(cuDeviceGetMemPool, "cuDeviceGetMemPool", 11020, ANY, "a pool; what comes from it is counted")
PASS(cuDeviceGetName, "cuDeviceGetName", 2000, ANY, "no memory figure in it")
PASS(cuDeviceGetP2PAttribute, "cuDeviceGetP2PAttribute", 8000, ANY, "no memory figure in it")
PASS(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", 4010, ANY, "no memory figure in it")
PASS(cuDeviceGetProperties, "cuDeviceGetProperties", 2000, ANY, "no memory figure in it")
PASS(cuDeviceGetUuid, "cuDeviceGetUuid", 9020, ANY, "no memory figure in it")
PASS(cuDeviceGetUuid_v2, "cuDeviceGetUuid", 11040, ANY, "no memory figure in it")
HOOK(cuDeviceGraphMemTrim, "cuDeviceGraphMemTrim", 11040, ANY, COUNTED)
PASS(cuDeviceSetGraphMemAttribute, "cuDeviceSetGraphMemAttribute", 11040, ANY, "figures of this process only")
PASS(cuDeviceSetMemPool, "cuDeviceSetMemPool", 11020, ANY, "a pool; what comes from it is counted")
HOOK(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, ANY, VIRTUAL)

/* Contexts. */
HOOK(cuCtxAttach, "cuCtxAttach", 2000, ANY, WATCHED)
HOOK(cuCtxCreate, "cuCtxCreate", 2000, ANY, WATCHED)
HOOK(cuCtxCreate_v2, "cuCtxCreate", 3020, ANY, WATCHED)
HOOK(cuCtxCreate_v3, "cuCtxCreate", 11040, ANY, WATCHED)
HOOK(cuCtxCreate_v4, "cuCtxCreate", 12050, ANY, WATCHED)
HOOK(cuCtxDestroy, "cuCtxDestroy", 2000, ANY, WATCHED)
HOOK(cuCtxDestroy_v2, "cuCtxDestroy", 4000, ANY, WATCHED)
HOOK(cuCtxDetach, "cuCtxDetach", 2000, ANY, WATCHED)
PASS(cuCtxGetApiVersion, "cuCtxGetApiVersion", 3020, ANY, "a property")
PASS(cuCtxGetCacheConfig, "cuCtxGetCacheConfig", 3020, ANY, "a property")
PASS(cuCtxGetCurrent, "cuCtxGetCurrent", 4000, ANY, "a property")
PASS(cuCtxGetDevice, "cuCtxGetDevice", 2000, ANY, "a property")
PASS(cuCtxGetDevice_v2, "cuCtxGetDevice", 13000, ANY, "a property")
PASS(cuCtxGetFlags, "cuCtxGetFlags", 7000, ANY, "a property")
PASS(cuCtxGetId, "cuCtxGetId", 12000, ANY, "a property")
PASS(cuCtxGetLimit, "cuCtxGetLimit", 3010, ANY, "a property")
PASS(cuCtxGetSharedMemConfig, "cuCtxGetSharedMemConfig", 4020, ANY, "a property")
PASS(cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", 5050, ANY, "a property")
HOOK(cuCtxPopCurrent, "cuCtxPopCurrent", 2000, ANY, WATCHED)
HOOK(cuCtxPopCurrent_v2, "cuCtxPopCurrent", 4000, ANY, WATCHED)
HOOK(cuCtxPushCurrent, "cuCtxPushCurrent", 2000, ANY, WATCHED)
HOOK(cuCtxPushCurrent_v2, "cuCtxPushCurrent", 4000, ANY, WATCHED)
PASS(cuCtxResetPersistingL2Cache, "cuCtxResetPersistingL2Cache", 11000, ANY, "a property")
PASS(cuCtxSetCacheConfig, "cuCtxSetCacheConfig", 3020, ANY, "a property")
HOOK(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, ANY, WATCHED)
PASS(cuCtxSetFlags, "cuCtxSetFlags", 12010, ANY, "a property")
HOOK(cuCtxSetLimit, "cuCtxSetLimit", 3010, ANY, COUNTED)
PASS(cuCtxSetSharedMemConfig, "cuCtxSetSharedMemConfig", 4020, ANY, "a property")
HOOK(cuCtxSynchronize, "cuCtxSynchronize", 2000, ANY, WATCHED)
HOOK(cuCtxSynchronize_v2, "cuCtxSynchronize", 13000, ANY, WATCHED)
PASS(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", 7000, ANY, "reads or sets flags; makes no context")
HOOK(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, ANY, WATCHED)
HOOK(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, ANY, WATCHED)
HOOK(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, ANY, WATCHED)
HOOK(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, ANY, WATCHED)
HOOK(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, ANY, WATCHED)
PASS(cuDevicePrimaryCtxSetFlags, "cuDevicePrimaryCtxSetFlags", 7000, ANY, "reads or sets flags; makes no context")
PASS(cuDevicePrimaryCtxSetFlags_v2, "cuDevicePrimaryCtxSetFlags", 11000, ANY, "reads or sets flags; makes no context")

/* Green contexts. */
PASS(cuCtxFromGreenCtx, "cuCtxFromGreenCtx", 12040, ANY, "parts of a device, described; work in them is gated as any")
PASS(cuDevResourceGenerateDesc, "cuDevResourceGenerateDesc", 12040, ANY, "parts of a device, described; work in them is gated as any")
PASS(cuDevSmResourceSplitByCount, "cuDevSmResourceSplitByCount", 12040, ANY, "parts of a device, described; work in them is gated as any")
PASS(cuDeviceGetDevResource, "cuDeviceGetDevResource", 12040, ANY, "parts of a device, described; work in them is gated as any")
HOOK(cuGreenCtxCreate, "cuGreenCtxCreate", 12040, ANY, COUNTED)
HOOK(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040, ANY, WATCHED)
PASS(cuGreenCtxGetDevResource, "cuGreenCtxGetDevResource", 12040, ANY, "parts of a device, described; work in them is gated as any")
PASS(cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate", 12050, ANY, "parts of a device, described; work in them is gated as any")

/* Modules, libraries, kernels, functions. */
PASS(cuFuncGetAttribute, "cuFuncGetAttribute", 2020, ANY, "no work, no memory")
PASS(cuFuncGetModule, "cuFuncGetModule", 11000, ANY, "no work, no memory")
PASS(cuFuncGetName, "cuFuncGetName", 12030, ANY, "no work, no memory")
PASS(cuFuncGetParamInfo, "cuFuncGetParamInfo", 12040, ANY, "no work, no memory")
PASS(cuFuncIsLoaded, "cuFuncIsLoaded", 12040, ANY, "no work, no memory")
PASS(cuFuncLoad, "cuFuncLoad", 12040, ANY, "no work, no memory")
PASS(cuFuncSetAttribute, "cuFuncSetAttribute", 9000, ANY, "no work, no memory")
PASS(cuFuncSetCacheConfig, "cuFuncSetCacheConfig", 3000, ANY, "no work, no memory")
PASS(cuFuncSetSharedMemConfig, "cuFuncSetSharedMemConfig", 4020, ANY, "no work, no memory")
PASS(cuKernelGetAttribute, "cuKernelGetAttribute", 12000, ANY, "no work, no memory")
HOOK(cuKernelGetFunction, "cuKernelGetFunction", 12000, ANY, WATCHED)
PASS(cuKernelGetLibrary, "cuKernelGetLibrary", 12050, ANY, "no work, no memory")
PASS(cuKernelGetName, "cuKernelGetName", 12030, ANY, "no work, no memory")
PASS(cuKernelGetParamInfo, "cuKernelGetParamInfo", 12040, ANY, "no work, no memory")
PASS(cuKernelSetAttribute, "cuKernelSetAttribute", 12000, ANY, "no work, no memory")
PASS(cuKernelSetCacheConfig, "cuKernelSetCacheConfig", 12000, ANY, "no work, no memory")
HOOK(cuLibraryEnumerateKernels, "cuLibraryEnumerateKernels", 12040, ANY, WATCHED)
PASS(cuLibraryGetGlobal, "cuLibraryGetGlobal", 12000, ANY, "no work, no memory")
HOOK(cuLibraryGetKernel, "cuLibraryGetKernel", 12000, ANY, WATCHED)
PASS(cuLibraryGetKernelCount, "cuLibraryGetKernelCount", 12040, ANY, "no work, no memory")
PASS(cuLibraryGetManaged, "cuLibraryGetManaged", 12000, ANY, "no work, no memory")
PASS(cuLibraryGetModule, "cuLibraryGetModule", 12000, ANY, "no work, no memory")
PASS(cuLibraryGetUnifiedFunction, "cuLibraryGetUnifiedFunction", 12000, ANY, "no work, no memory")
PASS(cuLibraryLoadData, "cuLibraryLoadData", 12000, ANY, "its memory is not counted: docs/guarantees.md")
PASS(cuLibraryLoadFromFile, "cuLibraryLoadFromFile", 12000, ANY, "its memory is not counted: docs/guarantees.md")
HOOK(cuLibraryUnload, "cuLibraryUnload", 12000, ANY, WATCHED)
HOOK(cuModuleEnumerateFunctions, "cuModuleEnumerateFunctions", 12040, ANY, WATCHED)
HOOK(cuModuleGetFunction, "cuModuleGetFunction", 2000, ANY, WATCHED)
PASS(cuModuleGetFunctionCount, "cuModuleGetFunctionCount", 12040, ANY, "no work, no memory")
PASS(cuModuleGetGlobal_v2, "cuModuleGetGlobal", 3020, ANY, "no work, no memory")
PASS(cuModuleGetLoadingMode, "cuModuleGetLoadingMode", 11070, ANY, "no work, no memory")
PASS(cuModuleLoad, "cuModuleLoad", 2000, ANY, "its memory is not counted: docs/guarantees.md")
PASS(cuModuleLoadData, "cuModuleLoadData", 2000, ANY, "its memory is not counted: docs/guarantees.md")
PASS(cuModuleLoadDataEx, "cuModuleLoadDataEx", 2010, ANY, "its memory is not counted: docs/guarantees.md")
PASS(cuModuleLoadFatBinary, "cuModuleLoadFatBinary", 2000, ANY, "its memory is not counted: docs/guarantees.md")
HOOK(cuModuleUnload, "cuModuleUnload", 2000, ANY, WATCHED)
PASS(cuOccupancyAvailableDynamicSMemPerBlock, "cuOccupancyAvailableDynamicSMemPerBlock", 10020, ANY, "host arithmetic")
PASS(cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050, ANY,
    "host arithmetic")
PASS(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", 7000,
    ANY, "host arithmetic")
PASS(cuOccupancyMaxActiveClusters, "cuOccupancyMaxActiveClusters", 11070, ANY, "host arithmetic")
PASS(cuOccupancyMaxPotentialBlockSize, "cuOccupancyMaxPotentialBlockSize", 6050, ANY, "host arithmetic")
PASS(cuOccupancyMaxPotentialBlockSizeWithFlags, "cuOccupancyMaxPotentialBlockSizeWithFlags", 7000, ANY,
    "host arithmetic")
PASS(cuOccupancyMaxPotentialClusterSize, "cuOccupancyMaxPotentialClusterSize", 11070, ANY, "host arithmetic")

/* Launches. */
HOOK(cuLaunch, "cuLaunch", 2000, ANY, GATED)
HOOK(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", 9000, LEGACY, GATED)
HOOK(cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", 9000, PER_THREAD, GATED)
HOOK(cuLaunchCooperativeKernelMultiDevice, "cuLaunchCooperativeKernelMultiDevice", 9000, ANY, GATED)
HOOK(cuLaunchGrid, "cuLaunchGrid", 2000, ANY, GATED)
HOOK(cuLaunchGridAsync, "cuLaunchGridAsync", 2000, ANY, GATED)
HOOK(cuLaunchHostFunc, "cuLaunchHostFunc", 10000, LEGACY, WATCHED)
HOOK(cuLaunchHostFunc_ptsz, "cuLaunchHostFunc", 10000, PER_THREAD, WATCHED)
HOOK(cuLaunchHostFunc_v2, "cuLaunchHostFunc", 13010, LEGACY, WATCHED)
HOOK(cuLaunchHostFunc_v2_ptsz, "cuLaunchHostFunc", 13010, PER_THREAD, WATCHED)
HOOK(cuLaunchKernel, "cuLaunchKernel", 4000, LEGACY, GATED)
HOOK(cuLaunchKernel_ptsz, "cuLaunchKernel", 7000, PER_THREAD, GATED)
HOOK(cuLaunchKernelEx, "cuLaunchKernelEx", 11060, LEGACY, GATED)
HOOK(cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", 11060, PER_THREAD, GATED)
HOOK(cuStreamAddCallback, "cuStreamAddCallback", 5000, LEGACY, WATCHED)
HOOK(cuStreamAddCallback_ptsz, "cuStreamAddCallback", 7000, PER_THREAD, WATCHED)

/* Streams and events. */
PASS(cuEventCreate, "cuEventCreate", 2000, ANY, "a mark: no GPU time")
PASS(cuEventDestroy, "cuEventDestroy", 2000, ANY, "a mark: no GPU time")
PASS(cuEventDestroy_v2, "cuEventDestroy", 4000, ANY, "a mark: no GPU time")
PASS(cuEventElapsedTime, "cuEventElapsedTime", 2000, ANY, "a mark: no GPU time")
PASS(cuEventElapsedTime_v2, "cuEventElapsedTime", 12080, ANY, "a mark: no GPU time")
HOOK(cuEventQuery, "cuEventQuery", 2000, ANY, WATCHED)
PASS(cuEventRecord, "cuEventRecord", 2000, LEGACY, "a mark: no GPU time")
PASS(cuEventRecord_ptsz, "cuEventRecord", 7000, PER_THREAD, "a mark: no GPU time")
PASS(cuEventRecordWithFlags, "cuEventRecordWithFlags", 11010, LEGACY, "a mark: no GPU time")
PASS(cuEventRecordWithFlags_ptsz, "cuEventRecordWithFlags", 11010, PER_THREAD, "a mark: no GPU time")
HOOK(cuEventSynchronize, "cuEventSynchronize", 2000, ANY, WATCHED)
PASS(cuStreamAttachMemAsync, "cuStreamAttachMemAsync", 6000, LEGACY, "no GPU time")
PASS(cuStreamAttachMemAsync_ptsz, "cuStreamAttachMemAsync", 7000, PER_THREAD, "no GPU time")
PASS(cuStreamCopyAttributes, "cuStreamCopyAttributes", 11000, LEGACY, "a property")
PASS(cuStreamCopyAttributes_ptsz, "cuStreamCopyAttributes", 11000, PER_THREAD, "a property")
PASS(cuStreamCreate, "cuStreamCreate", 2000, ANY, "seen at its first launch")
PASS(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", 5050, ANY, "seen at its first launch")
HOOK(cuStreamDestroy, "cuStreamDestroy", 2000, ANY, WATCHED)
HOOK(cuStreamDestroy_v2, "cuStreamDestroy", 4000, ANY, WATCHED)
PASS(cuStreamGetAttribute, "cuStreamGetAttribute", 11000, LEGACY, "a property")
PASS(cuStreamGetAttribute_ptsz, "cuStreamGetAttribute", 11000, PER_THREAD, "a property")
PASS(cuStreamGetCtx, "cuStreamGetCtx", 9020, LEGACY, "a property")
PASS(cuStreamGetCtx_v2, "cuStreamGetCtx", 12050, LEGACY, "a property")
PASS(cuStreamGetCtx_ptsz, "cuStreamGetCtx", 9020, PER_THREAD, "a property")
PASS(cuStreamGetCtx_v2_ptsz, "cuStreamGetCtx", 12050, PER_THREAD, "a property")
PASS(cuStreamGetFlags, "cuStreamGetFlags", 5050, LEGACY, "a property")
PASS(cuStreamGetFlags_ptsz, "cuStreamGetFlags", 7000, PER_THREAD, "a property")
PASS(cuStreamGetId, "cuStreamGetId", 12000, LEGACY, "a property")
PASS(cuStreamGetId_ptsz, "cuStreamGetId", 12000, PER_THREAD, "a property")
PASS(cuStreamGetPriority, "cuStreamGetPriority", 5050, LEGACY, "a property")
PASS(cuStreamGetPriority_ptsz, "cuStreamGetPriority", 7000, PER_THREAD, "a property")
HOOK(cuStreamQuery, "cuStreamQuery", 2000, LEGACY, WATCHED)
HOOK(cuStreamQuery_ptsz, "cuStreamQuery", 7000, PER_THREAD, WATCHED)
PASS(cuStreamSetAttribute, "cuStreamSetAttribute", 11000, LEGACY, "a property")
PASS(cuStreamSetAttribute_ptsz, "cuStreamSetAttribute", 11000, PER_THREAD, "a property")
HOOK(cuStreamSynchronize, "cuStreamSynchronize", 2000, LEGACY, WATCHED)
HOOK(cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000, PER_THREAD, WATCHED)
HOOK(cuStreamWaitEvent, "cuStreamWaitEvent", 3020, LEGACY, WATCHED)
HOOK(cuStreamWaitEvent_ptsz, "cuStreamWaitEvent", 7000, PER_THREAD, WATCHED)

/* Stream memory operations. */
HOOK(cuStreamBatchMemOp, "cuStreamBatchMemOp", 8000, LEGACY, WATCHED)
HOOK(cuStreamBatchMemOp_v2, "cuStreamBatchMemOp", 11070, LEGACY, WATCHED)
HOOK(cuStreamBatchMemOp_ptsz, "cuStreamBatchMemOp", 8000, PER_THREAD, WATCHED)
HOOK(cuStreamBatchMemOp_v2_ptsz, "cuStreamBatchMemOp", 11070, PER_THREAD, WATCHED)
HOOK(cuStreamWaitValue32, "cuStreamWaitValue32", 8000, LEGACY, WATCHED)
HOOK(cuStreamWaitValue32_v2, "cuStreamWaitValue32", 11070, LEGACY, WATCHED)
HOOK(cuStreamWaitValue32_ptsz, "cuStreamWaitValue32", 8000, PER_THREAD, WATCHED)
HOOK(cuStreamWaitValue32_v2_ptsz, "cuStreamWaitValue32", 11070, PER_THREAD, WATCHED)
HOOK(cuStreamWaitValue64, "cuStreamWaitValue64", 9000, LEGACY, WATCHED)
HOOK(cuStreamWaitValue64_v2, "cuStreamWaitValue64", 11070, LEGACY, WATCHED)
HOOK(cuStreamWaitValue64_ptsz, "cuStreamWaitValue64", 9000, PER_THREAD, WATCHED)
HOOK(cuStreamWaitValue64_v2_ptsz, "cuStreamWaitValue64", 11070, PER_THREAD, WATCHED)
PASS(cuStreamWriteValue32, "cuStreamWriteValue32", 8000, LEGACY, "front end only: no GPU time")
PASS(cuStreamWriteValue32_v2, "cuStreamWriteValue32", 11070, LEGACY, "front end only: no GPU time")
PASS(cuStreamWriteValue32_ptsz, "cuStreamWriteValue32", 8000, PER_THREAD, "front end only: no GPU time")
PASS(cuStreamWriteValue32_v2_ptsz, "cuStreamWriteValue32", 11070, PER_THREAD, "front end only: no GPU time")
PASS(cuStreamWriteValue64, "cuStreamWriteValue64", 9000, LEGACY, "front end only: no GPU time")
PASS(cuStreamWriteValue64_v2, "cuStreamWriteValue64", 11070, LEGACY, "front end only: no GPU time")
PASS(cuStreamWriteValue64_ptsz, "cuStreamWriteValue64", 9000, PER_THREAD, "front end only: no GPU time")
PASS(cuStreamWriteValue64_v2_ptsz, "cuStreamWriteValue64", 11070, PER_THREAD, "front end only: no GPU time")
HOOK(cuWaitExternalSemaphoresAsync, "cuWaitExternalSemaphoresAsync", 10000, LEGACY, WATCHED)
HOOK(cuWaitExternalSemaphoresAsync_ptsz, "cuWaitExternalSemaphoresAsync", 10000, PER_THREAD, WATCHED)

/* Capture. */
HOOK(cuStreamBeginCapture, "cuStreamBeginCapture", 10000, LEGACY, WATCHED)
HOOK(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, LEGACY, WATCHED)
HOOK(cuStreamBeginCapture_ptsz, "cuStreamBeginCapture", 10000, PER_THREAD, WATCHED)
HOOK(cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture", 10010, PER_THREAD, WATCHED)
HOOK(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 12030, LEGACY, WATCHED)
HOOK(cuStreamBeginCaptureToGraph_ptsz, "cuStreamBeginCaptureToGraph", 12030, PER_THREAD, WATCHED)
HOOK(cuStreamBeginRecaptureToGraph, "cuStreamBeginRecaptureToGraph", 13030, LEGACY, WATCHED)
HOOK(cuStreamBeginRecaptureToGraph_ptsz, "cuStreamBeginRecaptureToGraph", 13030, PER_THREAD, WATCHED)
HOOK(cuStreamBeginCaptureToCig, "cuStreamBeginCaptureToCig", 13010, LEGACY, WATCHED)
HOOK(cuStreamBeginCaptureToCig_ptsz, "cuStreamBeginCaptureToCig", 13010, PER_THREAD, WATCHED)
HOOK(cuStreamEndCaptureToCig, "cuStreamEndCaptureToCig", 13010, LEGACY, WATCHED)
HOOK(cuStreamEndCaptureToCig_ptsz, "cuStreamEndCaptureToCig", 13010, PER_THREAD, WATCHED)
HOOK(cuStreamEndCapture, "cuStreamEndCapture", 10000, LEGACY, WATCHED)
HOOK(cuStreamEndCapture_ptsz, "cuStreamEndCapture", 10000, PER_THREAD, WATCHED)
PASS(cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo", 10010, LEGACY, "edits a capture: no work")
PASS(cuStreamGetCaptureInfo_v2, "cuStreamGetCaptureInfo", 11030, LEGACY, "edits a capture: no work")
PASS(cuStreamGetCaptureInfo_v3, "cuStreamGetCaptureInfo", 12030, LEGACY, "edits a capture: no work")
PASS(cuStreamGetCaptureInfo_ptsz, "cuStreamGetCaptureInfo", 10010, PER_THREAD, "edits a capture: no work")
PASS(cuStreamGetCaptureInfo_v2_ptsz, "cuStreamGetCaptureInfo", 11030, PER_THREAD, "edits a capture: no work")
PASS(cuStreamGetCaptureInfo_v3_ptsz, "cuStreamGetCaptureInfo", 12030, PER_THREAD, "edits a capture: no work")
PASS(cuStreamIsCapturing, "cuStreamIsCapturing", 10000, LEGACY, "edits a capture: no work")
PASS(cuStreamIsCapturing_ptsz, "cuStreamIsCapturing", 10000, PER_THREAD, "edits a capture: no work")
PASS(cuStreamUpdateCaptureDependencies, "cuStreamUpdateCaptureDependencies", 11030, LEGACY, "edits a capture: no work")
PASS(cuStreamUpdateCaptureDependencies_v2, "cuStreamUpdateCaptureDependencies", 12030, LEGACY,
    "edits a capture: no work")
PASS(cuStreamUpdateCaptureDependencies_ptsz, "cuStreamUpdateCaptureDependencies", 11030, PER_THREAD,
    "edits a capture: no work")
PASS(cuStreamUpdateCaptureDependencies_v2_ptsz, "cuStreamUpdateCaptureDependencies", 12030, PER_THREAD,
    "edits a capture: no work")
PASS(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 10010, ANY, "the mode is the thread's own")

/* Graphs. */
PASS(cuGraphAddBatchMemOpNode, "cuGraphAddBatchMemOpNode", 11070, ANY, "its launch is gated")
PASS(cuGraphAddChildGraphNode, "cuGraphAddChildGraphNode", 10000, ANY, "its launch is gated")
PASS(cuGraphAddDependencies, "cuGraphAddDependencies", 10000, ANY, "its launch is gated")
PASS(cuGraphAddDependencies_v2, "cuGraphAddDependencies", 12030, ANY, "its launch is gated")
PASS(cuGraphAddEmptyNode, "cuGraphAddEmptyNode", 10000, ANY, "its launch is gated")
PASS(cuGraphAddEventRecordNode, "cuGraphAddEventRecordNode", 11010, ANY, "its launch is gated")
PASS(cuGraphAddEventWaitNode, "cuGraphAddEventWaitNode", 11010, ANY, "its launch is gated")
PASS(cuGraphAddHostNode, "cuGraphAddHostNode", 10000, ANY, "its launch is gated")
PASS(cuGraphAddKernelNode, "cuGraphAddKernelNode", 10000, ANY, "its launch is gated")
PASS(cuGraphAddKernelNode_v2, "cuGraphAddKernelNode", 12000, ANY, "its launch is gated")
PASS(cuGraphAddMemAllocNode, "cuGraphAddMemAllocNode", 11040, ANY, "no memory until the launch")
PASS(cuGraphAddMemFreeNode, "cuGraphAddMemFreeNode", 11040, ANY, "its launch is gated")
PASS(cuGraphAddMemcpyNode, "cuGraphAddMemcpyNode", 10000, ANY, "its launch is gated")
PASS(cuGraphAddMemsetNode, "cuGraphAddMemsetNode", 10000, ANY, "its launch is gated")
PASS(cuGraphAddNode, "cuGraphAddNode", 12020, ANY, "its launch is gated")
PASS(cuGraphAddNode_v2, "cuGraphAddNode", 12030, ANY, "its launch is gated")
PASS(cuGraphBatchMemOpNodeGetParams, "cuGraphBatchMemOpNodeGetParams", 11070, ANY, "its launch is gated")
PASS(cuGraphBatchMemOpNodeSetParams, "cuGraphBatchMemOpNodeSetParams", 11070, ANY, "its launch is gated")
PASS(cuGraphChildGraphNodeGetGraph, "cuGraphChildGraphNodeGetGraph", 10000, ANY, "its launch is gated")
PASS(cuGraphClone, "cuGraphClone", 10000, ANY, "its launch is gated")
PASS(cuGraphCreate, "cuGraphCreate", 10000, ANY, "its launch is gated")
PASS(cuGraphDestroy, "cuGraphDestroy", 10000, ANY, "its launch is gated")
PASS(cuGraphDestroyNode, "cuGraphDestroyNode", 10000, ANY, "its launch is gated")
PASS(cuGraphEventRecordNodeGetEvent, "cuGraphEventRecordNodeGetEvent", 11010, ANY, "its launch is gated")
PASS(cuGraphEventRecordNodeSetEvent, "cuGraphEventRecordNodeSetEvent", 11010, ANY, "its launch is gated")
PASS(cuGraphEventWaitNodeGetEvent, "cuGraphEventWaitNodeGetEvent", 11010, ANY, "its launch is gated")
PASS(cuGraphEventWaitNodeSetEvent, "cuGraphEventWaitNodeSetEvent", 11010, ANY, "its launch is gated")
PASS(cuGraphExecBatchMemOpNodeSetParams, "cuGraphExecBatchMemOpNodeSetParams", 11070, ANY, "its launch is gated")
PASS(cuGraphExecChildGraphNodeSetParams, "cuGraphExecChildGraphNodeSetParams", 11010, ANY, "its launch is gated")
HOOK(cuGraphExecDestroy, "cuGraphExecDestroy", 10000, ANY, WATCHED)
PASS(cuGraphExecEventRecordNodeSetEvent, "cuGraphExecEventRecordNodeSetEvent", 11010, ANY, "its launch is gated")
PASS(cuGraphExecEventWaitNodeSetEvent, "cuGraphExecEventWaitNodeSetEvent", 11010, ANY, "its launch is gated")
PASS(cuGraphExecGetFlags, "cuGraphExecGetFlags", 12000, ANY, "its launch is gated")
PASS(cuGraphExecHostNodeSetParams, "cuGraphExecHostNodeSetParams", 10020, ANY, "its launch is gated")
PASS(cuGraphExecKernelNodeSetParams, "cuGraphExecKernelNodeSetParams", 10010, ANY, "its launch is gated")
PASS(cuGraphExecKernelNodeSetParams_v2, "cuGraphExecKernelNodeSetParams", 12000, ANY, "its launch is gated")
PASS(cuGraphExecMemcpyNodeSetParams, "cuGraphExecMemcpyNodeSetParams", 10020, ANY, "its launch is gated")
PASS(cuGraphExecMemsetNodeSetParams, "cuGraphExecMemsetNodeSetParams", 10020, ANY, "its launch is gated")
PASS(cuGraphExecNodeSetParams, "cuGraphExecNodeSetParams", 12020, ANY, "its launch is gated")
PASS(cuGraphExecUpdate, "cuGraphExecUpdate", 10020, ANY, "the same nodes: what was learned of their time stands")
PASS(cuGraphExecUpdate_v2, "cuGraphExecUpdate", 12000, ANY, "the same nodes: what was learned of their time stands")
PASS(cuGraphGetEdges, "cuGraphGetEdges", 10000, ANY, "its launch is gated")
PASS(cuGraphGetEdges_v2, "cuGraphGetEdges", 12030, ANY, "its launch is gated")
PASS(cuGraphGetNodes, "cuGraphGetNodes", 10000, ANY, "its launch is gated")
PASS(cuGraphGetRootNodes, "cuGraphGetRootNodes", 10000, ANY, "its launch is gated")
PASS(cuGraphHostNodeGetParams, "cuGraphHostNodeGetParams", 10000, ANY, "its launch is gated")
PASS(cuGraphHostNodeSetParams, "cuGraphHostNodeSetParams", 10000, ANY, "its launch is gated")
HOOK(cuGraphInstantiate, "cuGraphInstantiate", 10000, ANY, WATCHED)
HOOK(cuGraphInstantiate_v2, "cuGraphInstantiate", 11000, ANY, WATCHED)
HOOK(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, ANY, WATCHED)
HOOK(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 12000, LEGACY, WATCHED)
HOOK(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", 12000, PER_THREAD, WATCHED)
PASS(cuGraphKernelNodeCopyAttributes, "cuGraphKernelNodeCopyAttributes", 11000, ANY, "its launch is gated")
PASS(cuGraphKernelNodeGetAttribute, "cuGraphKernelNodeGetAttribute", 11000, ANY, "its launch is gated")
PASS(cuGraphKernelNodeGetParams, "cuGraphKernelNodeGetParams", 10000, ANY, "its launch is gated")
PASS(cuGraphKernelNodeGetParams_v2, "cuGraphKernelNodeGetParams", 12000, ANY, "its launch is gated")
PASS(cuGraphKernelNodeSetAttribute, "cuGraphKernelNodeSetAttribute", 11000, ANY, "its launch is gated")
PASS(cuGraphKernelNodeSetParams, "cuGraphKernelNodeSetParams", 10000, ANY, "its launch is gated")
PASS(cuGraphKernelNodeSetParams_v2, "cuGraphKernelNodeSetParams", 12000, ANY, "its launch is gated")
HOOK(cuGraphLaunch, "cuGraphLaunch", 10000, LEGACY, GATED)
HOOK(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, PER_THREAD, GATED)
PASS(cuGraphMemAllocNodeGetParams, "cuGraphMemAllocNodeGetParams", 11040, ANY, "its launch is gated")
PASS(cuGraphMemFreeNodeGetParams, "cuGraphMemFreeNodeGetParams", 11040, ANY, "its launch is gated")
PASS(cuGraphMemcpyNodeGetParams, "cuGraphMemcpyNodeGetParams", 10000, ANY, "its launch is gated")
PASS(cuGraphMemcpyNodeSetParams, "cuGraphMemcpyNodeSetParams", 10000, ANY, "its launch is gated")
PASS(cuGraphMemsetNodeGetParams, "cuGraphMemsetNodeGetParams", 10000, ANY, "its launch is gated")
PASS(cuGraphMemsetNodeSetParams, "cuGraphMemsetNodeSetParams", 10000, ANY, "its launch is gated")
PASS(cuGraphNodeFindInClone, "cuGraphNodeFindInClone", 10000, ANY, "its launch is gated")
PASS(cuGraphNodeGetDependencies, "cuGraphNodeGetDependencies", 10000, ANY, "its launch is gated")
PASS(cuGraphNodeGetDependencies_v2, "cuGraphNodeGetDependencies", 12030, ANY, "its launch is gated")
PASS(cuGraphNodeGetDependentNodes, "cuGraphNodeGetDependentNodes", 10000, ANY, "its launch is gated")
PASS(cuGraphNodeGetDependentNodes_v2, "cuGraphNodeGetDependentNodes", 12030, ANY, "its launch is gated")
PASS(cuGraphNodeGetEnabled, "cuGraphNodeGetEnabled", 11060, ANY, "its launch is gated")
PASS(cuGraphNodeGetType, "cuGraphNodeGetType", 10000, ANY, "its launch is gated")
PASS(cuGraphNodeSetEnabled, "cuGraphNodeSetEnabled", 11060, ANY, "its launch is gated")
PASS(cuGraphNodeSetParams, "cuGraphNodeSetParams", 12020, ANY, "its launch is gated")
PASS(cuGraphReleaseUserObject, "cuGraphReleaseUserObject", 11030, ANY, "its launch is gated")
PASS(cuGraphRemoveDependencies, "cuGraphRemoveDependencies", 10000, ANY, "its launch is gated")
PASS(cuGraphRemoveDependencies_v2, "cuGraphRemoveDependencies", 12030, ANY, "its launch is gated")
PASS(cuGraphRetainUserObject, "cuGraphRetainUserObject", 11030, ANY, "its launch is gated")
HOOK(cuGraphUpload, "cuGraphUpload", 11010, LEGACY, GATED)
HOOK(cuGraphUpload_ptsz, "cuGraphUpload", 11010, PER_THREAD, GATED)
PASS(cuUserObjectCreate, "cuUserObjectCreate", 11030, ANY, "its launch is gated")
PASS(cuUserObjectRelease, "cuUserObjectRelease", 11030, ANY, "its launch is gated")
PASS(cuUserObjectRetain, "cuUserObjectRetain", 11030, ANY, "its launch is gated")

/* Copies. */
HOOK(cuMemcpy, "cuMemcpy", 4000, LEGACY, GATED)
HOOK(cuMemcpy_ptds, "cuMemcpy", 7000, PER_THREAD, GATED)
HOOK(cuMemcpy2D_v2, "cuMemcpy2D", 3020, LEGACY, GATED)
HOOK(cuMemcpy2D_v2_ptds, "cuMemcpy2D", 7000, PER_THREAD, GATED)
HOOK(cuMemcpy2DAsync_v2, "cuMemcpy2DAsync", 3020, LEGACY, GATED)
HOOK(cuMemcpy2DAsync_v2_ptsz, "cuMemcpy2DAsync", 7000, PER_THREAD, GATED)
HOOK(cuMemcpy2DUnaligned_v2, "cuMemcpy2DUnaligned", 3020, LEGACY, GATED)
HOOK(cuMemcpy2DUnaligned_v2_ptds, "cuMemcpy2DUnaligned", 7000, PER_THREAD, GATED)
HOOK(cuMemcpy3D_v2, "cuMemcpy3D", 3020, LEGACY, GATED)
HOOK(cuMemcpy3D_v2_ptds, "cuMemcpy3D", 7000, PER_THREAD, GATED)
HOOK(cuMemcpy3DAsync_v2, "cuMemcpy3DAsync", 3020, LEGACY, GATED)
HOOK(cuMemcpy3DAsync_v2_ptsz, "cuMemcpy3DAsync", 7000, PER_THREAD, GATED)
HOOK(cuMemcpy3DPeer, "cuMemcpy3DPeer", 4000, LEGACY, GATED)
HOOK(cuMemcpy3DPeer_ptds, "cuMemcpy3DPeer", 7000, PER_THREAD, GATED)
HOOK(cuMemcpy3DPeerAsync, "cuMemcpy3DPeerAsync", 4000, LEGACY, GATED)
HOOK(cuMemcpy3DPeerAsync_ptsz, "cuMemcpy3DPeerAsync", 7000, PER_THREAD, GATED)
HOOK(cuMemcpy3DBatchAsync, "cuMemcpy3DBatchAsync", 12080, LEGACY, GATED)
HOOK(cuMemcpy3DBatchAsync_ptsz, "cuMemcpy3DBatchAsync", 12080, PER_THREAD, GATED)
HOOK(cuMemcpy3DBatchAsync_v2, "cuMemcpy3DBatchAsync", 13000, LEGACY, GATED)
HOOK(cuMemcpy3DBatchAsync_v2_ptsz, "cuMemcpy3DBatchAsync", 13000, PER_THREAD, GATED)
HOOK(cuMemcpy3DWithAttributesAsync, "cuMemcpy3DWithAttributesAsync", 13020, LEGACY, GATED)
HOOK(cuMemcpy3DWithAttributesAsync_ptsz, "cuMemcpy3DWithAttributesAsync", 13020, PER_THREAD, GATED)
HOOK(cuMemcpyAsync, "cuMemcpyAsync", 4000, LEGACY, GATED)
HOOK(cuMemcpyAsync_ptsz, "cuMemcpyAsync", 7000, PER_THREAD, GATED)
HOOK(cuMemcpyAtoA_v2, "cuMemcpyAtoA", 3020, LEGACY, GATED)
HOOK(cuMemcpyAtoA_v2_ptds, "cuMemcpyAtoA", 7000, PER_THREAD, GATED)
HOOK(cuMemcpyAtoD_v2, "cuMemcpyAtoD", 3020, LEGACY, GATED)
HOOK(cuMemcpyAtoD_v2_ptds, "cuMemcpyAtoD", 7000, PER_THREAD, GATED)
HOOK(cuMemcpyAtoH_v2, "cuMemcpyAtoH", 3020, LEGACY, BILLED)
HOOK(cuMemcpyAtoH_v2_ptds, "cuMemcpyAtoH", 7000, PER_THREAD, BILLED)
HOOK(cuMemcpyAtoHAsync_v2, "cuMemcpyAtoHAsync", 3020, LEGACY, BILLED)
HOOK(cuMemcpyAtoHAsync_v2_ptsz, "cuMemcpyAtoHAsync", 7000, PER_THREAD, BILLED)
HOOK(cuMemcpyBatchAsync_v2, "cuMemcpyBatchAsync", 13000, LEGACY, GATED)
HOOK(cuMemcpyBatchAsync_v2_ptsz, "cuMemcpyBatchAsync", 13000, PER_THREAD, GATED)
HOOK(cuMemcpyBatchAsync, "cuMemcpyBatchAsync", 12080, LEGACY, GATED)
HOOK(cuMemcpyBatchAsync_ptsz, "cuMemcpyBatchAsync", 12080, PER_THREAD, GATED)
HOOK(cuMemcpyDtoA_v2, "cuMemcpyDtoA", 3020, LEGACY, GATED)
HOOK(cuMemcpyDtoA_v2_ptds, "cuMemcpyDtoA", 7000, PER_THREAD, GATED)
HOOK(cuMemcpyDtoD_v2, "cuMemcpyDtoD", 3020, LEGACY, GATED)
HOOK(cuMemcpyDtoD_v2_ptds, "cuMemcpyDtoD", 7000, PER_THREAD, GATED)
HOOK(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", 3020, LEGACY, GATED)
HOOK(cuMemcpyDtoDAsync_v2_ptsz, "cuMemcpyDtoDAsync", 7000, PER_THREAD, GATED)
HOOK(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020, LEGACY, BILLED)
HOOK(cuMemcpyDtoH_v2_ptds, "cuMemcpyDtoH", 7000, PER_THREAD, BILLED)
HOOK(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 3020, LEGACY, BILLED)
HOOK(cuMemcpyDtoHAsync_v2_ptsz, "cuMemcpyDtoHAsync", 7000, PER_THREAD, BILLED)
HOOK(cuMemcpyHtoA_v2, "cuMemcpyHtoA", 3020, LEGACY, BILLED)
HOOK(cuMemcpyHtoA_v2_ptds, "cuMemcpyHtoA", 7000, PER_THREAD, BILLED)
HOOK(cuMemcpyHtoAAsync_v2, "cuMemcpyHtoAAsync", 3020, LEGACY, BILLED)
HOOK(cuMemcpyHtoAAsync_v2_ptsz, "cuMemcpyHtoAAsync", 7000, PER_THREAD, BILLED)
HOOK(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020, LEGACY, BILLED)
HOOK(cuMemcpyHtoD_v2_ptds, "cuMemcpyHtoD", 7000, PER_THREAD, BILLED)
HOOK(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020, LEGACY, BILLED)
HOOK(cuMemcpyHtoDAsync_v2_ptsz, "cuMemcpyHtoDAsync", 7000, PER_THREAD, BILLED)
HOOK(cuMemcpyPeer, "cuMemcpyPeer", 4000, LEGACY, GATED)
HOOK(cuMemcpyPeer_ptds, "cuMemcpyPeer", 7000, PER_THREAD, GATED)
HOOK(cuMemcpyPeerAsync, "cuMemcpyPeerAsync", 4000, LEGACY, GATED)
HOOK(cuMemcpyPeerAsync_ptsz, "cuMemcpyPeerAsync", 7000, PER_THREAD, GATED)
HOOK(cuMemcpyWithAttributesAsync, "cuMemcpyWithAttributesAsync", 13020, LEGACY, GATED)
HOOK(cuMemcpyWithAttributesAsync_ptsz, "cuMemcpyWithAttributesAsync", 13020, PER_THREAD, GATED)
HOOK(cuFabricCpyBatchAsync, "cuFabricCpyBatchAsync", 13050, LEGACY, GATED)
HOOK(cuFabricCpyBatchAsync_ptsz, "cuFabricCpyBatchAsync", 13050, PER_THREAD, GATED)
HOOK(cuMemBatchDecompressAsync, "cuMemBatchDecompressAsync", 12060, LEGACY, GATED)
HOOK(cuMemBatchDecompressAsync_ptsz, "cuMemBatchDecompressAsync", 12060, PER_THREAD, GATED)

/* Sets. */
HOOK(cuMemsetD16_v2, "cuMemsetD16", 3020, LEGACY, GATED)
HOOK(cuMemsetD16_v2_ptds, "cuMemsetD16", 7000, PER_THREAD, GATED)
HOOK(cuMemsetD16Async, "cuMemsetD16Async", 3020, LEGACY, GATED)
HOOK(cuMemsetD16Async_ptsz, "cuMemsetD16Async", 7000, PER_THREAD, GATED)
HOOK(cuMemsetD2D16_v2, "cuMemsetD2D16", 3020, LEGACY, GATED)
HOOK(cuMemsetD2D16_v2_ptds, "cuMemsetD2D16", 7000, PER_THREAD, GATED)
HOOK(cuMemsetD2D16Async, "cuMemsetD2D16Async", 3020, LEGACY, GATED)
HOOK(cuMemsetD2D16Async_ptsz, "cuMemsetD2D16Async", 7000, PER_THREAD, GATED)
HOOK(cuMemsetD2D32_v2, "cuMemsetD2D32", 3020, LEGACY, GATED)
HOOK(cuMemsetD2D32_v2_ptds, "cuMemsetD2D32", 7000, PER_THREAD, GATED)
HOOK(cuMemsetD2D32Async, "cuMemsetD2D32Async", 3020, LEGACY, GATED)
HOOK(cuMemsetD2D32Async_ptsz, "cuMemsetD2D32Async", 7000, PER_THREAD, GATED)
HOOK(cuMemsetD2D8_v2, "cuMemsetD2D8", 3020, LEGACY, GATED)
HOOK(cuMemsetD2D8_v2_ptds, "cuMemsetD2D8", 7000, PER_THREAD, GATED)
HOOK(cuMemsetD2D8Async, "cuMemsetD2D8Async", 3020, LEGACY, GATED)
HOOK(cuMemsetD2D8Async_ptsz, "cuMemsetD2D8Async", 7000, PER_THREAD, GATED)
HOOK(cuMemsetD32_v2, "cuMemsetD32", 3020, LEGACY, GATED)
HOOK(cuMemsetD32_v2_ptds, "cuMemsetD32", 7000, PER_THREAD, GATED)
HOOK(cuMemsetD32Async, "cuMemsetD32Async", 3020, LEGACY, GATED)
HOOK(cuMemsetD32Async_ptsz, "cuMemsetD32Async", 7000, PER_THREAD, GATED)
HOOK(cuMemsetD8_v2, "cuMemsetD8", 3020, LEGACY, GATED)
HOOK(cuMemsetD8_v2_ptds, "cuMemsetD8", 7000, PER_THREAD, GATED)
HOOK(cuMemsetD8Async, "cuMemsetD8Async", 3020, LEGACY, GATED)
HOOK(cuMemsetD8Async_ptsz, "cuMemsetD8Async", 7000, PER_THREAD, GATED)

/* Memory. */
PASS(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, ANY, "imported memory belongs to its exporter")
HOOK(cuIpcGetEventHandle, "cuIpcGetEventHandle", 4010, ANY, WATCHED)
PASS(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, ANY, "imported memory belongs to its exporter")
HOOK(cuIpcOpenEventHandle, "cuIpcOpenEventHandle", 4010, ANY, WATCHED)
PASS(cuIpcOpenMemHandle, "cuIpcOpenMemHandle", 4010, ANY, "imported memory belongs to its exporter")
PASS(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000, ANY, "imported memory belongs to its exporter")
PASS(cuMemAddressFree, "cuMemAddressFree", 10020, ANY, "holds no memory of its own")
PASS(cuMemAddressReserve, "cuMemAddressReserve", 10020, ANY, "holds no memory of its own")
PASS(cuMemAdvise, "cuMemAdvise", 8000, ANY, "counted when it was allocated")
PASS(cuMemAdvise_v2, "cuMemAdvise", 12020, ANY, "counted when it was allocated")
HOOK(cuMemAlloc_v2, "cuMemAlloc", 3020, ANY, COUNTED)
HOOK(cuMemAllocAsync, "cuMemAllocAsync", 11020, LEGACY, COUNTED)
HOOK(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, PER_THREAD, COUNTED)
HOOK(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, LEGACY, COUNTED)
HOOK(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, PER_THREAD, COUNTED)
PASS(cuMemAllocHost_v2, "cuMemAllocHost", 3020, ANY, "host memory")
HOOK(cuMemAllocManaged, "cuMemAllocManaged", 6000, ANY, COUNTED)
HOOK(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, ANY, COUNTED)
HOOK(cuMemCreate, "cuMemCreate", 10020, ANY, COUNTED)
HOOK(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", 10020, ANY, COUNTED)
HOOK(cuMemFree_v2, "cuMemFree", 3020, ANY, COUNTED)
HOOK(cuMemFreeAsync, "cuMemFreeAsync", 11020, LEGACY, COUNTED)
HOOK(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, PER_THREAD, COUNTED)
PASS(cuMemFreeHost, "cuMemFreeHost", 2000, ANY, "host memory")
PASS(cuMemGetAccess, "cuMemGetAccess", 10020, ANY, "holds no memory of its own")
PASS(cuMemGetAddressRange_v2, "cuMemGetAddressRange", 3020, ANY, "holds no memory of its own")
PASS(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity", 10020, ANY, "holds no memory of its own")
PASS(cuMemGetAllocationPropertiesFromHandle, "cuMemGetAllocationPropertiesFromHandle", 10020, ANY,
    "holds no memory of its own")
HOOK(cuMemGetDefaultMemPool, "cuMemGetDefaultMemPool", 13000, ANY, COUNTED)
HOOK(cuMemGetInfo_v2, "cuMemGetInfo", 3020, ANY, VIRTUAL)
HOOK(cuMemGetMemPool, "cuMemGetMemPool", 13000, ANY, COUNTED)
PASS(cuMemHostAlloc, "cuMemHostAlloc", 2020, ANY, "host memory")
PASS(cuMemHostGetDevicePointer_v2, "cuMemHostGetDevicePointer", 3020, ANY, "host memory")
PASS(cuMemHostGetFlags, "cuMemHostGetFlags", 2030, ANY, "host memory")
PASS(cuMemHostRegister, "cuMemHostRegister", 4000, ANY, "host memory")
PASS(cuMemHostRegister_v2, "cuMemHostRegister", 6050, ANY, "host memory")
PASS(cuMemHostUnregister, "cuMemHostUnregister", 4000, ANY, "host memory")
HOOK(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020, ANY, COUNTED)
HOOK(cuMemMap, "cuMemMap", 10020, ANY, COUNTED)
HOOK(cuMemPoolCreate, "cuMemPoolCreate", 11020, ANY, COUNTED)
HOOK(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, ANY, COUNTED)
PASS(cuMemPoolGetAccess, "cuMemPoolGetAccess", 11020, ANY, "a property; what comes of it is counted")
PASS(cuMemPoolGetAttribute, "cuMemPoolGetAttribute", 11020, ANY, "a property; what comes of it is counted")
PASS(cuMemPoolSetAccess, "cuMemPoolSetAccess", 11020, ANY, "a property; what comes of it is counted")
PASS(cuMemPoolSetAttribute, "cuMemPoolSetAttribute", 11020, ANY, "a property; what comes of it is counted")
HOOK(cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, ANY, COUNTED)
HOOK(cuMemPrefetchAsync, "cuMemPrefetchAsync", 8000, LEGACY, GATED)
HOOK(cuMemPrefetchAsync_v2, "cuMemPrefetchAsync", 12020, LEGACY, GATED)
HOOK(cuMemPrefetchAsync_ptsz, "cuMemPrefetchAsync", 8000, PER_THREAD, GATED)
HOOK(cuMemPrefetchAsync_v2_ptsz, "cuMemPrefetchAsync", 12020, PER_THREAD, GATED)
HOOK(cuMemPrefetchBatchAsync, "cuMemPrefetchBatchAsync", 13000, LEGACY, GATED)
HOOK(cuMemPrefetchBatchAsync_ptsz, "cuMemPrefetchBatchAsync", 13000, PER_THREAD, GATED)
HOOK(cuMemDiscardBatchAsync, "cuMemDiscardBatchAsync", 13000, LEGACY, GATED)
HOOK(cuMemDiscardBatchAsync_ptsz, "cuMemDiscardBatchAsync", 13000, PER_THREAD, GATED)
HOOK(cuMemDiscardAndPrefetchBatchAsync, "cuMemDiscardAndPrefetchBatchAsync", 13000, LEGACY, GATED)
HOOK(cuMemDiscardAndPrefetchBatchAsync_ptsz, "cuMemDiscardAndPrefetchBatchAsync", 13000, PER_THREAD, GATED)
PASS(cuMemRangeGetAttribute, "cuMemRangeGetAttribute", 8000, ANY, "counted when it was allocated")
PASS(cuMemRangeGetAttributes, "cuMemRangeGetAttributes", 8000, ANY, "counted when it was allocated")
HOOK(cuMemRelease, "cuMemRelease", 10020, ANY, COUNTED)
HOOK(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, ANY, COUNTED)
PASS(cuMemSetAccess, "cuMemSetAccess", 10020, ANY, "holds no memory of its own")
PASS(cuMemSetMemPool, "cuMemSetMemPool", 13000, ANY, "a pool; what comes from it is counted")
HOOK(cuMemUnmap, "cuMemUnmap", 10020, ANY, COUNTED)
PASS(cuPointerGetAttribute, "cuPointerGetAttribute", 4000, ANY, "holds no memory of its own")
PASS(cuPointerGetAttributes, "cuPointerGetAttributes", 7000, ANY, "holds no memory of its own")
PASS(cuPointerSetAttribute, "cuPointerSetAttribute", 6000, ANY, "holds no memory of its own")

/* Arrays. */
HOOK(cuArray3DCreate_v2, "cuArray3DCreate", 3020, ANY, COUNTED)
PASS(cuArray3DGetDescriptor_v2, "cuArray3DGetDescriptor", 3020, ANY, "describes an array")
HOOK(cuArrayCreate_v2, "cuArrayCreate", 3020, ANY, COUNTED)
HOOK(cuArrayDestroy, "cuArrayDestroy", 2000, ANY, COUNTED)
PASS(cuArrayGetDescriptor_v2, "cuArrayGetDescriptor", 3020, ANY, "describes an array")
PASS(cuArrayGetMemoryRequirements, "cuArrayGetMemoryRequirements", 11060, ANY, "describes an array")
HOOK(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000, ANY, COUNTED)
HOOK(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000, ANY, COUNTED)
PASS(cuMipmappedArrayGetLevel, "cuMipmappedArrayGetLevel", 5000, ANY, "describes an array")
PASS(cuMipmappedArrayGetMemoryRequirements, "cuMipmappedArrayGetMemoryRequirements", 11060, ANY, "describes an array")

/* Known by name only. */
KNOWN(cuDeviceGetCliqueCount, "cuDeviceGetCliqueCount", 13040, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuDeviceGetCliqueInfo, "cuDeviceGetCliqueInfo", 13040, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuDeviceGetExecAffinitySupport, "cuDeviceGetExecAffinitySupport", 11040, ANY,
    "green contexts: a share of the SMs of a context that is known")
KNOWN(cuDeviceGetFabricClusterUuid, "cuDeviceGetFabricClusterUuid", 13040, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuDeviceGetHostAtomicCapabilities, "cuDeviceGetHostAtomicCapabilities", 13000, ANY,
    "describes the device, no memory figure in it")
KNOWN(cuDeviceGetLuid, "cuDeviceGetLuid", 10000, ANY, "describes the device, no memory figure in it")
KNOWN(cuDeviceGetNvSciSyncAttributes, "cuDeviceGetNvSciSyncAttributes", 10020, ANY,
    "describes the device, no memory figure in it")
KNOWN(cuDeviceGetP2PAtomicCapabilities, "cuDeviceGetP2PAtomicCapabilities", 13000, ANY,
    "describes the device, no memory figure in it")
KNOWN(cuDeviceGetTexture1DLinearMaxWidth, "cuDeviceGetTexture1DLinearMaxWidth", 11010, ANY,
    "texture and surface objects: descriptors only")
KNOWN(cuDeviceRegisterAsyncNotification, "cuDeviceRegisterAsyncNotification", 12040, ANY,
    "describes the device, no memory figure in it")
KNOWN(cuDeviceTotalMem, "cuDeviceTotalMem", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuDeviceUnregisterAsyncNotification, "cuDeviceUnregisterAsyncNotification", 12040, ANY,
    "describes the device, no memory figure in it")
KNOWN(cuCtxGetDevResource, "cuCtxGetDevResource", 12040, ANY,
    "green contexts: a share of the SMs of a context that is known")
KNOWN(cuCtxGetExecAffinity, "cuCtxGetExecAffinity", 11040, ANY,
    "green contexts: a share of the SMs of a context that is known")
KNOWN(cuCtxRecordEvent, "cuCtxRecordEvent", 12050, ANY, "green contexts: a share of the SMs of a context that is known")
KNOWN(cuCtxWaitEvent, "cuCtxWaitEvent", 12050, ANY, "green contexts: a share of the SMs of a context that is known")
KNOWN(cuDevSmResourceSplit, "cuDevSmResourceSplit", 13010, ANY,
    "green contexts: a share of the SMs of a context that is known")
KNOWN(cuGreenCtxGetId, "cuGreenCtxGetId", 12090, ANY, "green contexts: a share of the SMs of a context that is known")
KNOWN(cuGreenCtxRecordEvent, "cuGreenCtxRecordEvent", 12040, ANY,
    "green contexts: a share of the SMs of a context that is known")
KNOWN(cuGreenCtxWaitEvent, "cuGreenCtxWaitEvent", 12040, ANY,
    "green contexts: a share of the SMs of a context that is known")
KNOWN(cuFuncGetParamCount, "cuFuncGetParamCount", 13020, ANY, "no work, no memory")
KNOWN(cuFuncSetBlockShape, "cuFuncSetBlockShape", 2000, ANY,
    "sets up a launch of the CUDA 2 style; the launch itself is known")
KNOWN(cuFuncSetSharedSize, "cuFuncSetSharedSize", 2000, ANY,
    "sets up a launch of the CUDA 2 style; the launch itself is known")
KNOWN(cuKernelGetParamCount, "cuKernelGetParamCount", 13020, ANY, "no work, no memory")
KNOWN(cuLinkAddData, "cuLinkAddData", 5050, ANY, "links device code on the host")
KNOWN(cuLinkAddData_v2, "cuLinkAddData", 6050, ANY, "links device code on the host")
KNOWN(cuLinkAddFile, "cuLinkAddFile", 5050, ANY, "links device code on the host")
KNOWN(cuLinkAddFile_v2, "cuLinkAddFile", 6050, ANY, "links device code on the host")
KNOWN(cuLinkComplete, "cuLinkComplete", 5050, ANY, "links device code on the host")
KNOWN(cuLinkCreate, "cuLinkCreate", 5050, ANY, "links device code on the host")
KNOWN(cuLinkCreate_v2, "cuLinkCreate", 6050, ANY, "links device code on the host")
KNOWN(cuLinkDestroy, "cuLinkDestroy", 5050, ANY, "links device code on the host")
KNOWN(cuModuleGetGlobal, "cuModuleGetGlobal", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuModuleGetSurfRef, "cuModuleGetSurfRef", 3000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuModuleGetTexRef, "cuModuleGetTexRef", 2000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuParamSetSize, "cuParamSetSize", 2000, ANY, "sets up a launch of the CUDA 2 style; the launch itself is known")
KNOWN(cuParamSetTexRef, "cuParamSetTexRef", 2000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuParamSetf, "cuParamSetf", 2000, ANY, "sets up a launch of the CUDA 2 style; the launch itself is known")
KNOWN(cuParamSeti, "cuParamSeti", 2000, ANY, "sets up a launch of the CUDA 2 style; the launch itself is known")
KNOWN(cuParamSetv, "cuParamSetv", 2000, ANY, "sets up a launch of the CUDA 2 style; the launch itself is known")
KNOWN(cuSurfRefGetArray, "cuSurfRefGetArray", 3000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuSurfRefSetArray, "cuSurfRefSetArray", 3000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefCreate, "cuTexRefCreate", 2000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefDestroy, "cuTexRefDestroy", 2000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefGetAddress, "cuTexRefGetAddress", 2000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefGetAddress_v2, "cuTexRefGetAddress", 3020, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefGetAddressMode, "cuTexRefGetAddressMode", 2000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefGetArray, "cuTexRefGetArray", 2000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefGetBorderColor, "cuTexRefGetBorderColor", 8000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefGetFilterMode, "cuTexRefGetFilterMode", 2000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefGetFlags, "cuTexRefGetFlags", 2000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefGetFormat, "cuTexRefGetFormat", 2000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefGetMaxAnisotropy, "cuTexRefGetMaxAnisotropy", 5000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefGetMipmapFilterMode, "cuTexRefGetMipmapFilterMode", 5000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefGetMipmapLevelBias, "cuTexRefGetMipmapLevelBias", 5000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefGetMipmapLevelClamp, "cuTexRefGetMipmapLevelClamp", 5000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefGetMipmappedArray, "cuTexRefGetMipmappedArray", 5000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetAddress, "cuTexRefSetAddress", 2000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetAddress_v2, "cuTexRefSetAddress", 3020, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(
    cuTexRefSetAddress2D, "cuTexRefSetAddress2D", 2020, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetAddress2D_v2, "cuTexRefSetAddress2D", 3020, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetAddress2D_v3, "cuTexRefSetAddress2D", 4010, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetAddressMode, "cuTexRefSetAddressMode", 2000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetArray, "cuTexRefSetArray", 2000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetBorderColor, "cuTexRefSetBorderColor", 8000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetFilterMode, "cuTexRefSetFilterMode", 2000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetFlags, "cuTexRefSetFlags", 2000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetFormat, "cuTexRefSetFormat", 2000, ANY, "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetMaxAnisotropy, "cuTexRefSetMaxAnisotropy", 5000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetMipmapFilterMode, "cuTexRefSetMipmapFilterMode", 5000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetMipmapLevelBias, "cuTexRefSetMipmapLevelBias", 5000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetMipmapLevelClamp, "cuTexRefSetMipmapLevelClamp", 5000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuTexRefSetMipmappedArray, "cuTexRefSetMipmappedArray", 5000, ANY,
    "texture references: no GPU time, no memory of their own")
KNOWN(cuStreamGetDevResource, "cuStreamGetDevResource", 13010, LEGACY,
    "green contexts: a share of the SMs of a context that is known")
KNOWN(cuStreamGetDevResource_ptsz, "cuStreamGetDevResource", 13010, PER_THREAD,
    "green contexts: a share of the SMs of a context that is known")
KNOWN(cuStreamGetDevice, "cuStreamGetDevice", 12080, LEGACY, "describes a stream")
KNOWN(cuStreamGetDevice_ptsz, "cuStreamGetDevice", 12080, PER_THREAD, "describes a stream")
KNOWN(cuStreamGetGreenCtx, "cuStreamGetGreenCtx", 12040, ANY,
    "green contexts: a share of the SMs of a context that is known")
KNOWN(cuGraphAddExternalSemaphoresSignalNode, "cuGraphAddExternalSemaphoresSignalNode", 11020, ANY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuGraphAddExternalSemaphoresWaitNode, "cuGraphAddExternalSemaphoresWaitNode", 11020, ANY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuGraphAddNode_v3, "cuGraphAddNode", 13040, ANY, "describes a graph")
KNOWN(cuGraphConditionalHandleCreate, "cuGraphConditionalHandleCreate", 12030, ANY,
    "part of a graph, whose launch is gated")
KNOWN(cuGraphDebugDotPrint, "cuGraphDebugDotPrint", 11030, ANY, "describes a graph")
KNOWN(cuGraphExecExternalSemaphoresSignalNodeSetParams, "cuGraphExecExternalSemaphoresSignalNodeSetParams", 11020, ANY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuGraphExecExternalSemaphoresWaitNodeSetParams, "cuGraphExecExternalSemaphoresWaitNodeSetParams", 11020, ANY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuGraphExecGetId, "cuGraphExecGetId", 13010, ANY, "describes a graph")
KNOWN(cuGraphExternalSemaphoresSignalNodeGetParams, "cuGraphExternalSemaphoresSignalNodeGetParams", 11020, ANY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuGraphExternalSemaphoresSignalNodeSetParams, "cuGraphExternalSemaphoresSignalNodeSetParams", 11020, ANY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuGraphExternalSemaphoresWaitNodeGetParams, "cuGraphExternalSemaphoresWaitNodeGetParams", 11020, ANY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuGraphExternalSemaphoresWaitNodeSetParams, "cuGraphExternalSemaphoresWaitNodeSetParams", 11020, ANY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuGraphGetId, "cuGraphGetId", 13010, ANY, "describes a graph")
KNOWN(cuGraphNodeGetContainingGraph, "cuGraphNodeGetContainingGraph", 13010, ANY, "describes a graph")
KNOWN(cuGraphNodeGetLocalId, "cuGraphNodeGetLocalId", 13010, ANY, "describes a graph")
KNOWN(cuGraphNodeGetParams, "cuGraphNodeGetParams", 13020, ANY, "describes a graph")
KNOWN(cuGraphNodeGetToolsId, "cuGraphNodeGetToolsId", 13010, ANY, "describes a graph")
KNOWN(cuGraphNodeSetParams_v2, "cuGraphNodeSetParams", 13040, ANY, "describes a graph")
KNOWN(cuMemcpy2D, "cuMemcpy2D", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemcpy2DAsync, "cuMemcpy2DAsync", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemcpy2DUnaligned, "cuMemcpy2DUnaligned", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemcpy3D, "cuMemcpy3D", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemcpy3DAsync, "cuMemcpy3DAsync", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(
    cuMemcpyAtoA, "cuMemcpyAtoA", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(
    cuMemcpyAtoD, "cuMemcpyAtoD", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(
    cuMemcpyAtoH, "cuMemcpyAtoH", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemcpyAtoHAsync, "cuMemcpyAtoHAsync", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(
    cuMemcpyDtoA, "cuMemcpyDtoA", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(
    cuMemcpyDtoD, "cuMemcpyDtoD", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync", 3000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(
    cuMemcpyDtoH, "cuMemcpyDtoH", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(
    cuMemcpyHtoA, "cuMemcpyHtoA", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemcpyHtoAAsync, "cuMemcpyHtoAAsync", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(
    cuMemcpyHtoD, "cuMemcpyHtoD", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemsetD16, "cuMemsetD16", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemsetD2D16, "cuMemsetD2D16", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemsetD2D32, "cuMemsetD2D32", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(
    cuMemsetD2D8, "cuMemsetD2D8", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemsetD32, "cuMemsetD32", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemsetD8, "cuMemsetD8", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemAlloc, "cuMemAlloc", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemAllocHost, "cuMemAllocHost", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemAllocPitch, "cuMemAllocPitch", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemFree, "cuMemFree", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemGetAddressRange, "cuMemGetAddressRange", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemGetHandleForAddressRange, "cuMemGetHandleForAddressRange", 11070, ANY,
    "a handle or description of memory that was counted when it was made")
KNOWN(
    cuMemGetInfo, "cuMemGetInfo", 2000, ANY, "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemGetLocationInfo, "cuMemGetLocationInfo", 13040, ANY,
    "a handle or description of memory that was counted when it was made")
KNOWN(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer", 2020, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuMemMapArrayAsync, "cuMemMapArrayAsync", 11010, LEGACY,
    "page tables of a sparse array, in stream order: no GPU time, and its memory was counted when it was made")
KNOWN(cuMemMapArrayAsync_ptsz, "cuMemMapArrayAsync", 11010, PER_THREAD,
    "page tables of a sparse array, in stream order: no GPU time, and its memory was counted when it was made")
KNOWN(cuMemPoolExportPointer, "cuMemPoolExportPointer", 11020, ANY, "imported memory belongs to its exporter")
KNOWN(cuMemPoolExportToShareableHandle, "cuMemPoolExportToShareableHandle", 11020, ANY,
    "imported memory belongs to its exporter")
KNOWN(cuMemPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle", 11020, ANY,
    "imported memory belongs to its exporter")
KNOWN(cuMemPoolImportPointer, "cuMemPoolImportPointer", 11020, ANY, "imported memory belongs to its exporter")
KNOWN(cuArray3DCreate, "cuArray3DCreate", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuArray3DGetDescriptor, "cuArray3DGetDescriptor", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuArrayCreate, "cuArrayCreate", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuArrayGetDescriptor, "cuArrayGetDescriptor", 2000, ANY,
    "32-bit device pointers of CUDA before 3.2: no 64-bit program can use it")
KNOWN(cuArrayGetPlane, "cuArrayGetPlane", 11020, ANY, "sparse arrays: map memory that was counted when it was made")
KNOWN(cuArrayGetSparseProperties, "cuArrayGetSparseProperties", 11010, ANY,
    "sparse arrays: map memory that was counted when it was made")
KNOWN(cuMipmappedArrayGetSparseProperties, "cuMipmappedArrayGetSparseProperties", 11010, ANY,
    "sparse arrays: map memory that was counted when it was made")
KNOWN(cuCheckpointOperationComplete, "cuCheckpointOperationComplete", 13040, ANY,
    "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuCheckpointProcessCheckpoint, "cuCheckpointProcessCheckpoint", 12080, ANY,
    "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuCheckpointProcessGetRestoreThreadId, "cuCheckpointProcessGetRestoreThreadId", 12080, ANY,
    "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuCheckpointProcessGetState, "cuCheckpointProcessGetState", 12080, ANY,
    "checkpoints, core dumps and logs: tools, no work")
KNOWN(
    cuCheckpointProcessLock, "cuCheckpointProcessLock", 12080, ANY, "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuCheckpointProcessRestore, "cuCheckpointProcessRestore", 12080, ANY,
    "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuCheckpointProcessUnlock, "cuCheckpointProcessUnlock", 12080, ANY,
    "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuCoredumpDeregisterCompleteCallback, "cuCoredumpDeregisterCompleteCallback", 13020, ANY,
    "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuCoredumpDeregisterStartCallback, "cuCoredumpDeregisterStartCallback", 13020, ANY,
    "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuCoredumpGetAttribute, "cuCoredumpGetAttribute", 12010, ANY, "checkpoints, core dumps and logs: tools, no work")
PASS(cuCoredumpGetAttributeGlobal, "cuCoredumpGetAttributeGlobal", 12010, ANY,
    "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuCoredumpRegisterCompleteCallback, "cuCoredumpRegisterCompleteCallback", 13020, ANY,
    "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuCoredumpRegisterStartCallback, "cuCoredumpRegisterStartCallback", 13020, ANY,
    "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuCoredumpSetAttribute, "cuCoredumpSetAttribute", 12010, ANY, "checkpoints, core dumps and logs: tools, no work")
PASS(cuCoredumpSetAttributeGlobal, "cuCoredumpSetAttributeGlobal", 12010, ANY,
    "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuDestroyExternalMemory, "cuDestroyExternalMemory", 10000, ANY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuDestroyExternalSemaphore, "cuDestroyExternalSemaphore", 10000, ANY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuExternalMemoryGetMappedBuffer, "cuExternalMemoryGetMappedBuffer", 10000, ANY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuExternalMemoryGetMappedMipmappedArray, "cuExternalMemoryGetMappedMipmappedArray", 10000, ANY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuFlushGPUDirectRDMAWrites, "cuFlushGPUDirectRDMAWrites", 11030, ANY,
    "a handle or description of memory that was counted when it was made")
KNOWN(cuGraphicsMapResources, "cuGraphicsMapResources", 3000, LEGACY,
    "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsMapResources_ptsz, "cuGraphicsMapResources", 7000, PER_THREAD,
    "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsResourceGetMappedMipmappedArray, "cuGraphicsResourceGetMappedMipmappedArray", 5000, ANY,
    "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsResourceGetMappedPointer, "cuGraphicsResourceGetMappedPointer", 3000, ANY,
    "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsResourceGetMappedPointer_v2, "cuGraphicsResourceGetMappedPointer", 3020, ANY,
    "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsResourceSetMapFlags, "cuGraphicsResourceSetMapFlags", 3000, ANY,
    "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsResourceSetMapFlags_v2, "cuGraphicsResourceSetMapFlags", 6050, ANY,
    "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsSubResourceGetMappedArray, "cuGraphicsSubResourceGetMappedArray", 3000, ANY,
    "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsUnmapResources, "cuGraphicsUnmapResources", 3000, LEGACY,
    "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsUnmapResources_ptsz, "cuGraphicsUnmapResources", 7000, PER_THREAD,
    "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsUnregisterResource, "cuGraphicsUnregisterResource", 3000, ANY,
    "graphics interop: the memory is the graphics API's")
KNOWN(cuImportExternalMemory, "cuImportExternalMemory", 10000, ANY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuImportExternalSemaphore, "cuImportExternalSemaphore", 10000, ANY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuLogicalEndpointAddDevice, "cuLogicalEndpointAddDevice", 13030, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuLogicalEndpointBindAddr, "cuLogicalEndpointBindAddr", 13030, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuLogicalEndpointBindMem, "cuLogicalEndpointBindMem", 13030, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuLogicalEndpointCreate, "cuLogicalEndpointCreate", 13030, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuLogicalEndpointDestroy, "cuLogicalEndpointDestroy", 13030, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuLogicalEndpointExport, "cuLogicalEndpointExport", 13030, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuLogicalEndpointGetLimits, "cuLogicalEndpointGetLimits", 13030, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuLogicalEndpointIdRelease, "cuLogicalEndpointIdRelease", 13030, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuLogicalEndpointIdReserve, "cuLogicalEndpointIdReserve", 13030, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuLogicalEndpointImport, "cuLogicalEndpointImport", 13030, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuLogicalEndpointQuery, "cuLogicalEndpointQuery", 13030, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuLogicalEndpointUnbind, "cuLogicalEndpointUnbind", 13030, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuLogsCurrent, "cuLogsCurrent", 12090, ANY, "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuLogsDumpToFile, "cuLogsDumpToFile", 12090, ANY, "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuLogsDumpToMemory, "cuLogsDumpToMemory", 12090, ANY, "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuLogsRegisterCallback, "cuLogsRegisterCallback", 12090, ANY, "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuLogsUnregisterCallback, "cuLogsUnregisterCallback", 12090, ANY,
    "checkpoints, core dumps and logs: tools, no work")
KNOWN(cuMulticastAddDevice, "cuMulticastAddDevice", 12010, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuMulticastBindAddr, "cuMulticastBindAddr", 12010, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuMulticastBindAddr_v2, "cuMulticastBindAddr", 13010, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuMulticastBindMem, "cuMulticastBindMem", 12010, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuMulticastBindMem_v2, "cuMulticastBindMem", 13010, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuMulticastCreate, "cuMulticastCreate", 12010, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuMulticastGetGranularity, "cuMulticastGetGranularity", 12010, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuMulticastUnbind, "cuMulticastUnbind", 12010, ANY,
    "multicast and fabric objects: bind memory that was counted when it was made")
KNOWN(cuSignalExternalSemaphoresAsync, "cuSignalExternalSemaphoresAsync", 10000, LEGACY,
    "external memory and semaphores belong to their exporter")
KNOWN(cuSignalExternalSemaphoresAsync_ptsz, "cuSignalExternalSemaphoresAsync", 10000, PER_THREAD,
    "external memory and semaphores belong to their exporter")
KNOWN(cuSurfObjectCreate, "cuSurfObjectCreate", 5000, ANY, "texture and surface objects: descriptors only")
KNOWN(cuSurfObjectDestroy, "cuSurfObjectDestroy", 5000, ANY, "texture and surface objects: descriptors only")
KNOWN(cuSurfObjectGetResourceDesc, "cuSurfObjectGetResourceDesc", 5000, ANY,
    "texture and surface objects: descriptors only")
KNOWN(cuTensorMapEncodeIm2col, "cuTensorMapEncodeIm2col", 12000, ANY, "encodes a descriptor on the host")
KNOWN(cuTensorMapEncodeIm2colWide, "cuTensorMapEncodeIm2colWide", 12080, ANY, "encodes a descriptor on the host")
PASS(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled", 12000, ANY, "encodes a descriptor on the host")
PASS(cuTensorMapReplaceAddress, "cuTensorMapReplaceAddress", 12000, ANY, "encodes a descriptor on the host")
KNOWN(cuTensorMapSetAllocationClass, "cuTensorMapSetAllocationClass", 13050, ANY, "encodes a descriptor on the host")
KNOWN(cuTexObjectCreate, "cuTexObjectCreate", 5000, ANY, "texture and surface objects: descriptors only")
KNOWN(cuTexObjectDestroy, "cuTexObjectDestroy", 5000, ANY, "texture and surface objects: descriptors only")
KNOWN(cuTexObjectGetResourceDesc, "cuTexObjectGetResourceDesc", 5000, ANY,
    "texture and surface objects: descriptors only")
KNOWN(cuTexObjectGetResourceViewDesc, "cuTexObjectGetResourceViewDesc", 5000, ANY,
    "texture and surface objects: descriptors only")
KNOWN(
    cuTexObjectGetTextureDesc, "cuTexObjectGetTextureDesc", 5000, ANY, "texture and surface objects: descriptors only")
KNOWN(cuProfilerInitialize, "cuProfilerInitialize", 4000, ANY, "switches a tool on and off")
PASS(cuProfilerStart, "cuProfilerStart", 4000, ANY, "switches a tool on and off")
PASS(cuProfilerStop, "cuProfilerStop", 4000, ANY, "switches a tool on and off")
KNOWN(cuGLCtxCreate, "cuGLCtxCreate", 2000, ANY, "context for graphics interop: seen when it is next made current, its memory is the graphics API's")
KNOWN(cuGLCtxCreate_v2, "cuGLCtxCreate", 3020, ANY, "context for graphics interop: seen when it is next made current, its memory is the graphics API's")
KNOWN(cuGLGetDevices, "cuGLGetDevices", 4010, ANY, "describes the device, no memory figure in it")
KNOWN(cuGLGetDevices_v2, "cuGLGetDevices", 6050, ANY, "describes the device, no memory figure in it")
KNOWN(cuGLInit, "cuGLInit", 2000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGLMapBufferObject, "cuGLMapBufferObject", 2000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGLMapBufferObject_v2, "cuGLMapBufferObject", 3020, LEGACY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGLMapBufferObject_v2_ptds, "cuGLMapBufferObject", 7000, PER_THREAD, "graphics interop: the memory is the graphics API's")
KNOWN(cuGLMapBufferObjectAsync, "cuGLMapBufferObjectAsync", 2030, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGLMapBufferObjectAsync_v2, "cuGLMapBufferObjectAsync", 3020, LEGACY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGLMapBufferObjectAsync_v2_ptsz, "cuGLMapBufferObjectAsync", 7000, PER_THREAD, "graphics interop: the memory is the graphics API's")
KNOWN(cuGLRegisterBufferObject, "cuGLRegisterBufferObject", 2000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGLSetBufferObjectMapFlags, "cuGLSetBufferObjectMapFlags", 2030, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGLUnmapBufferObject, "cuGLUnmapBufferObject", 2000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGLUnmapBufferObjectAsync, "cuGLUnmapBufferObjectAsync", 2030, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGLUnregisterBufferObject, "cuGLUnregisterBufferObject", 2000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsGLRegisterBuffer, "cuGraphicsGLRegisterBuffer", 3000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsGLRegisterImage, "cuGraphicsGLRegisterImage", 3000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuWGLGetDevice, "cuWGLGetDevice", 2020, ANY, "describes the device, no memory figure in it")
KNOWN(cuEGLStreamConsumerAcquireFrame, "cuEGLStreamConsumerAcquireFrame", 7000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuEGLStreamConsumerConnect, "cuEGLStreamConsumerConnect", 7000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuEGLStreamConsumerConnectWithFlags, "cuEGLStreamConsumerConnectWithFlags", 8000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuEGLStreamConsumerDisconnect, "cuEGLStreamConsumerDisconnect", 7000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuEGLStreamConsumerReleaseFrame, "cuEGLStreamConsumerReleaseFrame", 7000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuEGLStreamProducerConnect, "cuEGLStreamProducerConnect", 7000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuEGLStreamProducerDisconnect, "cuEGLStreamProducerDisconnect", 7000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuEGLStreamProducerPresentFrame, "cuEGLStreamProducerPresentFrame", 7000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuEGLStreamProducerReturnFrame, "cuEGLStreamProducerReturnFrame", 7000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuEventCreateFromEGLSync, "cuEventCreateFromEGLSync", 9000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsEGLRegisterImage, "cuGraphicsEGLRegisterImage", 7000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsResourceGetMappedEglFrame, "cuGraphicsResourceGetMappedEglFrame", 7000, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsVDPAURegisterOutputSurface, "cuGraphicsVDPAURegisterOutputSurface", 3010, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuGraphicsVDPAURegisterVideoSurface, "cuGraphicsVDPAURegisterVideoSurface", 3010, ANY, "graphics interop: the memory is the graphics API's")
KNOWN(cuVDPAUCtxCreate, "cuVDPAUCtxCreate", 3010, ANY, "context for graphics interop: seen when it is next made current, its memory is the graphics API's")
KNOWN(cuVDPAUCtxCreate_v2, "cuVDPAUCtxCreate", 3020, ANY, "context for graphics interop: seen when it is next made current, its memory is the graphics API's")
KNOWN(cuVDPAUGetDevice, "cuVDPAUGetDevice", 3010, ANY, "describes the device, no memory figure in it")

#undef HOOK
#undef PASS
#undef KNOWN
