#include "backend/device/soft/soft_device.h"
#include "memory/base/log.h"
namespace bandsaw::soft {
bool SoftDevice::capturing(SoftStream&) { return false; }
CUresult SoftDevice::check_capture(SoftStream&) { return CUDA_SUCCESS; }
CUresult SoftDevice::refuse_in_capture(SoftStream&) { return CUDA_SUCCESS; }
namespace {
CUresult absent(const char* name) {
  spdlog::warn("software device: {} is not implemented", name);
  return CUDA_ERROR_NOT_SUPPORTED;
}
}
CUresult SoftDevice::capture_node(SoftStream&, const NodeContent&, uint64_t*) { return absent("capture"); }
CUresult SoftDevice::capture_record(SoftStream&, SoftEvent&, uint32_t) { return absent("capture"); }
CUresult SoftDevice::capture_wait(SoftStream&, SoftEvent&, uint32_t) { return absent("capture"); }
CUresult SoftDevice::capture_begin(const StreamRef&, CUstreamCaptureMode, const GraphRef&, std::span<const NodeRef>) { return absent("capture_begin"); }
CUresult SoftDevice::capture_end(const StreamRef&, GraphRef*) { return absent("capture_end"); }
CUresult SoftDevice::capture_info(const StreamRef&, CaptureInfo* info) { *info = {}; return CUDA_SUCCESS; }
CUresult SoftDevice::capture_update(const StreamRef&, uint32_t, std::span<const NodeRef>) { return absent("capture_update"); }
CUresult SoftDevice::graph_create(GraphRef*) { return absent("graph_create"); }
CUresult SoftDevice::graph_clone(const GraphRef&, GraphRef*) { return absent("graph_clone"); }
CUresult SoftDevice::graph_add_node(const GraphRef&, std::span<const NodeRef>, const NodeContent&, NodeRef*, uint64_t*) { return absent("graph_add_node"); }
CUresult SoftDevice::graph_nodes(const GraphRef&, bool, std::vector<NodeRef>*) { return absent("graph_nodes"); }
CUresult SoftDevice::graph_edges(const GraphRef&, std::vector<std::pair<NodeRef, NodeRef>>*) { return absent("graph_edges"); }
CUresult SoftDevice::graph_change_edges(const GraphRef&, bool, std::span<const std::pair<NodeRef, NodeRef>>) { return absent("graph_change_edges"); }
CUresult SoftDevice::node_neighbours(const NodeRef&, bool, std::vector<NodeRef>*) { return absent("node_neighbours"); }
CUresult SoftDevice::node_get(const NodeRef&, NodeContent*) { return absent("node_get"); }
CUresult SoftDevice::node_set(const NodeRef&, const NodeContent&) { return absent("node_set"); }
CUresult SoftDevice::node_find_in_clone(const NodeRef&, const GraphRef&, NodeRef*) { return absent("node_find_in_clone"); }
CUresult SoftDevice::node_destroy(const NodeRef&) { return absent("node_destroy"); }
CUresult SoftDevice::graph_instantiate(const ContextRef&, const GraphRef&, uint64_t, ExecRef*) { return absent("graph_instantiate"); }
CUresult SoftDevice::exec_update(const ExecRef&, const GraphRef&, CUgraphExecUpdateResult*, NodeRef*) { return absent("exec_update"); }
CUresult SoftDevice::exec_node_set(const ExecRef&, const NodeRef&, const NodeContent&) { return absent("exec_node_set"); }
CUresult SoftDevice::exec_node_enable(const ExecRef&, const NodeRef&, bool) { return absent("exec_node_enable"); }
CUresult SoftDevice::exec_node_enabled(const ExecRef&, const NodeRef&, bool*) { return absent("exec_node_enabled"); }
CUresult SoftDevice::exec_launch(const ExecRef&, const StreamRef&) { return absent("exec_launch"); }
}
