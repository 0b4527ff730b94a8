// Random programs: what compiled code leaves in memory is what an interpreter says, for several processors and with few
// and with all of the compiler's passes. BANDSAW_RANDOM_PROGRAMS=N makes N of them (by default some seconds' worth),
// BANDSAW_RANDOM_SEED is the first one's number; what differs is cut down to few instructions and printed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "tests/unit/soft/codegen_harness.h"
#include "tests/unit/soft/random/program.h"

namespace bandsaw::soft::test {
namespace {

uint64_t variable(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 0) : otherwise;
}

struct Input {
  std::vector<std::byte> table{kTableBytes};
  std::vector<uint64_t> initial;
};

Input input(uint64_t seed) {
  static const uint64_t likely[] = {0,
                                    1,
                                    ~uint64_t{0},
                                    0x8000,
                                    0x7fff,
                                    0xffff,
                                    0x80000000,
                                    0x7fffffff,
                                    0x3f8000003f800000,
                                    0x8000000080000000,
                                    0x3c003c003c003c00,
                                    0x0001000100010001,
                                    0x7c00fc007c000400,
                                    0x3ff0000000000000,
                                    0x7ff0000000000000,
                                    0xc1e0000000000000,
                                    0x43e0000000000000,
                                    0x7fc000007f800000,
                                    0x0000000100800000,
                                    0x4f0000004e800001,
                                    0x477fe000477ff000,
                                    0x3380000033000001,
                                    0xbf000000c0200000,
                                    0x4b0000014b7fffff,
                                    0x3f80bf803f80c0e0};
  std::mt19937_64 random(seed * 2 + 1);
  Input in;
  for (unsigned i = 0; i < kTableBytes; i += 8) {
    const uint64_t word = random() % 4 ? likely[random() % std::size(likely)] : random() >> random() % 60;
    std::memcpy(in.table.data() + i, &word, 8);
  }
  for (unsigned i = 0; i < kThreads * kBlocks; ++i) in.initial.push_back(random());
  return in;
}

struct Compiler {
  const char* cpu;
  CompileOptions::Passes passes;
  size_t piece = 0;  // instructions of each; 0: all at once
};

constexpr size_t kBytes = size_t{kResultBytes} * kThreads * kBlocks;
constexpr unsigned kInputs = 4;  // for each program, which takes longer to compile than to run

// What the kernel leaves in its results.
std::vector<std::byte> run(Kernels* kernels, const Input& in, std::string* fault) {
  reset_memory();
  auto* table = array<std::byte>(kTableBytes);
  std::memcpy(table, in.table.data(), kTableBytes);
  auto* initial = array<uint64_t>(in.initial.size());
  std::memcpy(initial, in.initial.data(), in.initial.size() * 8);
  auto* results = array<std::byte>(kBytes);
  std::vector<std::byte> parameters(24 + kTableBytes);
  const uint64_t addresses[] = {reinterpret_cast<uint64_t>(table), reinterpret_cast<uint64_t>(initial),
                                reinterpret_cast<uint64_t>(results)};
  std::memcpy(parameters.data(), addresses, 24);
  std::memcpy(parameters.data() + 24, in.table.data(), kTableBytes);
  Shape shape;
  shape.grid[0] = kBlocks;
  shape.block[0] = kThreads;
  const Outcome outcome = kernels->run("random", shape, parameters);
  if (outcome.fault) *fault = "fault " + std::to_string(outcome.fault);
  return {results, results + kBytes};
}

// "" if they agree.
std::string difference(const RandomProgram& program, uint64_t seed, const Compiler& compiler) {
  CompileOptions options = compiler.piece ? in_pieces(compiler.piece) : CompileOptions();
  options.cpu = compiler.cpu;
  options.passes = compiler.passes;
  Kernels kernels(program.text(), options);
  if (!kernels.ok()) return "does not compile: " + kernels.log();
  for (uint64_t number = 0; number < kInputs; ++number) {
    const Input in = input(seed * kInputs + number);
    std::string fault;
    const std::vector<std::byte> results = run(&kernels, in, &fault);
    if (!fault.empty()) return fault;
    const std::vector<std::byte> wanted = program.interpret(in.table, in.initial);
    for (size_t i = 0; i < kBytes; ++i)
      if (results[i] != wanted[i])
        return "thread " + std::to_string(i / kResultBytes) + ", byte " + std::to_string(i % kResultBytes) +
               " of its results: " + std::to_string(int(results[i])) + ", the interpreter has " +
               std::to_string(int(wanted[i]));
  }
  return "";
}

// Leaves out what can be left out without the difference going away.
void cut_down(RandomProgram* program, uint64_t seed, const Compiler& compiler) {
  for (bool again = true; again;) {
    again = false;
    for (Item* item : program->items()) {
      if (item->left_out) continue;
      item->left_out = true;
      if (difference(*program, seed, compiler).empty())
        item->left_out = false;
      else
        again = true;
    }
  }
}

TEST(CodegenRandom, ProgramsDoWhatTheirInstructionsSay) {
  using Passes = CompileOptions::Passes;
  const Compiler compilers[] = {{"", Passes::kBySize},          {"", Passes::kFew},           {"", Passes::kNone},
                                {"x86-64-v3", Passes::kBySize}, {"x86-64-v3", Passes::kNone}, {"", Passes::kBySize, 4}};
  const uint64_t first = variable("BANDSAW_RANDOM_SEED", 1), count = variable("BANDSAW_RANDOM_PROGRAMS", 6);
  unsigned wrong = 0;
  for (uint64_t seed = first; seed < first + count && wrong < 8; ++seed) {
    const Compiler& compiler = compilers[seed % std::size(compilers)];
    RandomProgram program(seed, 15 + seed % 4 * 15);
    if (difference(program, seed, compiler).empty()) continue;
    ++wrong;
    cut_down(&program, seed, compiler);
    ADD_FAILURE() << "seed " << seed << ", processor '" << compiler.cpu << "': " << difference(program, seed, compiler)
                  << "\n"
                  << program.text();
  }
}

// The interpreter without one of the instructions has other results, for most of them.
TEST(CodegenRandom, MistakesAreSeen) {
  RandomProgram program(1, 60);
  const Input in = input(1);
  const std::vector<std::byte> all = program.interpret(in.table, in.initial);
  unsigned seen = 0;
  for (Item* item : program.items()) {
    item->left_out = true;
    seen += program.interpret(in.table, in.initial) != all;
    item->left_out = false;
  }
  EXPECT_GT(seen, program.items().size() / 2);
}

}  // namespace
}  // namespace bandsaw::soft::test
