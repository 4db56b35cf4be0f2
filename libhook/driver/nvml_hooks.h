/*
 * nvml_hooks.h - the NVML functions we know, once. No include guard: include it with the macros you need.
 *
 *     HOOK(symbol, class)    the library puts its own function in the place of NVML's
 *     PASS(symbol)           left alone: no memory figure of the tenant in it. The simulated NVML has it.
 *
 * class VIRTUAL: answers with the tenant's own figures (driver/cuda_hooks.h has the other classes).
 * nvmlErrorString, which returns no nvmlReturn_t, stands in nvml_abi.h only.
 */
#ifndef HOOK
#define HOOK(symbol, class_)
#endif
#ifndef PASS
#define PASS(symbol)
#endif

/* Start, stop, errors. */
PASS(nvmlInit)
PASS(nvmlInit_v2)
PASS(nvmlInitWithFlags)
PASS(nvmlShutdown)

/* System. */
PASS(nvmlSystemGetDriverVersion)
PASS(nvmlSystemGetNVMLVersion)
PASS(nvmlSystemGetCudaDriverVersion)
PASS(nvmlSystemGetCudaDriverVersion_v2)
PASS(nvmlSystemGetProcessName)
PASS(nvmlUnitGetCount)

/* Devices. */
PASS(nvmlDeviceGetCount)
PASS(nvmlDeviceGetCount_v2)
PASS(nvmlDeviceGetHandleByIndex)
PASS(nvmlDeviceGetHandleByIndex_v2)
PASS(nvmlDeviceGetHandleBySerial)
PASS(nvmlDeviceGetHandleByUUID)
PASS(nvmlDeviceGetHandleByPciBusId)
PASS(nvmlDeviceGetHandleByPciBusId_v2)
PASS(nvmlDeviceGetName)
PASS(nvmlDeviceGetIndex)
PASS(nvmlDeviceGetUUID)
PASS(nvmlDeviceGetSerial)
PASS(nvmlDeviceGetMinorNumber)
PASS(nvmlDeviceGetBrand)
PASS(nvmlDeviceGetArchitecture)
PASS(nvmlDeviceGetBoardId)
PASS(nvmlDeviceGetMultiGpuBoard)
PASS(nvmlDeviceGetCudaComputeCapability)
PASS(nvmlDeviceGetPciInfo)
PASS(nvmlDeviceGetPciInfo_v2)
PASS(nvmlDeviceGetPciInfo_v3)
PASS(nvmlDeviceGetNumGpuCores)
PASS(nvmlDeviceGetMemoryBusWidth)
PASS(nvmlDeviceGetVbiosVersion)
PASS(nvmlDeviceGetBoardPartNumber)

/* Memory. */
HOOK(nvmlDeviceGetMemoryInfo, VIRTUAL)
HOOK(nvmlDeviceGetMemoryInfo_v2, VIRTUAL)
PASS(nvmlDeviceGetBAR1MemoryInfo)

/* Utilisation and processes. */
HOOK(nvmlDeviceGetUtilizationRates, VIRTUAL)
HOOK(nvmlDeviceGetProcessUtilization, VIRTUAL)
HOOK(nvmlDeviceGetProcessesUtilizationInfo, VIRTUAL)
PASS(nvmlDeviceGetEncoderUtilization)
PASS(nvmlDeviceGetDecoderUtilization)
HOOK(nvmlDeviceGetComputeRunningProcesses, VIRTUAL)
HOOK(nvmlDeviceGetComputeRunningProcesses_v2, VIRTUAL)
HOOK(nvmlDeviceGetComputeRunningProcesses_v3, VIRTUAL)
HOOK(nvmlDeviceGetGraphicsRunningProcesses, VIRTUAL)
HOOK(nvmlDeviceGetGraphicsRunningProcesses_v2, VIRTUAL)
HOOK(nvmlDeviceGetGraphicsRunningProcesses_v3, VIRTUAL)
HOOK(nvmlDeviceGetMPSComputeRunningProcesses, VIRTUAL)
HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v2, VIRTUAL)
HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v3, VIRTUAL)
PASS(nvmlDeviceGetAccountingMode)
PASS(nvmlDeviceGetAccountingStats)
PASS(nvmlDeviceGetAccountingPids)
PASS(nvmlDeviceGetAccountingBufferSize)

/* Power, clocks, temperature. */
PASS(nvmlDeviceGetTemperature)
PASS(nvmlDeviceGetTemperatureV)
PASS(nvmlDeviceGetTemperatureThreshold)
PASS(nvmlDeviceGetPowerUsage)
PASS(nvmlDeviceGetPowerManagementMode)
PASS(nvmlDeviceGetPowerManagementLimit)
PASS(nvmlDeviceGetPowerManagementDefaultLimit)
PASS(nvmlDeviceGetPowerManagementLimitConstraints)
PASS(nvmlDeviceGetEnforcedPowerLimit)
PASS(nvmlDeviceGetTotalEnergyConsumption)
PASS(nvmlDeviceGetPowerState)
PASS(nvmlDeviceGetPerformanceState)
PASS(nvmlDeviceGetNumFans)
PASS(nvmlDeviceGetFanSpeed)
PASS(nvmlDeviceGetFanSpeed_v2)
PASS(nvmlDeviceGetClockInfo)
PASS(nvmlDeviceGetMaxClockInfo)
PASS(nvmlDeviceGetClock)
PASS(nvmlDeviceGetCurrentClocksThrottleReasons)
PASS(nvmlDeviceGetCurrentClocksEventReasons)

/* Modes. */
PASS(nvmlDeviceGetComputeMode)
PASS(nvmlDeviceGetPersistenceMode)
PASS(nvmlDeviceGetDisplayActive)
PASS(nvmlDeviceGetDisplayMode)
PASS(nvmlDeviceGetEccMode)
PASS(nvmlDeviceGetTotalEccErrors)
PASS(nvmlDeviceGetMemoryErrorCounter)
PASS(nvmlDeviceGetMigMode)
PASS(nvmlDeviceGetMaxMigDeviceCount)
PASS(nvmlDeviceGetMigDeviceHandleByIndex)
PASS(nvmlDeviceIsMigDeviceHandle)
PASS(nvmlDeviceGetDriverModel)
PASS(nvmlDeviceGetDriverModel_v2)
PASS(nvmlDeviceGetVirtualizationMode)

/* Links and affinity. */
PASS(nvmlDeviceGetCurrPcieLinkGeneration)
PASS(nvmlDeviceGetMaxPcieLinkGeneration)
PASS(nvmlDeviceGetGpuMaxPcieLinkGeneration)
PASS(nvmlDeviceGetCurrPcieLinkWidth)
PASS(nvmlDeviceGetMaxPcieLinkWidth)
PASS(nvmlDeviceGetPcieReplayCounter)
PASS(nvmlDeviceGetPcieThroughput)
PASS(nvmlDeviceGetCpuAffinity)
PASS(nvmlDeviceGetCpuAffinityWithinScope)
PASS(nvmlDeviceGetMemoryAffinity)
PASS(nvmlDeviceGetNumaNodeId)
PASS(nvmlDeviceGetTopologyCommonAncestor)
PASS(nvmlDeviceGetTopologyNearestGpus)
PASS(nvmlDeviceOnSameBoard)
PASS(nvmlDeviceGetP2PStatus)
PASS(nvmlDeviceGetNvLinkState)
PASS(nvmlDeviceGetNvLinkCapability)
PASS(nvmlDeviceGetNvLinkVersion)
PASS(nvmlDeviceGetNvLinkRemotePciInfo_v2)
PASS(nvmlDeviceGetNvLinkRemoteDeviceType)
PASS(nvmlDeviceGetGpuFabricInfoV)

/* Events and fields. */
PASS(nvmlDeviceGetSupportedEventTypes)
PASS(nvmlDeviceRegisterEvents)
PASS(nvmlEventSetCreate)
PASS(nvmlEventSetWait)
PASS(nvmlEventSetWait_v2)
PASS(nvmlEventSetFree)
PASS(nvmlDeviceGetFieldValues)

#undef HOOK
#undef PASS
