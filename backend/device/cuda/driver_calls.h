// The entry points of NVIDIA's driver that this device uses. Included by driver.h only.
#pragma once

// clang-format off: it would make stairs of this.
#define BANDSAW_CUDA_DRIVER(X) \
  X(cuInit) \
  X(cuDriverGetVersion) \
  X(cuGetErrorName) X(cuGetErrorString) \
  X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetUuid) X(cuDeviceTotalMem) \
  X(cuDeviceGetAttribute) X(cuDeviceGetDefaultMemPool) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxReset) \
  X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxSetFlags) \
  X(cuCtxCreate) X(cuCtxDestroy) X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuCtxGetLimit) X(cuCtxSetLimit) X(cuCtxResetPersistingL2Cache) \
  X(cuCtxGetStreamPriorityRange) \
  X(cuDeviceGetDevResource) X(cuDevSmResourceSplitByCount) X(cuDevResourceGenerateDesc) X(cuGreenCtxCreate) \
  X(cuGreenCtxDestroy) X(cuCtxFromGreenCtx) X(cuGreenCtxStreamCreate) \
  X(cuMemGetInfo) X(cuMemGetAddressRange) X(cuPointerGetAttribute) \
  X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate) X(cuMemRelease) X(cuMemMap) \
  X(cuMemUnmap) X(cuMemSetAccess) X(cuMemGetAllocationGranularity) X(cuMemGetAccess) \
  X(cuMemGetAllocationPropertiesFromHandle) X(cuMemExportToShareableHandle) \
  X(cuMemImportFromShareableHandle) X(cuIpcGetEventHandle) X(cuIpcOpenEventHandle) \
  X(cuMemHostRegister) X(cuMemHostUnregister) \
  X(cuMemAllocFromPoolAsync) X(cuMemFreeAsync) \
  X(cuMemPoolCreate) X(cuMemPoolDestroy) X(cuMemPoolTrimTo) X(cuMemPoolGetAttribute) X(cuMemPoolSetAttribute) \
  X(cuDeviceGetGraphMemAttribute) X(cuDeviceSetGraphMemAttribute) X(cuDeviceGraphMemTrim) X(cuGraphUpload) \
  X(cuArray3DCreate) X(cuArray3DGetDescriptor) X(cuArrayGetPlane) X(cuArrayDestroy) \
  X(cuMipmappedArrayCreate) X(cuMipmappedArrayGetLevel) X(cuMipmappedArrayDestroy) \
  X(cuTexObjectCreate) X(cuTexObjectDestroy) X(cuDeviceGetTexture1DLinearMaxWidth) \
  X(cuSurfObjectCreate) X(cuSurfObjectDestroy) \
  X(cuMemcpyAsync) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemcpy3DAsync) \
  X(cuMemsetD8Async) X(cuMemsetD16Async) X(cuMemsetD32Async) X(cuMemsetD2D8Async) X(cuMemsetD2D16Async) \
  X(cuMemsetD2D32Async) \
  X(cuStreamCreateWithPriority) X(cuStreamGetPriority) X(cuStreamDestroy) X(cuStreamQuery) \
  X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamAddCallback) \
  X(cuLaunchHostFunc) \
  X(cuStreamWriteValue32) X(cuStreamWriteValue64) X(cuStreamWaitValue32) X(cuStreamWaitValue64) \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecordWithFlags) X(cuEventQuery) X(cuEventSynchronize) \
  X(cuEventElapsedTime) \
  X(cuLibraryLoadData) X(cuLibraryUnload) X(cuLibraryGetKernel) X(cuLibraryGetGlobal) \
  X(cuLibraryGetKernelCount) X(cuLibraryEnumerateKernels) \
  X(cuKernelGetFunction) X(cuKernelGetName) X(cuKernelGetAttribute) X(cuKernelSetAttribute) X(cuKernelGetParamInfo) \
  X(cuLinkCreate) X(cuLinkAddData) X(cuLinkComplete) X(cuLinkDestroy) \
  X(cuModuleLoadDataEx) X(cuModuleUnload) X(cuModuleGetFunction) X(cuModuleGetGlobal) X(cuModuleGetFunctionCount) \
  X(cuModuleEnumerateFunctions) \
  X(cuFuncGetName) X(cuFuncGetAttribute) X(cuFuncSetAttribute) X(cuFuncGetParamInfo) \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(cuOccupancyMaxActiveClusters) \
  X(cuOccupancyMaxPotentialClusterSize) X(cuTensorMapEncodeTiled) X(cuTensorMapEncodeIm2col) \
  X(cuTensorMapEncodeIm2colWide) X(cuTensorMapReplaceAddress) \
  X(cuLaunchKernelEx) \
  X(cuStreamBeginCapture) X(cuStreamBeginCaptureToGraph) X(cuStreamEndCapture) X(cuStreamGetCaptureInfo) \
  X(cuStreamIsCapturing) X(cuStreamUpdateCaptureDependencies) \
  X(cuThreadExchangeStreamCaptureMode) \
  X(cuGraphCreate) X(cuGraphDestroy) X(cuGraphClone) X(cuGraphAddKernelNode) X(cuGraphAddMemcpyNode) \
  X(cuGraphAddMemsetNode) X(cuGraphAddHostNode) X(cuGraphAddChildGraphNode) X(cuGraphAddEmptyNode) \
  X(cuGraphConditionalHandleCreate) X(cuGraphAddNode) X(cuGraphNodeSetParams) \
  X(cuGraphAddEventRecordNode) X(cuGraphAddEventWaitNode) X(cuGraphAddMemAllocNode) X(cuGraphAddMemFreeNode) \
  X(cuGraphAddBatchMemOpNode) X(cuGraphBatchMemOpNodeGetParams) X(cuGraphBatchMemOpNodeSetParams) \
  X(cuGraphExecBatchMemOpNodeSetParams) \
  X(cuGraphGetNodes) X(cuGraphGetRootNodes) X(cuGraphGetEdges) X(cuGraphAddDependencies) \
  X(cuGraphRemoveDependencies) X(cuGraphNodeGetDependencies) X(cuGraphNodeGetDependentNodes) X(cuGraphNodeGetType) \
  X(cuGraphNodeFindInClone) X(cuGraphDestroyNode) X(cuGraphKernelNodeGetParams) X(cuGraphKernelNodeSetParams) \
  X(cuGraphKernelNodeGetAttribute) X(cuGraphKernelNodeSetAttribute) X(cuGraphMemcpyNodeGetParams) \
  X(cuGraphMemcpyNodeSetParams) X(cuGraphMemsetNodeGetParams) X(cuGraphMemsetNodeSetParams) \
  X(cuGraphHostNodeGetParams) X(cuGraphHostNodeSetParams) X(cuGraphChildGraphNodeGetGraph) \
  X(cuGraphEventRecordNodeSetEvent) \
  X(cuGraphEventWaitNodeSetEvent) X(cuGraphMemAllocNodeGetParams) X(cuGraphMemFreeNodeGetParams) \
  X(cuGraphInstantiateWithFlags) X(cuGraphExecDestroy) X(cuGraphExecUpdate) X(cuGraphLaunch) \
  X(cuGraphExecKernelNodeSetParams) X(cuGraphExecMemcpyNodeSetParams) X(cuGraphExecMemsetNodeSetParams) \
  X(cuGraphExecHostNodeSetParams) X(cuGraphExecChildGraphNodeSetParams) X(cuGraphExecEventRecordNodeSetEvent) \
  X(cuGraphExecEventWaitNodeSetEvent) X(cuGraphNodeSetEnabled) X(cuGraphNodeGetEnabled)

// Deprecated; a driver without them has no texture references.
#define BANDSAW_CUDA_OLD_DRIVER(X) \
  X(cuModuleGetTexRef) X(cuModuleGetSurfRef) X(cuTexRefSetArray) X(cuTexRefSetMipmappedArray) X(cuTexRefSetAddress) \
  X(cuTexRefSetAddress2D) X(cuTexRefSetFormat) X(cuTexRefSetAddressMode) X(cuTexRefSetFilterMode) X(cuTexRefSetFlags) \
  X(cuTexRefSetMipmapFilterMode) X(cuTexRefSetMipmapLevelBias) X(cuTexRefSetMipmapLevelClamp) \
  X(cuTexRefSetMaxAnisotropy) X(cuTexRefSetBorderColor) X(cuSurfRefSetArray)
// clang-format on
