/*
 * cuda_abi.h - prototypes of every HOOK and PASS row of cuda_hooks.h, by the symbol that libcuda exports (`_v2` spelt
 * out; `_ptds` and `_ptsz` take stream 0 as the calling thread's own). Nothing here is renamed by a macro.
 */
#ifndef GEMINI_CUDA_ABI_H
#define GEMINI_CUDA_ABI_H

#include "libhook/driver/cuda_types.h"

#pragma GCC visibility push(default)

/* Initialisation and resolution. */
CUresult cuDriverGetVersion(int *driver_version);
CUresult cuGetErrorName(CUresult error, const char **str);
CUresult cuGetErrorString(CUresult error, const char **str);
CUresult cuGetExportTable(const void **export_table, const CUuuid *export_table_id);
CUresult cuGetProcAddress(const char *symbol, void **pfn, int cuda_version, cuuint64_t flags);
CUresult cuGetProcAddress_v2(
    const char *symbol, void **pfn, int cuda_version, cuuint64_t flags, CUdriverProcAddressQueryResult *symbol_status);
CUresult cuInit(unsigned int flags);

/* Devices. */
CUresult cuCtxDisablePeerAccess(CUcontext peer_context);
CUresult cuCtxEnablePeerAccess(CUcontext peer_context, unsigned int flags);
CUresult cuDeviceCanAccessPeer(int *can_access_peer, CUdevice device, CUdevice peer_dev);
CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice device);
CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *pci_bus_id);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice device);
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value);
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device);
CUresult cuDeviceGetName(char *name, int len, CUdevice device);
CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice src_device, CUdevice dst_device);
CUresult cuDeviceGetPCIBusId(char *pci_bus_id, int len, CUdevice device);
CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice device);
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
CUresult cuDeviceGraphMemTrim(CUdevice device);
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value);
CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);

/* Contexts. */
CUresult cuCtxAttach(CUcontext *ctx, unsigned int flags);
CUresult cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device);
CUresult cuCtxCreate_v3(
    CUcontext *ctx, CUexecAffinityParam *params_array, int num_params, unsigned int flags, CUdevice device);
CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *ctx_create_params, unsigned int flags, CUdevice device);
CUresult cuCtxDestroy(CUcontext ctx);
CUresult cuCtxDestroy_v2(CUcontext ctx);
CUresult cuCtxDetach(CUcontext ctx);
CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version);
CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig);
CUresult cuCtxGetCurrent(CUcontext *ctx);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx);
CUresult cuCtxGetFlags(unsigned int *flags);
CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctx_id);
CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit);
CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config);
CUresult cuCtxGetStreamPriorityRange(int *least_priority, int *greatest_priority);
CUresult cuCtxPopCurrent(CUcontext *ctx);
CUresult cuCtxPopCurrent_v2(CUcontext *ctx);
CUresult cuCtxPushCurrent(CUcontext ctx);
CUresult cuCtxPushCurrent_v2(CUcontext ctx);
CUresult cuCtxResetPersistingL2Cache(void);
CUresult cuCtxSetCacheConfig(CUfunc_cache config);
CUresult cuCtxSetCurrent(CUcontext ctx);
CUresult cuCtxSetFlags(unsigned int flags);
CUresult cuCtxSetLimit(CUlimit limit, size_t value);
CUresult cuCtxSetSharedMemConfig(CUsharedconfig config);
CUresult cuCtxSynchronize(void);
CUresult cuCtxSynchronize_v2(CUcontext ctx);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuDevicePrimaryCtxReset(CUdevice device);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device);
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags);
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags);

/* Green contexts. */
CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx ctx);
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *resources, unsigned int nb_resources);
CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nb_groups, const CUdevResource *input,
    CUdevResource *remaining, unsigned int use_flags, unsigned int min_count);
CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type);
CUresult cuGreenCtxCreate(CUgreenCtx *ctx, CUdevResourceDesc desc, CUdevice device, unsigned int flags);
CUresult cuGreenCtxDestroy(CUgreenCtx ctx);
CUresult cuGreenCtxGetDevResource(CUgreenCtx ctx, CUdevResource *resource, CUdevResourceType type);
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green_ctx, unsigned int flags, int priority);

/* Modules, libraries, kernels, functions. */
CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc);
CUresult cuFuncGetModule(CUmodule *module, CUfunction hfunc);
CUresult cuFuncGetName(const char **name, CUfunction hfunc);
CUresult cuFuncGetParamInfo(CUfunction function, size_t param_index, size_t *param_offset, size_t *param_size);
CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function);
CUresult cuFuncLoad(CUfunction function);
CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value);
CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config);
CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config);
CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice device);
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel);
CUresult cuKernelGetLibrary(CUlibrary *lib, CUkernel kernel);
CUresult cuKernelGetName(const char **name, CUkernel hfunc);
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t param_index, size_t *param_offset, size_t *param_size);
CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice device);
CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device);
CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int num_kernels, CUlibrary lib);
CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name);
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib);
CUresult cuLibraryGetManaged(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name);
CUresult cuLibraryGetModule(CUmodule *mod, CUlibrary library);
CUresult cuLibraryGetUnifiedFunction(void **fptr, CUlibrary library, const char *symbol);
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_options_values,
    unsigned int num_jit_options, CUlibraryOption *library_options, void **library_option_values,
    unsigned int num_library_options);
CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file_name, CUjit_option *jit_options,
    void **jit_options_values, unsigned int num_jit_options, CUlibraryOption *library_options,
    void **library_option_values, unsigned int num_library_options);
CUresult cuLibraryUnload(CUlibrary library);
CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int num_functions, CUmodule mod);
CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule module, const char *name);
CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name);
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode);
CUresult cuModuleLoad(CUmodule *module, const char *fname);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleLoadDataEx(
    CUmodule *module, const void *image, unsigned int num_options, CUjit_option *options, void **option_values);
CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fat_cubin);
CUresult cuModuleUnload(CUmodule module);
CUresult cuOccupancyAvailableDynamicSMemPerBlock(
    size_t *dynamic_smem_size, CUfunction function, int num_blocks, int block_size);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(
    int *num_blocks, CUfunction function, int block_size, size_t dynamic_s_mem_size);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *num_blocks, CUfunction function, int block_size, size_t dynamic_s_mem_size, unsigned int flags);
CUresult cuOccupancyMaxActiveClusters(int *num_clusters, CUfunction function, const CUlaunchConfig *config);
CUresult cuOccupancyMaxPotentialBlockSize(int *min_grid_size, int *block_size, CUfunction function,
    CUoccupancyB2DSize block_size_to_dynamic_s_mem_size, size_t dynamic_s_mem_size, int block_size_limit);
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *min_grid_size, int *block_size, CUfunction function,
    CUoccupancyB2DSize block_size_to_dynamic_s_mem_size, size_t dynamic_s_mem_size, int block_size_limit,
    unsigned int flags);
CUresult cuOccupancyMaxPotentialClusterSize(int *cluster_size, CUfunction function, const CUlaunchConfig *config);

/* Launches. */
CUresult cuLaunch(CUfunction function);
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_dim_x, unsigned int grid_dim_y,
    unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z,
    unsigned int shared_mem_bytes, CUstream stream, void **kernel_params);
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_dim_x, unsigned int grid_dim_y,
    unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z,
    unsigned int shared_mem_bytes, CUstream stream, void **kernel_params);
CUresult cuLaunchCooperativeKernelMultiDevice(
    CUDA_LAUNCH_PARAMS *launch_params_list, unsigned int num_devices, unsigned int flags);
CUresult cuLaunchGrid(CUfunction function, int grid_width, int grid_height);
CUresult cuLaunchGridAsync(CUfunction function, int grid_width, int grid_height, CUstream stream);
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *user_data);
CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn fn, void *user_data);
CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn fn, void *user_data, unsigned int sync_mode);
CUresult cuLaunchHostFunc_v2_ptsz(CUstream stream, CUhostFn fn, void *user_data, unsigned int sync_mode);
CUresult cuLaunchKernel(CUfunction function, unsigned int grid_dim_x, unsigned int grid_dim_y, unsigned int grid_dim_z,
    unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z, unsigned int shared_mem_bytes,
    CUstream stream, void **kernel_params, void **extra);
CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_dim_x, unsigned int grid_dim_y,
    unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z,
    unsigned int shared_mem_bytes, CUstream stream, void **kernel_params, void **extra);
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **kernel_params, void **extra);
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **kernel_params, void **extra);
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *user_data, unsigned int flags);
CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void *user_data, unsigned int flags);

/* Streams and events. */
CUresult cuEventCreate(CUevent *event, unsigned int flags);
CUresult cuEventDestroy(CUevent event);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);
CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end);
CUresult cuEventQuery(CUevent event);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream);
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags);
CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags);
CUresult cuEventSynchronize(CUevent event);
CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr pointer, size_t length, unsigned int flags);
CUresult cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr pointer, size_t length, unsigned int flags);
CUresult cuStreamCopyAttributes(CUstream dst_stream, CUstream src_stream);
CUresult cuStreamCopyAttributes_ptsz(CUstream dst, CUstream src);
CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority);
CUresult cuStreamDestroy(CUstream stream);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamGetAttribute(CUstream stream, CUstreamAttrID attr, CUstreamAttrValue *value);
CUresult cuStreamGetAttribute_ptsz(CUstream stream, CUstreamAttrID attr, CUstreamAttrValue *value_out);
CUresult cuStreamGetCtx(CUstream stream, CUcontext *ctx);
CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *ctx, CUgreenCtx *green_ctx);
CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext *ctx);
CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext *ctx, CUgreenCtx *green_ctx);
CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags);
CUresult cuStreamGetFlags_ptsz(CUstream stream, unsigned int *flags);
CUresult cuStreamGetId(CUstream stream, unsigned long long *stream_id);
CUresult cuStreamGetId_ptsz(CUstream stream, unsigned long long *stream_id);
CUresult cuStreamGetPriority(CUstream stream, int *priority);
CUresult cuStreamGetPriority_ptsz(CUstream stream, int *priority);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamQuery_ptsz(CUstream stream);
CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID attr, const CUstreamAttrValue *param);
CUresult cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID attr, const CUstreamAttrValue *value);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamSynchronize_ptsz(CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);
CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags);

/* Stream memory operations. */
CUresult cuStreamBatchMemOp(
    CUstream stream, unsigned int count, CUstreamBatchMemOpParams *param_array, unsigned int flags);
CUresult cuStreamBatchMemOp_v2(
    CUstream stream, unsigned int count, CUstreamBatchMemOpParams *param_array, unsigned int flags);
CUresult cuStreamBatchMemOp_ptsz(
    CUstream stream, unsigned int count, CUstreamBatchMemOpParams *param_array, unsigned int flags);
CUresult cuStreamBatchMemOp_v2_ptsz(
    CUstream stream, unsigned int count, CUstreamBatchMemOpParams *param_array, unsigned int flags);
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags);
CUresult cuStreamWaitValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags);
CUresult cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags);
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags);
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags);
CUresult cuStreamWaitValue64_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags);
CUresult cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags);
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags);
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags);
CUresult cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags);
CUresult cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags);
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags);
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags);
CUresult cuStreamWriteValue64_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags);
CUresult cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags);
CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *semaphores,
    const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned int count, CUstream stream);
CUresult cuWaitExternalSemaphoresAsync_ptsz(const CUexternalSemaphore *semaphores,
    const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned int count, CUstream stream);

/* Capture. */
CUresult cuStreamBeginCapture(CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamBeginCapture_ptsz(CUstream stream);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *dependency_data, size_t num_dependencies, CUstreamCaptureMode mode);
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *dependency_data, size_t num_dependencies, CUstreamCaptureMode mode);
CUresult cuStreamBeginRecaptureToGraph(
    CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, void *user_data);
CUresult cuStreamBeginRecaptureToGraph_ptsz(
    CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, void *user_data);
CUresult cuStreamBeginCaptureToCig(CUstream stream, CUstreamCigCaptureParams *params);
CUresult cuStreamBeginCaptureToCig_ptsz(CUstream stream, CUstreamCigCaptureParams *params);
CUresult cuStreamEndCaptureToCig(CUstream stream);
CUresult cuStreamEndCaptureToCig_ptsz(CUstream stream);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph);
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *capture_status_out, cuuint64_t *id_out);
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *capture_status_out, cuuint64_t *id_out,
    CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *num_dependencies_out);
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *capture_status_out, cuuint64_t *id_out,
    CUgraph *graph_out, const CUgraphNode **dependencies_out, const CUgraphEdgeData **edge_data_out,
    size_t *num_dependencies_out);
CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus *capture_status_out, cuuint64_t *id_out);
CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus *capture_status_out, cuuint64_t *id_out,
    CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *num_dependencies_out);
CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus *capture_status_out, cuuint64_t *id_out,
    CUgraph *graph_out, const CUgraphNode **dependencies_out, const CUgraphEdgeData **edge_data_out,
    size_t *num_dependencies_out);
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *capture_status);
CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *capture_status);
CUresult cuStreamUpdateCaptureDependencies(
    CUstream stream, CUgraphNode *dependencies, size_t num_dependencies, unsigned int flags);
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies,
    const CUgraphEdgeData *dependency_data, size_t num_dependencies, unsigned int flags);
CUresult cuStreamUpdateCaptureDependencies_ptsz(
    CUstream stream, CUgraphNode *dependencies, size_t num_dependencies, unsigned int flags);
CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream, CUgraphNode *dependencies,
    const CUgraphEdgeData *dependency_data, size_t num_dependencies, unsigned int flags);
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode);

/* Graphs. */
CUresult cuGraphAddBatchMemOpNode(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
    size_t num_dependencies, const CUDA_BATCH_MEM_OP_NODE_PARAMS *node_params);
CUresult cuGraphAddChildGraphNode(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
    size_t num_dependencies, CUgraph child_graph);
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t num_dependencies);
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
    const CUgraphEdgeData *edge_data, size_t num_dependencies);
CUresult cuGraphAddEmptyNode(
    CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies, size_t num_dependencies);
CUresult cuGraphAddEventRecordNode(
    CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies, size_t num_dependencies, CUevent event);
CUresult cuGraphAddEventWaitNode(
    CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies, size_t num_dependencies, CUevent event);
CUresult cuGraphAddHostNode(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
    size_t num_dependencies, const CUDA_HOST_NODE_PARAMS *node_params);
CUresult cuGraphAddKernelNode(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
    size_t num_dependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *node_params);
CUresult cuGraphAddKernelNode_v2(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
    size_t num_dependencies, const CUDA_KERNEL_NODE_PARAMS *node_params);
CUresult cuGraphAddMemAllocNode(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
    size_t num_dependencies, CUDA_MEM_ALLOC_NODE_PARAMS *node_params);
CUresult cuGraphAddMemFreeNode(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
    size_t num_dependencies, CUdeviceptr pointer);
CUresult cuGraphAddMemcpyNode(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
    size_t num_dependencies, const CUDA_MEMCPY3D *copy_params, CUcontext ctx);
CUresult cuGraphAddMemsetNode(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
    size_t num_dependencies, const CUDA_MEMSET_NODE_PARAMS *memset_params, CUcontext ctx);
CUresult cuGraphAddNode(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
    size_t num_dependencies, CUgraphNodeParams *node_params);
CUresult cuGraphAddNode_v2(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *dependency_data, size_t num_dependencies, CUgraphNodeParams *node_params);
CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *node_params_out);
CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *node_params);
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph);
CUresult cuGraphClone(CUgraph *graph_clone, CUgraph original_graph);
CUresult cuGraphCreate(CUgraph *graph, unsigned int flags);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGraphDestroyNode(CUgraphNode node);
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event_out);
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event);
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event_out);
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event);
CUresult cuGraphExecBatchMemOpNodeSetParams(
    CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *node_params);
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child_graph);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event);
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event);
CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags);
CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *node_params);
CUresult cuGraphExecKernelNodeSetParams(
    CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *node_params);
CUresult cuGraphExecKernelNodeSetParams_v2(
    CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *node_params);
CUresult cuGraphExecMemcpyNodeSetParams(
    CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy_params, CUcontext ctx);
CUresult cuGraphExecMemsetNodeSetParams(
    CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *memset_params, CUcontext ctx);
CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *node_params);
CUresult cuGraphExecUpdate(
    CUgraphExec exec, CUgraph graph, CUgraphNode *error_node_out, CUgraphExecUpdateResult *update_result_out);
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result_info);
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *num_edges);
CUresult cuGraphGetEdges_v2(
    CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edge_data, size_t *num_edges);
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *num_nodes);
CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *root_nodes, size_t *num_root_nodes);
CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *node_params);
CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *node_params);
CUresult cuGraphInstantiate(
    CUgraphExec *graph_exec, CUgraph graph, CUgraphNode *error_node, char *log_buffer, size_t buffer_size);
CUresult cuGraphInstantiate_v2(
    CUgraphExec *graph_exec, CUgraph graph, CUgraphNode *error_node, char *log_buffer, size_t buffer_size);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *graph_exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphInstantiateWithParams(
    CUgraphExec *graph_exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiate_params);
CUresult cuGraphInstantiateWithParams_ptsz(
    CUgraphExec *graph_exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiate_params);
CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src);
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attr, CUkernelNodeAttrValue *value_out);
CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *node_params);
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *node_params);
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue *value);
CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *node_params);
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *node_params);
CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream);
CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream);
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params_out);
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *dptr_out);
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *node_params);
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *node_params);
CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *node_params);
CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *node_params);
CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original_node, CUgraph cloned_graph);
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies, size_t *num_dependencies);
CUresult cuGraphNodeGetDependencies_v2(
    CUgraphNode node, CUgraphNode *dependencies, CUgraphEdgeData *edge_data, size_t *num_dependencies);
CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *dependent_nodes, size_t *num_dependent_nodes);
CUresult cuGraphNodeGetDependentNodes_v2(
    CUgraphNode node, CUgraphNode *dependent_nodes, CUgraphEdgeData *edge_data, size_t *num_dependent_nodes);
CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *is_enabled);
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type);
CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int is_enabled);
CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *node_params);
CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count);
CUresult cuGraphRemoveDependencies(
    CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t num_dependencies);
CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
    const CUgraphEdgeData *edge_data, size_t num_dependencies);
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags);
CUresult cuGraphUpload(CUgraphExec graph, CUstream stream);
CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream);
CUresult cuUserObjectCreate(
    CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initial_refcount, unsigned int flags);
CUresult cuUserObjectRelease(CUuserObject object, unsigned int count);
CUresult cuUserObjectRetain(CUuserObject object, unsigned int count);

/* Copies. */
CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes);
CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes);
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy);
CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *copy);
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream);
CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *copy, CUstream stream);
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy);
CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *copy);
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy);
CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *copy);
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream);
CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *copy, CUstream stream);
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy);
CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER *copy);
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream);
CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *copy, CUstream stream);
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
CUresult cuMemcpyAtoA_v2(CUarray dst_array, size_t dst_offset, CUarray src_array, size_t src_offset, size_t bytes);
CUresult cuMemcpyAtoA_v2_ptds(CUarray dst_array, size_t dst_offset, CUarray src_array, size_t src_offset, size_t bytes);
CUresult cuMemcpyAtoD_v2(CUdeviceptr dst_device, CUarray src_array, size_t src_offset, size_t bytes);
CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr dst_device, CUarray src_array, size_t src_offset, size_t bytes);
CUresult cuMemcpyAtoH_v2(void *dst_host, CUarray src_array, size_t src_offset, size_t bytes);
CUresult cuMemcpyAtoH_v2_ptds(void *dst_host, CUarray src_array, size_t src_offset, size_t bytes);
CUresult cuMemcpyAtoHAsync_v2(void *dst_host, CUarray src_array, size_t src_offset, size_t bytes, CUstream stream);
CUresult cuMemcpyAtoHAsync_v2_ptsz(void *dst_host, CUarray src_array, size_t src_offset, size_t bytes, CUstream stream);
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
    CUmemcpyAttributes *attrs, size_t *attrs_idxs, size_t num_attrs, CUstream stream);
CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
    CUmemcpyAttributes *attrs, size_t *attrs_idxs, size_t num_attrs, CUstream stream);
CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
    CUmemcpyAttributes *attrs, size_t *attrs_idxs, size_t num_attrs, size_t *fail_idx, CUstream stream);
CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
    CUmemcpyAttributes *attrs, size_t *attrs_idxs, size_t num_attrs, size_t *fail_idx, CUstream stream);
CUresult cuMemcpy3DBatchAsync(
    size_t num_ops, CUDA_MEMCPY3D_BATCH_OP *op_list, size_t *fail_idx, unsigned long long flags, CUstream stream);
CUresult cuMemcpy3DBatchAsync_ptsz(
    size_t num_ops, CUDA_MEMCPY3D_BATCH_OP *op_list, size_t *fail_idx, unsigned long long flags, CUstream stream);
CUresult cuMemcpy3DBatchAsync_v2(
    size_t num_ops, CUDA_MEMCPY3D_BATCH_OP *op_list, unsigned long long flags, CUstream stream);
CUresult cuMemcpy3DBatchAsync_v2_ptsz(
    size_t num_ops, CUDA_MEMCPY3D_BATCH_OP *op_list, unsigned long long flags, CUstream stream);
CUresult cuMemcpyWithAttributesAsync(
    CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attr, CUstream stream);
CUresult cuMemcpyWithAttributesAsync_ptsz(
    CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attr, CUstream stream);
CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream stream);
CUresult cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream stream);
CUresult cuFabricCpyBatchAsync(
    size_t num_ops, CUDA_FABRIC_COPY_BATCH_OP *op_list, unsigned long long flags, CUstream stream);
CUresult cuFabricCpyBatchAsync_ptsz(
    size_t num_ops, CUDA_FABRIC_COPY_BATCH_OP *op_list, unsigned long long flags, CUstream stream);
CUresult cuMemBatchDecompressAsync(
    CUmemDecompressParams *params_array, size_t count, unsigned int flags, size_t *error_index, CUstream stream);
CUresult cuMemBatchDecompressAsync_ptsz(
    CUmemDecompressParams *params_array, size_t count, unsigned int flags, size_t *error_index, CUstream stream);
CUresult cuMemcpyDtoA_v2(CUarray dst_array, size_t dst_offset, CUdeviceptr src_device, size_t bytes);
CUresult cuMemcpyDtoA_v2_ptds(CUarray dst_array, size_t dst_offset, CUdeviceptr src_device, size_t bytes);
CUresult cuMemcpyDtoD_v2(CUdeviceptr dst_device, CUdeviceptr src_device, size_t bytes);
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dst_device, CUdeviceptr src_device, size_t bytes);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst_device, CUdeviceptr src_device, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dst_device, CUdeviceptr src_device, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoH_v2(void *dst_host, CUdeviceptr src_device, size_t bytes);
CUresult cuMemcpyDtoH_v2_ptds(void *dst_host, CUdeviceptr src_device, size_t bytes);
CUresult cuMemcpyDtoHAsync_v2(void *dst_host, CUdeviceptr src_device, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2_ptsz(void *dst_host, CUdeviceptr src_device, size_t bytes, CUstream stream);
CUresult cuMemcpyHtoA_v2(CUarray dst_array, size_t dst_offset, const void *src_host, size_t bytes);
CUresult cuMemcpyHtoA_v2_ptds(CUarray dst_array, size_t dst_offset, const void *src_host, size_t bytes);
CUresult cuMemcpyHtoAAsync_v2(
    CUarray dst_array, size_t dst_offset, const void *src_host, size_t bytes, CUstream stream);
CUresult cuMemcpyHtoAAsync_v2_ptsz(
    CUarray dst_array, size_t dst_offset, const void *src_host, size_t bytes, CUstream stream);
CUresult cuMemcpyHtoD_v2(CUdeviceptr dst_device, const void *src_host, size_t bytes);
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dst_device, const void *src_host, size_t bytes);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst_device, const void *src_host, size_t bytes, CUstream stream);
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dst_device, const void *src_host, size_t bytes, CUstream stream);
CUresult cuMemcpyPeer(
    CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device, CUcontext src_context, size_t bytes);
CUresult cuMemcpyPeer_ptds(
    CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device, CUcontext src_context, size_t bytes);
CUresult cuMemcpyPeerAsync(CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device, CUcontext src_context,
    size_t bytes, CUstream stream);
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device,
    CUcontext src_context, size_t bytes, CUstream stream);

/* Sets. */
CUresult cuMemsetD16_v2(CUdeviceptr dst_device, unsigned short value, size_t count);
CUresult cuMemsetD16_v2_ptds(CUdeviceptr dst_device, unsigned short value, size_t count);
CUresult cuMemsetD16Async(CUdeviceptr dst_device, unsigned short value, size_t count, CUstream stream);
CUresult cuMemsetD16Async_ptsz(CUdeviceptr dst_device, unsigned short value, size_t count, CUstream stream);
CUresult cuMemsetD2D16_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned short value, size_t width, size_t height);
CUresult cuMemsetD2D16_v2_ptds(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned short value, size_t width, size_t height);
CUresult cuMemsetD2D16Async(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned short value, size_t width, size_t height, CUstream stream);
CUresult cuMemsetD2D16Async_ptsz(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned short value, size_t width, size_t height, CUstream stream);
CUresult cuMemsetD2D32_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned int value, size_t width, size_t height);
CUresult cuMemsetD2D32_v2_ptds(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned int value, size_t width, size_t height);
CUresult cuMemsetD2D32Async(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned int value, size_t width, size_t height, CUstream stream);
CUresult cuMemsetD2D32Async_ptsz(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned int value, size_t width, size_t height, CUstream stream);
CUresult cuMemsetD2D8_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned char value, size_t width, size_t height);
CUresult cuMemsetD2D8_v2_ptds(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned char value, size_t width, size_t height);
CUresult cuMemsetD2D8Async(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned char value, size_t width, size_t height, CUstream stream);
CUresult cuMemsetD2D8Async_ptsz(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned char value, size_t width, size_t height, CUstream stream);
CUresult cuMemsetD32_v2(CUdeviceptr dst_device, unsigned int value, size_t count);
CUresult cuMemsetD32_v2_ptds(CUdeviceptr dst_device, unsigned int value, size_t count);
CUresult cuMemsetD32Async(CUdeviceptr dst_device, unsigned int value, size_t count, CUstream stream);
CUresult cuMemsetD32Async_ptsz(CUdeviceptr dst_device, unsigned int value, size_t count, CUstream stream);
CUresult cuMemsetD8_v2(CUdeviceptr dst_device, unsigned char value, size_t count);
CUresult cuMemsetD8_v2_ptds(CUdeviceptr dst_device, unsigned char value, size_t count);
CUresult cuMemsetD8Async(CUdeviceptr dst_device, unsigned char value, size_t count, CUstream stream);
CUresult cuMemsetD8Async_ptsz(CUdeviceptr dst_device, unsigned char value, size_t count, CUstream stream);

/* Memory. */
CUresult cuIpcCloseMemHandle(CUdeviceptr pointer);
CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event);
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer);
CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle);
CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags);
CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size);
CUresult cuMemAddressReserve(
    CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags);
CUresult cuMemAdvise(CUdeviceptr dev_ptr, size_t count, CUmem_advise advice, CUdevice device);
CUresult cuMemAdvise_v2(CUdeviceptr dev_ptr, size_t count, CUmem_advise advice, CUmemLocation location);
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemAllocHost_v2(void **pp, size_t bytes);
CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags);
CUresult cuMemAllocPitch_v2(
    CUdeviceptr *pointer, size_t *pitch, size_t width_in_bytes, size_t height, unsigned int element_size_bytes);
CUresult cuMemCreate(
    CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags);
CUresult cuMemExportToShareableHandle(void *shareable_handle, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType handle_type, unsigned long long flags);
CUresult cuMemFree_v2(CUdeviceptr pointer);
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream);
CUresult cuMemFreeHost(void *p);
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr pointer);
CUresult cuMemGetAllocationGranularity(
    size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option);
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle);
CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type);
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type);
CUresult cuMemHostAlloc(void **pp, size_t bytes, unsigned int flags);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int flags);
CUresult cuMemHostGetFlags(unsigned int *flags, void *p);
CUresult cuMemHostRegister(void *p, size_t bytes, unsigned int flags);
CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags);
CUresult cuMemHostUnregister(void *p);
CUresult cuMemImportFromShareableHandle(
    CUmemGenericAllocationHandle *handle, void *os_handle, CUmemAllocationHandleType sh_handle_type);
CUresult cuMemMap(
    CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *pool_props);
CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool mem_pool, CUmemLocation *location);
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value);
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count);
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value);
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t min_bytes_to_keep);
CUresult cuMemPrefetchAsync(CUdeviceptr dev_ptr, size_t count, CUdevice dst_device, CUstream stream);
CUresult cuMemPrefetchAsync_v2(
    CUdeviceptr dev_ptr, size_t count, CUmemLocation location, unsigned int flags, CUstream stream);
CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr dev_ptr, size_t count, CUdevice dst_device, CUstream stream);
CUresult cuMemPrefetchAsync_v2_ptsz(
    CUdeviceptr dev_ptr, size_t count, CUmemLocation location, unsigned int flags, CUstream stream);
CUresult cuMemPrefetchBatchAsync(CUdeviceptr *pointers, size_t *sizes, size_t count, CUmemLocation *prefetch_locs,
    size_t *prefetch_loc_idxs, size_t num_prefetch_locs, unsigned long long flags, CUstream stream);
CUresult cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *pointers, size_t *sizes, size_t count, CUmemLocation *prefetch_locs,
    size_t *prefetch_loc_idxs, size_t num_prefetch_locs, unsigned long long flags, CUstream stream);
CUresult cuMemDiscardBatchAsync(
    CUdeviceptr *pointers, size_t *sizes, size_t count, unsigned long long flags, CUstream stream);
CUresult cuMemDiscardBatchAsync_ptsz(
    CUdeviceptr *pointers, size_t *sizes, size_t count, unsigned long long flags, CUstream stream);
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *pointers, size_t *sizes, size_t count,
    CUmemLocation *prefetch_locs, size_t *prefetch_loc_idxs, size_t num_prefetch_locs, unsigned long long flags,
    CUstream stream);
CUresult cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr *pointers, size_t *sizes, size_t count,
    CUmemLocation *prefetch_locs, size_t *prefetch_loc_idxs, size_t num_prefetch_locs, unsigned long long flags,
    CUstream stream);
CUresult cuMemRangeGetAttribute(
    void *data, size_t data_size, CUmem_range_attribute attribute, CUdeviceptr dev_ptr, size_t count);
CUresult cuMemRangeGetAttributes(void **data, size_t *data_sizes, CUmem_range_attribute *attributes,
    size_t num_attributes, CUdeviceptr dev_ptr, size_t count);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr);
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count);
CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool);
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size);
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr);
CUresult cuPointerGetAttributes(
    unsigned int num_attributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr);
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr);

/* Arrays. */
CUresult cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *allocate_array);
CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *array_descriptor, CUarray array);
CUresult cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *allocate_array);
CUresult cuArrayDestroy(CUarray array);
CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *array_descriptor, CUarray array);
CUresult cuArrayGetMemoryRequirements(
    CUDA_ARRAY_MEMORY_REQUIREMENTS *memory_requirements, CUarray array, CUdevice device);
CUresult cuMipmappedArrayCreate(
    CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *mipmapped_array_desc, unsigned int num_mipmap_levels);
CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmapped_array);
CUresult cuMipmappedArrayGetLevel(CUarray *level_array, CUmipmappedArray mipmapped_array, unsigned int level);
CUresult cuMipmappedArrayGetMemoryRequirements(
    CUDA_ARRAY_MEMORY_REQUIREMENTS *memory_requirements, CUmipmappedArray mipmap, CUdevice device);

CUresult cuTensorMapEncodeTiled(CUtensorMap *tensor_map, CUtensorMapDataType tensor_data_type, cuuint32_t tensor_rank,
    void *global_address, const cuuint64_t *global_dim, const cuuint64_t *global_strides, const cuuint32_t *box_dim,
    const cuuint32_t *element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion l2_promotion, CUtensorMapFloatOOBfill oob_fill);
CUresult cuTensorMapReplaceAddress(CUtensorMap *tensor_map, void *global_address);

/* Tools. */
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size);
CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size);

#pragma GCC visibility pop

#endif
