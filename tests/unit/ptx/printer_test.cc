#include "vgpu-sched/ptx/printer.h"

#include "support.h"

namespace bandsaw::ptx {
namespace {

TEST(Printer, SamplesSurviveTheRoundTrip) {
  for (const char* name : kSamples) {
    Module module = parse(sample(name));
    std::string text = print(module);
    Module again = parse(text);
    EXPECT_TRUE(again == module) << name;
    EXPECT_EQ(print(again), text) << name;
  }
}

TEST(Printer, WritesWhatPtxasTakes) {
  Module module = kernel_of(
      "ld.global.u32 %r1, [%rd1-8];\nmov.b64 %rd1, -9223372036854775808;\n"
      "mov.f64 %rd2, -1.5;\nmov.u64 %rd1, 0xFFFFFFFFFFFFFFFF;");
  EXPECT_EQ(print(instruction_at(module, 0).operands[1]), "[%rd1+-8]");  // [%rd1-8] is an error there
  EXPECT_EQ(print(instruction_at(module, 1).operands[1]), "-9223372036854775808");
  EXPECT_EQ(print(instruction_at(module, 2).operands[1]), "0dBFF8000000000000");
  EXPECT_EQ(print(instruction_at(module, 3).operands[1]), "18446744073709551615U");
}

TEST(Printer, WritesOneStatement) {
  Module module = kernel_of("@!p add.cc.s32 a, b, 1;");
  const Statement& last = function_at(module, 0).body->statements.back();
  EXPECT_EQ(print(last), "@!p add.cc.s32 a, b, 1;\n");
}

TEST(Printer, WritesVariables) {
  std::string text = ".visible .global .attribute(.managed) .align 8 .u64 t[2] = {generic(x)+8, 0xff00(x)}";
  EXPECT_EQ(print(std::get<Variable>(module_of(text + ";").items[0])), text);
}

TEST(Printer, KeepsDebugDataAsWritten) {
  std::string data = "\n\t.b8 1 // kept\n\t.b64 label+4\n";
  Module module = module_of(".section .debug_info {" + data + "}\n.section .debug_loc { }");
  EXPECT_EQ(std::get<Section>(module.items[0]).text, data);
  EXPECT_NE(print(module).find(data), std::string::npos);
}

}  // namespace
}  // namespace bandsaw::ptx
