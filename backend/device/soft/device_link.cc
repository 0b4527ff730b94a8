// cuLink*: PTX bound by our own linker. What comes out is PTX again, compiled when it is loaded.
#include "backend/device/image/linker.h"
#include "backend/device/soft/soft_device.h"

namespace bandsaw::soft {
namespace {

class SoftLinker : public Linker {
 public:
  image::PtxLinker linker;
};

image::PtxLinker& as(const LinkerRef& linker) { return static_cast<SoftLinker&>(*linker).linker; }

}  // namespace

CUresult SoftDevice::link_create(const ContextRef&, std::span<const LinkOption>, LinkerRef* linker) {
  *linker = std::make_shared<SoftLinker>();
  return scheduler_.error();
}

CUresult SoftDevice::link_add(const LinkerRef& linker, CUjitInputType type, std::span<const std::byte> data,
                              const std::string& name, std::string* log) {
  const CUresult result = as(linker).add(type, data, name);
  *log = as(linker).log();
  return result;
}

CUresult SoftDevice::link_complete(const LinkerRef& linker, std::vector<std::byte>* image, std::string* log) {
  const CUresult result = as(linker).complete(image);
  *log = as(linker).log();
  return result;
}

}  // namespace bandsaw::soft
