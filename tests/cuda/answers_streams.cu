// What the driver answers of streams, events and captures, and what it refuses.
// nvcc: -lcuda
// same: yes
#include "answers_work.cuh"

using answers::context;
using answers::device;
using answers::done;
using answers::note;

static void streams() {
  CUstream stream = nullptr;
  for (unsigned flags : {0u, 1u, 2u, 3u})
    for (int priority : {-100, -6, -5, -1, 0, 1, 100}) {
      note("flags %u, priority %d", flags, priority);
      if (ASK(cuStreamCreateWithPriority(&stream, flags, priority))) continue;
      int got = 99;
      unsigned f = 99;
      ASK(cuStreamGetPriority(stream, &got), got);
      ASK(cuStreamGetFlags(stream, &f), f);
      ASK(cuStreamDestroy(stream));
    }
  note("");
  for (unsigned flags : {0u, 1u, 2u}) {
    note("flags %u", flags);
    if (!ASK(cuStreamCreate(&stream, flags))) ASK(cuStreamDestroy(stream));
  }
  note("");
  ASK(cuStreamCreate(nullptr, 0));
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const struct {
    const char* name;
    CUstream at;
  } all[] = {{"null", nullptr}, {"legacy", CU_STREAM_LEGACY}, {"per thread", CU_STREAM_PER_THREAD}, {"own", stream}};
  CUevent event;
  NEED(cuEventCreate(&event, 0));
  for (const auto& each : all) {
    note("%s", each.name);
    int priority = 99;
    unsigned flags = 99;
    unsigned long long id = 0;
    CUcontext of = nullptr;
    CUdevice on = 9;
    CUstreamCaptureStatus status{};
    ASK(cuStreamGetPriority(each.at, &priority), priority);
    ASK(cuStreamGetPriority(each.at, nullptr));
    ASK(cuStreamGetFlags(each.at, &flags), flags);
    ASK(cuStreamGetFlags(each.at, nullptr));
    ASK(cuStreamGetId(each.at, &id), id > 0);
    ASK(cuStreamGetCtx(each.at, &of), of == context);
    ASK(cuStreamGetDevice(each.at, &on), on);
    ASK(cuStreamQuery(each.at));
    ASK(cuStreamSynchronize(each.at));
    ASK(cuStreamIsCapturing(each.at, &status), status);
    ASK(cuStreamIsCapturing(each.at, nullptr));
    ASK(cuEventRecord(event, each.at));
    ASK(cuStreamWaitEvent(each.at, event, 0));
    ASK(cuStreamWaitEvent(each.at, event, 1));
    ASK(cuStreamWaitEvent(each.at, event, 2));
    ASK(cuStreamWaitEvent(each.at, nullptr, 0));
    ASK(cuLaunchHostFunc(each.at, nullptr, nullptr));
    ASK(cuStreamAddCallback(each.at, nullptr, nullptr, 0));
    for (int i = 0; i < 18; ++i) {
      CUlaunchAttributeValue value{};
      note("%s, attribute %d", each.name, i);
      ASK(cuStreamGetAttribute(each.at, static_cast<CUstreamAttrID>(i), &value), i == 1 ? 0 : value.cooperative);
      for (int wanted : {0, 1, 2, 3, 4, 9}) {
        if (i == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) break;
        note("%s, attribute %d, %d", each.name, i, wanted);
        std::memset(&value, 0, sizeof value);
        value.cooperative = wanted;
        if (ASK(cuStreamSetAttribute(each.at, static_cast<CUstreamAttrID>(i), &value))) continue;
        std::memset(&value, 0, sizeof value);
        ASK(cuStreamGetAttribute(each.at, static_cast<CUstreamAttrID>(i), &value), value.cooperative);
      }
    }
    note("%s", each.name);
    ASK(cuStreamCopyAttributes(each.at, stream));
  }
  note("");
  ASK(cuStreamDestroy(nullptr));
  ASK(cuStreamDestroy(stream));
  done("streams");
}

static void events() {
  CUevent event = nullptr, first = nullptr, second = nullptr, silent = nullptr;
  for (unsigned flags : {0u, 1u, 2u, 3u, 4u, 6u, 7u, 8u, 16u}) {
    note("flags %u", flags);
    if (!ASK(cuEventCreate(&event, flags))) ASK(cuEventDestroy(event));
  }
  note("");
  ASK(cuEventCreate(nullptr, 0));
  NEED(cuEventCreate(&first, 0));
  NEED(cuEventCreate(&second, 0));
  NEED(cuEventCreate(&silent, CU_EVENT_DISABLE_TIMING));
  float ms = -1;
  ASK(cuEventQuery(first));
  ASK(cuEventSynchronize(first));
  ASK(cuEventElapsedTime(&ms, first, second));
  ASK(cuEventRecord(first, nullptr));
  ASK(cuEventElapsedTime(&ms, first, second));
  ASK(cuEventElapsedTime(&ms, second, first));
  ASK(cuCtxSynchronize());
  ASK(cuEventElapsedTime(&ms, first, second));
  ASK(cuEventElapsedTime(&ms, first, first), ms == 0);
  ASK(cuEventRecord(second, nullptr));
  ASK(cuEventSynchronize(second));
  ASK(cuEventElapsedTime(&ms, first, second), ms >= 0);
  ASK(cuEventElapsedTime(nullptr, first, second));
  ASK(cuEventElapsedTime(&ms, nullptr, second));
  ASK(cuEventElapsedTime(&ms, silent, second));
  ASK(cuEventRecord(silent, nullptr));
  ASK(cuEventSynchronize(silent));
  ASK(cuEventElapsedTime(&ms, silent, second));
  ASK(cuEventElapsedTime(&ms, first, silent));
  for (unsigned flags : {0u, 1u, 2u}) {
    note("record flags %u", flags);
    ASK(cuEventRecordWithFlags(first, nullptr, flags));
  }
  note("");
  ASK(cuEventRecord(nullptr, nullptr));
  ASK(cuEventQuery(nullptr));
  ASK(cuEventSynchronize(nullptr));
  ASK(cuEventDestroy(nullptr));
  for (CUevent each : {first, second, silent}) ASK(cuEventDestroy(each));
  done("events");
}

static void state(CUstream stream) {
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  size_t count = 99, in_graph = 99;
  ASK(cuStreamIsCapturing(stream, &status), status);
  const CUgraphEdgeData* edges = nullptr;
  if (!ASK(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count), status, id > 0,
           graph != nullptr, status == 1 ? count : 0) &&
      status == 1 && graph)
    ASK(cuGraphGetNodes(graph, nullptr, &in_graph), in_graph);
}

static void end(CUstream stream) {
  CUgraph graph = nullptr;
  size_t nodes = 0;
  if (!ASK(cuStreamEndCapture(stream, &graph), graph != nullptr) && graph) {
    ASK(cuGraphGetNodes(graph, nullptr, &nodes), nodes);
    ASK(cuGraphDestroy(graph));
  }
  state(stream);
}

static void captures() {
  CUstream stream, side, blocking;
  CUevent event, other;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  NEED(cuStreamCreate(&blocking, 0));
  NEED(cuEventCreate(&event, 0));
  NEED(cuEventCreate(&other, 0));
  for (int mode : {-1, 3}) {
    note("mode %d", mode);
    ASK(cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode)));
  }
  note("");
  ASK(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASK(cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL));
  end(stream);
  CUgraph small;
  CUgraphExec exec, again;
  CUgraphNode nothing;
  CUdeviceptr managed;
  NEED(cuGraphCreate(&small, 0));
  NEED(cuGraphAddEmptyNode(&nothing, small, nullptr, 0));
  NEED(cuGraphInstantiate(&exec, small, 0));
  NEED(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  for (int mode = 0; mode < 3; ++mode)
    for (int what = 0; what < 43; ++what)
      for (CUstream on : {stream, blocking}) {
        CUgraph graph = nullptr;
        CUdeviceptr made = 0;
        CUmodule module;
        CUfunction unused;
        float ms;
        int words[4] = {};
        size_t f, t;
        note("mode %d, %s stream, call %d", mode, on == stream ? "non-blocking" : "blocking", what);
        if (cuStreamBeginCapture(on, static_cast<CUstreamCaptureMode>(mode))) {
          ASK(cuStreamBeginCapture(on, static_cast<CUstreamCaptureMode>(mode)));
          continue;
        }
        NEED(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, on, nullptr, nullptr));
        switch (what) {
          case 0:
            ASK(cuStreamSynchronize(on));
            break;
          case 1:
            ASK(cuStreamQuery(on));
            break;
          case 2:
            ASK(cuCtxSynchronize());
            break;
          case 3:
            if (!ASK(cuMemAlloc(&made, 64))) made ? cuMemFree(made) : CUDA_SUCCESS;
            break;
          case 4:
            ASK(cuMemcpyHtoD(memory, words, 16));
            break;
          case 5:
            ASK(cuMemcpyHtoDAsync(memory, words, 16, on));
            break;
          case 6:
            ASK(cuMemsetD8(memory, 1, 16));
            break;
          case 7:
            ASK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
            break;
          case 8:
            ASK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, side, nullptr, nullptr));
            break;
          case 9:
            ASK(cuEventRecord(event, on));
            ASK(cuEventQuery(event));
            break;
          case 10:
            ASK(cuEventRecord(event, on));
            ASK(cuEventSynchronize(event));
            break;
          case 11:
            ASK(cuEventRecord(event, on));
            ASK(cuStreamWaitEvent(side, event, 0));
            state(side);
            break;
          case 12:
            ASK(cuEventRecord(event, on));
            ASK(cuStreamWaitEvent(side, event, 0));
            ASK(cuEventRecord(other, side));
            ASK(cuStreamWaitEvent(on, other, 0));
            break;
          case 13:
            ASK(cuEventRecord(event, on));
            ASK(cuStreamWaitEvent(side, event, 0));
            ASK(cuStreamEndCapture(side, &graph));
            state(side);
            break;
          case 14:
            ASK(cuStreamBeginCapture(on, CU_STREAM_CAPTURE_MODE_GLOBAL));
            break;
          case 15:
            ASK(cuModuleLoadData(&module, kPtx));
            break;
          case 16:
            if (!ASK(cuMemAllocAsync(&made, 64, on))) ASK(cuMemFreeAsync(made, on));
            break;
          case 17:
            ASK(cuMemGetInfo(&f, &t));
            break;
          case 18:
            ASK(cuStreamDestroy(on == stream ? side : side));
            NEED(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
            break;
          case 19:
            ASK(cuEventRecord(event, side));
            ASK(cuStreamWaitEvent(on, event, 0));
            ASK(cuEventRecordWithFlags(event, on, CU_EVENT_RECORD_EXTERNAL));
            ASK(cuStreamWaitEvent(on, event, CU_EVENT_WAIT_EXTERNAL));
            break;
          case 20:
            ASK(cuEventRecord(event, nullptr));
            break;
          case 21:
            ASK(cuStreamWaitEvent(nullptr, event, 0));
            break;
          case 22:
            ASK(cuEventElapsedTime(&ms, event, other));
            break;
          case 23:
            ASK(cuStreamUpdateCaptureDependencies(on, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
            break;
          case 24:
            ASK(cuStreamUpdateCaptureDependencies(on, nullptr, nullptr, 0, 9));
            break;
          case 25:
            ASK(cuStreamAddCallback(on, [](CUstream, CUresult, void*) {}, nullptr, 0));
            break;
          case 26:
            ASK(cuLaunchHostFunc(on, [](void*) {}, nullptr));
            break;
          case 27:
            ASK(cuMemcpyDtoD(memory, memory + 64, 16));
            break;
          case 28:
            ASK(cuModuleGetFunction(&unused, nullptr, "x"));
            break;
          case 29:
            ASK(cuStreamWriteValue32(on, memory, 1, 0));
            break;
          case 30:
            ASK(cuMemHostRegister(words, 16, 0));
            cuMemHostUnregister(words);
            break;
          case 31:
            ASK(cuStreamSynchronize(side));
            break;
          case 32:
            ASK(cuEventRecord(event, side));
            ASK(cuEventSynchronize(event));
            break;
          case 33:
            ASK(cuStreamQuery(nullptr));
            ASK(cuStreamSynchronize(nullptr));
            break;
          case 34:
            if (!ASK(cuGraphInstantiate(&again, small, 0))) cuGraphExecDestroy(again);
            break;
          case 35:
            ASK(cuGraphLaunch(exec, on));
            break;
          case 36:
            ASK(cuGraphLaunch(exec, side));
            break;
          case 37:
            ASK(cuGraphUpload(exec, on));
            break;
          case 38:
            if (!ASK(cuMemAllocAsync(&made, 64, side))) cuMemFreeAsync(made, side);
            break;
          case 39:
            if (!ASK(cuMemAllocAsync(&made, 64, nullptr))) cuMemFreeAsync(made, nullptr);
            break;
          case 40:
            ASK(cuLaunchKernel(kernel, 0, 1, 1, 1, 1, 1, 0, on, nullptr, nullptr));
            break;
          case 41:
            ASK(cuStreamAttachMemAsync(on, managed, 0, CU_MEM_ATTACH_GLOBAL));
            break;
          case 42:
            ASK(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
            break;
        }
        state(on);
        end(on);
      }
  note("");
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(small));
  NEED(cuMemFree(managed));
  CUstreamCaptureMode m = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASK(cuThreadExchangeStreamCaptureMode(&m), m);
  ASK(cuThreadExchangeStreamCaptureMode(&m), m);
  m = static_cast<CUstreamCaptureMode>(7);
  ASK(cuThreadExchangeStreamCaptureMode(&m));
  done("captures");
}

int main() {
  answers::begin();
  make_work();
  streams();
  events();
  captures();
  return answers::passed();
}
