#include "backend/device/soft/codegen/jit.h"

#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/IPO/AlwaysInliner.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/ADCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/GVN.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/SCCP.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <stdexcept>

#include "backend/device/soft/codegen/masked_logic.h"
#include "backend/device/soft/codegen/registers.h"
#include "backend/device/soft/codegen/runtime.h"
#include "backend/device/soft/codegen/sinking.h"

namespace bandsaw::soft {
namespace {

void initialise_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    const auto set = [](const char* option) {
      const char* arguments[] = {"compiler", option};
      const llvm::StringRef name = llvm::StringRef(option + 1).split('=').first;
      if (llvm::cl::getRegisteredOptions().contains(name)) llvm::cl::ParseCommandLineOptions(2, arguments);
    };
    // Takes longer than all the rest for code with many masks, and finds little in it.
    set("-disable-x86-domain-reassignment");
    // Registers that live through thousands of blocks are merged less often, which took most of the time for the sorts
    // of CUB; those of short kernels are merged as always.
    set("-large-interval-size-threshold=50");
    set("-large-interval-freq-threshold=32");
  });
}

// For a function whose registers stay in memory: what works within a block.
llvm::FunctionPassManager light_passes() {
  llvm::FunctionPassManager f;
  f.addPass(llvm::EarlyCSEPass());
  f.addPass(llvm::InstCombinePass());
  f.addPass(llvm::SimplifyCFGPass());
  f.addPass(llvm::ADCEPass());
  return f;
}

llvm::FunctionPassManager all_passes() {
  llvm::FunctionPassManager f;
  f.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  f.addPass(llvm::EarlyCSEPass(true));
  f.addPass(llvm::InstCombinePass());
  f.addPass(llvm::SCCPPass());
  f.addPass(llvm::SimplifyCFGPass());
  f.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  f.addPass(llvm::GVNPass());
  f.addPass(llvm::InstCombinePass());
  f.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  f.addPass(SinkingToSlowPaths());
  f.addPass(llvm::EarlyCSEPass());
  f.addPass(llvm::SimplifyCFGPass());
  f.addPass(llvm::ADCEPass());
  return f;
}

using Clock = std::chrono::steady_clock;
// A kernel that has taken so long gets no more of what only makes it faster.
constexpr std::chrono::seconds kOptimisedFor{30};

void optimise(llvm::Module* module, llvm::TargetMachine* machine, Clock::time_point until, bool few) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassInstrumentationCallbacks callbacks;
  callbacks.registerShouldRunOptionalPassCallback([until](llvm::StringRef, llvm::Any) { return Clock::now() < until; });
  llvm::PassBuilder builder(machine, llvm::PipelineTuningOptions(), std::nullopt, &callbacks);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::FunctionPassManager all = all_passes(), light = light_passes();
  for (llvm::Function& function : *module) {
    if (function.isDeclaration()) continue;
    llvm::FunctionPassManager& chosen = !promote_registers(&function) || few ? light : all;
    functions.invalidate(function, chosen.run(function, functions));
  }
}

std::string text_of(llvm::Error error) { return llvm::toString(std::move(error)); }

class LinkedCode final : public CodeSpace {
 public:
  void* add(const std::vector<char>& object, const std::string& symbol, std::string* error) override {
    std::lock_guard lock(mutex_);
    reported_.clear();
    auto buffer = llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(object.data(), object.size()), symbol);
    if (auto e = jit->addObjectFile(std::move(buffer))) {
      *error = text_of(std::move(e));
      return nullptr;
    }
    auto address = jit->lookup(symbol);
    if (address) return address->toPtr<void*>();
    const std::string failed = text_of(address.takeError());
    *error = reported_ + failed;
    return nullptr;
  }
  // The reasons of failures; lookup() itself only says that it failed.
  void report(llvm::Error e) { reported_ += text_of(std::move(e)) + "; "; }

  std::unique_ptr<llvm::orc::LLJIT> jit;

 private:
  std::mutex mutex_;
  std::string reported_;
};

}  // namespace

Target::Target(const std::string& cpu, Passes passes) : passes_(passes) {
  initialise_once();
  std::string name = cpu.empty() ? std::string(llvm::sys::getHostCPUName()) : cpu, features, error;
  llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  if (cpu.empty()) {
    std::vector<std::string> sorted;
    for (auto& f : host) sorted.push_back((f.second ? "+" : "-") + f.first().str());
    std::sort(sorted.begin(), sorted.end());
    for (auto& f : sorted) features += (features.empty() ? "" : ",") + f;
    avx2_ = host.lookup("avx2");
    avx512_ = host.lookup("avx512f") && host.lookup("avx512bw") && host.lookup("avx512vl") && host.lookup("avx512dq");
  } else {
    avx512_ = cpu == "x86-64-v4";
    avx2_ = avx512_ || cpu == "x86-64-v3";
  }
  std::string triple = llvm::sys::getProcessTriple();
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target) throw std::runtime_error(error);
  llvm::TargetOptions options;
  machine_.reset(target->createTargetMachine(triple, name, features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                             llvm::CodeGenOptLevel::Default, true));
  if (!machine_) throw std::runtime_error("no code generator for this processor");
  identity_ = triple + "/" + name + "/" + features + "/" + std::to_string(static_cast<int>(passes));
}

Target::~Target() = default;

void Target::prepare(llvm::Module* module) const {
  module->setTargetTriple(machine_->getTargetTriple().str());
  module->setDataLayout(machine_->createDataLayout());
}

std::vector<char> Target::emit(llvm::Module* module) {
  for (auto& f : *module) {
    if (f.isDeclaration()) continue;
    f.addFnAttr("target-cpu", machine_->getTargetCPU());
    f.addFnAttr("target-features", machine_->getTargetFeatureString());
    if (avx512_) {
      f.addFnAttr("prefer-vector-width", "512");
      f.addFnAttr("min-legal-vector-width", "512");
    }
  }
  if (const char* where = std::getenv("BANDSAW_DUMP_IR")) {
    std::error_code code;
    llvm::raw_fd_ostream out(where, code);
    module->print(out, nullptr);
  }
  std::string broken;
  llvm::raw_string_ostream messages(broken);
  if (llvm::verifyModule(*module, &messages)) throw std::runtime_error("internal error: invalid IR: " + broken);
  const Clock::time_point until = Clock::now() + (passes_ == Passes::kNone ? std::chrono::seconds(0) : kOptimisedFor);
  optimise(module, machine_.get(), until, passes_ == Passes::kFew);
  keep_logic_unmasked(module);
  if (Clock::now() >= until) machine_->setOptLevel(llvm::CodeGenOptLevel::None);
  if (const char* where = std::getenv("BANDSAW_DUMP_IR")) {
    std::error_code code;
    llvm::raw_fd_ostream out(std::string(where) + ".opt", code);
    module->print(out, nullptr);
  }
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  if (machine_->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile, true))
    throw std::runtime_error("internal error: no object emitter");
  passes.run(*module);
  return {object.begin(), object.end()};
}

std::unique_ptr<CodeSpace> make_code_space(const std::map<std::string, uint64_t>& symbols, std::string* error) {
  initialise_once();
  auto fail = [&](llvm::Error e) -> std::unique_ptr<CodeSpace> {
    *error = text_of(std::move(e));
    return nullptr;
  };
  llvm::orc::LLJITBuilder builder;
  builder.setLinkProcessSymbolsByDefault(false);
  builder.setPlatformSetUp(llvm::orc::setUpInactivePlatform);
  builder.setObjectLinkingLayerCreator([](llvm::orc::ExecutionSession& session, const llvm::Triple&) {
    return std::make_unique<llvm::orc::ObjectLinkingLayer>(session);
  });
  auto jit = builder.create();
  if (!jit) return fail(jit.takeError());
  auto space = std::make_unique<LinkedCode>();
  space->jit = std::move(*jit);
  space->jit->getExecutionSession().setErrorReporter(
      [space = space.get()](llvm::Error e) { space->report(std::move(e)); });
  llvm::orc::SymbolMap absolute;
  auto define = [&](const std::string& name, uint64_t address) {
    absolute[space->jit->mangleAndIntern(name)] = {llvm::orc::ExecutorAddr(address), llvm::JITSymbolFlags::Exported};
  };
  for (auto& [name, pointer] : runtime_symbols())
    if (*name) define(name, reinterpret_cast<uint64_t>(pointer));
  for (auto& [name, address] : symbols) define(name, address);
  if (auto e = space->jit->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(absolute))))
    return fail(std::move(e));
  return space;
}

}  // namespace bandsaw::soft
