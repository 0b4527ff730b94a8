// What the driver answers of graphs, and what it refuses.
// nvcc: -lcuda
// same: yes
#include "answers_work.cuh"

using answers::context;
using answers::device;
using answers::done;
using answers::note;

static void graphs() {
  CUgraph graph = nullptr, second = nullptr;
  ASK(cuGraphCreate(nullptr, 0));
  ASK(cuGraphCreate(&graph, 1));
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphCreate(&second, 0));
  CUgraphNode a = nullptr, b = nullptr, c = nullptr, foreign = nullptr, none = nullptr;
  ASK(cuGraphAddEmptyNode(&a, graph, nullptr, 0), a != nullptr);
  ASK(cuGraphAddEmptyNode(&b, graph, &a, 1), b != nullptr);
  ASK(cuGraphAddEmptyNode(&foreign, second, nullptr, 0), foreign != nullptr);
  CUgraphNode twice[] = {a, a}, with_null[] = {a, nullptr};
  ASK(cuGraphAddEmptyNode(&c, graph, twice, 2));
  ASK(cuGraphAddEmptyNode(&c, graph, with_null, 2));
  ASK(cuGraphAddEmptyNode(&c, graph, &foreign, 1));
  ASK(cuGraphAddEmptyNode(&c, graph, nullptr, 1));
  ASK(cuGraphAddEmptyNode(nullptr, graph, nullptr, 0));
  ASK(cuGraphAddEmptyNode(&none, nullptr, nullptr, 0));
  CUDA_KERNEL_NODE_PARAMS k{};
  k.func = kernel;
  k.gridDimX = k.gridDimY = k.gridDimZ = k.blockDimX = k.blockDimY = k.blockDimZ = 1;
  CUgraphNode work = nullptr, fill = nullptr, copy = nullptr, host = nullptr, child = nullptr;
  ASK(cuGraphAddKernelNode(&work, graph, &b, 1, &k), work != nullptr);
  ASK(cuGraphAddKernelNode(&c, graph, nullptr, 0, nullptr));
  for (int wrong = 0; wrong < 6; ++wrong) {
    CUDA_KERNEL_NODE_PARAMS w = k;
    if (wrong == 0) w.gridDimX = 0;
    if (wrong == 1) w.blockDimX = 2000;
    if (wrong == 2) w.func = nullptr;
    if (wrong == 3) w.sharedMemBytes = 60000;
    if (wrong == 4) w.blockDimZ = 65;
    if (wrong == 5) w.gridDimY = 70000;
    note("kernel node, %d", wrong);
    ASK(cuGraphAddKernelNode(&c, graph, nullptr, 0, &w));
    if (work) ASK(cuGraphKernelNodeSetParams(work, &w));
  }
  note("");
  CUDA_MEMSET_NODE_PARAMS s{};
  s.dst = memory, s.elementSize = 4, s.width = 16, s.height = 1, s.value = 7;
  ASK(cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &s, context), fill != nullptr);
  for (int wrong = 0; wrong < 9; ++wrong) {
    CUDA_MEMSET_NODE_PARAMS w = s;
    if (wrong == 0) w.elementSize = 3;
    if (wrong == 1) w.width = 0;
    if (wrong == 2) w.height = 0;
    if (wrong == 3) w.height = 2, w.pitch = 8;
    if (wrong == 4) w.height = 2, w.pitch = 64;
    if (wrong == 5) w.dst = 0;
    if (wrong == 6) w.dst = memory + 1;
    if (wrong == 7) w.elementSize = 0;
    if (wrong == 8) w.elementSize = 1, w.value = 0x1ff;
    note("memset node, %d", wrong);
    CUgraphNode made = nullptr;
    if (!ASK(cuGraphAddMemsetNode(&made, graph, nullptr, 0, &w, context)) && made) ASK(cuGraphDestroyNode(made));
    if (fill) ASK(cuGraphMemsetNodeSetParams(fill, &w));
  }
  note("");
  if (fill) ASK(cuGraphMemsetNodeSetParams(fill, &s));
  CUDA_MEMCPY3D m{};
  int words[64] = {};
  m.srcMemoryType = CU_MEMORYTYPE_HOST, m.srcHost = words, m.dstMemoryType = CU_MEMORYTYPE_DEVICE, m.dstDevice = memory;
  m.WidthInBytes = 64, m.Height = m.Depth = 1;
  ASK(cuGraphAddMemcpyNode(&copy, graph, nullptr, 0, &m, context), copy != nullptr);
  for (int wrong = 0; wrong < 5; ++wrong) {
    CUDA_MEMCPY3D w = m;
    if (wrong == 0) w.WidthInBytes = 0;
    if (wrong == 1) w.srcHost = nullptr;
    if (wrong == 2) w.Height = 2;
    if (wrong == 3) w.dstMemoryType = static_cast<CUmemorytype>(9);
    if (wrong == 4) w.Height = 0;
    CUgraphNode made = nullptr;
    note("memcpy node, %d", wrong);
    if (!ASK(cuGraphAddMemcpyNode(&made, graph, nullptr, 0, &w, context)) && made) ASK(cuGraphDestroyNode(made));
  }
  note("");
  CUDA_HOST_NODE_PARAMS h{};
  ASK(cuGraphAddHostNode(&host, graph, nullptr, 0, &h));
  h.fn = [](void*) {};
  ASK(cuGraphAddHostNode(&host, graph, nullptr, 0, &h), host != nullptr);
  ASK(cuGraphAddChildGraphNode(&child, graph, nullptr, 0, second), child != nullptr);
  ASK(cuGraphAddChildGraphNode(&none, graph, nullptr, 0, nullptr));
  CUevent event;
  NEED(cuEventCreate(&event, 0));
  CUgraphNode record = nullptr, wait = nullptr;
  ASK(cuGraphAddEventRecordNode(&record, graph, nullptr, 0, event), record != nullptr);
  ASK(cuGraphAddEventWaitNode(&wait, graph, nullptr, 0, event), wait != nullptr);
  ASK(cuGraphAddEventRecordNode(&none, graph, nullptr, 0, nullptr));
  for (CUgraphNode node : {a, work, fill, copy, host, child, record, wait}) {
    CUgraphNodeType type{};
    size_t n = 99;
    if (!node) continue;
    ASK(cuGraphNodeGetType(node, &type), type);
    ASK(cuGraphNodeGetType(node, nullptr));
    ASK(cuGraphNodeGetDependencies(node, nullptr, nullptr, &n), n);
    ASK(cuGraphNodeGetDependentNodes(node, nullptr, nullptr, &n), n);
    CUDA_KERNEL_NODE_PARAMS kp{};
    CUDA_MEMSET_NODE_PARAMS sp{};
    CUDA_MEMCPY3D mp{};
    CUDA_HOST_NODE_PARAMS hp{};
    CUgraph of = nullptr;
    CUevent e = nullptr;
    ASK(cuGraphKernelNodeGetParams(node, &kp), kp.gridDimX, kp.func == kernel);
    ASK(cuGraphMemsetNodeGetParams(node, &sp), sp.dst - memory, sp.elementSize, sp.width, sp.height, sp.value);
    ASK(cuGraphMemcpyNodeGetParams(node, &mp), mp.WidthInBytes, mp.Height, mp.Depth, mp.srcMemoryType,
        mp.dstMemoryType);
    ASK(cuGraphHostNodeGetParams(node, &hp), hp.fn == h.fn);
    ASK(cuGraphChildGraphNodeGetGraph(node, &of), of != nullptr, of != second);
    ASK(cuGraphEventRecordNodeGetEvent(node, &e), e == event);
    ASK(cuGraphEventWaitNodeGetEvent(node, &e), e == event);
    CUdeviceptr freed = 0;
    ASK(cuGraphMemFreeNodeGetParams(node, &freed));
  }
  size_t n = 0, edges = 0;
  CUgraphNode list[32] = {}, to[32] = {};
  ASK(cuGraphGetNodes(graph, nullptr, &n), n);
  n = 3;
  ASK(cuGraphGetNodes(graph, list, &n), n, list[2] != nullptr, list[3] == nullptr);
  n = 32;
  ASK(cuGraphGetNodes(graph, list, &n), n, list[n] == nullptr);
  ASK(cuGraphGetNodes(graph, list, nullptr));
  ASK(cuGraphGetRootNodes(graph, nullptr, &n), n);
  ASK(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges), edges);
  edges = 1;
  ASK(cuGraphGetEdges(graph, list, to, nullptr, &edges), edges);
  edges = 32;
  ASK(cuGraphGetEdges(graph, list, nullptr, nullptr, &edges), edges);
  ASK(cuGraphAddDependencies(graph, &a, &b, nullptr, 1));
  ASK(cuGraphAddDependencies(graph, &a, &a, nullptr, 1));
  CUgraphExec exec = nullptr;
  note("a cycle");
  ASK(cuGraphAddDependencies(graph, &b, &a, nullptr, 1));
  ASK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  ASK(cuGraphRemoveDependencies(graph, &b, &a, nullptr, 1));
  note("");
  ASK(cuGraphAddDependencies(graph, &a, &foreign, nullptr, 1));
  ASK(cuGraphAddDependencies(graph, nullptr, nullptr, nullptr, 0));
  ASK(cuGraphAddDependencies(graph, nullptr, &b, nullptr, 1));
  ASK(cuGraphRemoveDependencies(graph, &a, &work, nullptr, 1));
  ASK(cuGraphRemoveDependencies(graph, &a, &b, nullptr, 1));
  ASK(cuGraphRemoveDependencies(graph, &a, &b, nullptr, 1));
  ASK(cuGraphAddDependencies(graph, &a, &b, nullptr, 1));
  for (unsigned long long flags : {0ull, 1ull, 2ull, 4ull, 8ull, 16ull, 3ull, 12ull}) {
    cuuint64_t back = 99;
    note("instantiate, flags %llu", flags);
    if (ASK(cuGraphInstantiateWithFlags(&exec, graph, flags), exec != nullptr)) continue;
    ASK(cuGraphExecGetFlags(exec, &back), back);
    ASK(cuGraphExecDestroy(exec));
  }
  note("");
  ASK(cuGraphInstantiateWithFlags(nullptr, graph, 0));
  ASK(cuGraphInstantiateWithFlags(&exec, nullptr, 0));
  NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
  ASK(cuGraphLaunch(exec, nullptr));
  ASK(cuGraphUpload(exec, nullptr));
  ASK(cuGraphLaunch(nullptr, nullptr));
  ASK(cuCtxSynchronize());
  for (CUgraphNode node : {a, work, fill, copy, host, child, record, foreign}) {
    unsigned enabled = 9;
    CUgraphNodeType type{};
    cuGraphNodeGetType(node, &type);
    note("node of type %d", type);
    ASK(cuGraphNodeGetEnabled(exec, node, &enabled), enabled);
    ASK(cuGraphNodeSetEnabled(exec, node, 0));
    ASK(cuGraphNodeGetEnabled(exec, node, &enabled), enabled);
    ASK(cuGraphNodeSetEnabled(exec, node, 2));
    ASK(cuGraphNodeGetEnabled(exec, node, &enabled), enabled);
    ASK(cuGraphExecKernelNodeSetParams(exec, node, &k));
    ASK(cuGraphExecMemsetNodeSetParams(exec, node, &s, context));
    ASK(cuGraphExecMemcpyNodeSetParams(exec, node, &m, context));
    ASK(cuGraphExecHostNodeSetParams(exec, node, &h));
    ASK(cuGraphExecEventRecordNodeSetEvent(exec, node, event));
    ASK(cuGraphExecEventWaitNodeSetEvent(exec, node, event));
  }
  for (int change = 0; change < 8; ++change) {
    CUDA_KERNEL_NODE_PARAMS w = k;
    CUDA_MEMSET_NODE_PARAMS ws = s;
    if (change == 0) w.func = other_kernel;
    if (change == 1) w.gridDimX = 9;
    if (change == 2) w.gridDimX = 0;
    if (change == 3) w.sharedMemBytes = 70000;
    if (change == 4) ws.width = 8;
    if (change == 5) ws.elementSize = 1;
    if (change == 6) ws.height = 2, ws.pitch = 64;
    if (change == 7) ws.dst = memory + 256;
    note("change %d", change);
    if (change < 4) ASK(cuGraphExecKernelNodeSetParams(exec, work, &w));
    if (change >= 4) ASK(cuGraphExecMemsetNodeSetParams(exec, fill, &ws, context));
  }
  note("");
  for (int change = 0; change < 9; ++change) {
    CUgraph made = nullptr;
    NEED(cuGraphClone(&made, graph));
    CUgraphNode in_clone = nullptr, extra = nullptr;
    CUDA_KERNEL_NODE_PARAMS w = k;
    CUDA_MEMSET_NODE_PARAMS ws = s;
    note("update %d", change);
    if (change == 1 || change == 2) {
      ASK(cuGraphNodeFindInClone(&in_clone, work, made), in_clone != nullptr);
      w.gridDimX = 5;
      if (change == 2) w.func = other_kernel;
      ASK(cuGraphKernelNodeSetParams(in_clone, &w));
    }
    if (change == 3) ASK(cuGraphAddEmptyNode(&extra, made, nullptr, 0));
    if (change == 4) {
      ASK(cuGraphNodeFindInClone(&in_clone, host, made), in_clone != nullptr);
      ASK(cuGraphDestroyNode(in_clone));
    }
    if (change == 5) {
      ASK(cuGraphNodeFindInClone(&in_clone, fill, made), in_clone != nullptr);
      ws.width = 9;
      ASK(cuGraphMemsetNodeSetParams(in_clone, &ws));
    }
    if (change == 6) {
      CUgraphNode from = nullptr, into = nullptr;
      ASK(cuGraphNodeFindInClone(&from, fill, made));
      ASK(cuGraphNodeFindInClone(&into, host, made));
      ASK(cuGraphAddDependencies(made, &from, &into, nullptr, 1));
    }
    if (change == 7) ASK(cuGraphNodeFindInClone(&in_clone, foreign, made));
    if (change == 8) ASK(cuGraphNodeFindInClone(&in_clone, work, second));
    CUgraphExecUpdateResultInfo info{};
    ASK(cuGraphExecUpdate(exec, made, &info));
    note("update %d: result", change);
    ASK(0, info.result, info.errorNode != nullptr, info.errorFromNode != nullptr);
    ASK(cuGraphDestroy(made));
  }
  note("");
  ASK(cuGraphDestroyNode(a));
  n = 32;
  ASK(cuGraphGetNodes(graph, nullptr, &n), n);
  ASK(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges), edges);
  ASK(cuGraphNodeGetDependencies(b, nullptr, nullptr, &n), n);
  ASK(cuGraphDestroyNode(nullptr));
  ASK(cuGraphExecDestroy(exec));
  ASK(cuGraphExecDestroy(nullptr));
  CUgraph empty = nullptr;
  NEED(cuGraphCreate(&empty, 0));
  if (!ASK(cuGraphInstantiateWithFlags(&exec, empty, 0))) {
    ASK(cuGraphLaunch(exec, nullptr));
    ASK(cuGraphExecDestroy(exec));
  }
  CUDA_MEM_ALLOC_NODE_PARAMS p{};
  p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  p.bytesize = 1000;
  CUgraphNode alloc = nullptr, free1 = nullptr, free2 = nullptr;
  ASK(cuGraphAddMemAllocNode(&alloc, empty, nullptr, 0, &p), alloc != nullptr, p.dptr != 0);
  ASK(cuGraphAddMemFreeNode(&free1, empty, nullptr, 0, p.dptr));
  ASK(cuGraphAddMemFreeNode(&free1, empty, &alloc, 1, p.dptr + 8));
  ASK(cuGraphAddMemFreeNode(&free1, empty, &alloc, 1, memory));
  ASK(cuGraphAddMemFreeNode(&free1, empty, &alloc, 1, p.dptr), free1 != nullptr);
  ASK(cuGraphAddMemFreeNode(&free2, empty, &alloc, 1, p.dptr));
  CUgraph copied = nullptr;
  ASK(cuGraphClone(&copied, empty));
  ASK(cuGraphAddChildGraphNode(&none, second, nullptr, 0, empty));
  ASK(cuGraphDestroyNode(alloc));
  CUgraphExec e1 = nullptr, e2 = nullptr;
  ASK(cuGraphInstantiateWithFlags(&e1, empty, 0));
  ASK(cuGraphInstantiateWithFlags(&e2, empty, 0));
  if (e1) ASK(cuGraphLaunch(e1, nullptr));
  if (e1) ASK(cuGraphExecDestroy(e1));
  p.bytesize = 0;
  ASK(cuGraphAddMemAllocNode(&none, second, nullptr, 0, &p));
  ASK(cuGraphDestroy(empty));
  CUuserObject object = nullptr;
  ASK(cuUserObjectCreate(&object, words, [](void*) {}, 1, 0));
  ASK(cuUserObjectCreate(&object, words, [](void*) {}, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  ASK(cuUserObjectCreate(&object, words, nullptr, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  if (!ASK(cuUserObjectCreate(&object, words, [](void*) {}, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC))) {
    ASK(cuUserObjectRetain(object, 0));
    ASK(cuUserObjectRetain(object, 1));
    ASK(cuGraphRetainUserObject(second, object, 0, 0));
    ASK(cuGraphRetainUserObject(second, object, 1, 9));
    ASK(cuGraphRetainUserObject(second, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    ASK(cuGraphReleaseUserObject(second, object, 1));
    ASK(cuUserObjectRelease(object, 2));
  }
  CUgraphConditionalHandle handle = 0;
  for (unsigned flags : {0u, 1u, 2u}) {
    note("conditional, flags %u", flags);
    ASK(cuGraphConditionalHandleCreate(&handle, second, context, 1, flags));
  }
  note("");
  ASK(cuGraphDestroy(second));
  ASK(cuGraphDestroy(graph));
  ASK(cuGraphDestroy(nullptr));
  done("graphs");
}

int main() {
  answers::begin();
  make_work();
  graphs();
  return answers::passed();
}
