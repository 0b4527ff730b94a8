#include "backend/device/image/units.h"

#include "vgpu-sched/ptx/link.h"
#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/printer.h"

namespace bandsaw::image {

CUresult read_units(const std::vector<std::string>& units, ptx::Module* module, std::string* log) {
  std::vector<ptx::Module> modules;
  try {
    for (const std::string& unit : units) modules.push_back(ptx::parse(unit));
    *module = ptx::link(std::move(modules));
    return CUDA_SUCCESS;
  } catch (const ptx::ParseError& error) {
    *log = "PTX unit " + std::to_string(modules.size()) + ", " + error.what();
  } catch (const ptx::LinkError& error) {
    *log = std::string("PTX units do not link: ") + error.what();
  }
  return CUDA_ERROR_INVALID_PTX;
}

CUresult link_units(std::vector<std::string> units, std::string* ptx, std::string* log) {
  if (units.size() == 1) {
    *ptx = std::move(units.front());
    return CUDA_SUCCESS;
  }
  ptx::Module module;
  const CUresult result = read_units(units, &module, log);
  if (result == CUDA_SUCCESS) *ptx = ptx::print(module);
  return result;
}

}  // namespace bandsaw::image
