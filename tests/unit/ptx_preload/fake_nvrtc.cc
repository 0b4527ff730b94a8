// Stands for NVRTC: a program's "code" is its kind and the options that it was compiled with.
#include <cstring>
#include <string>

namespace {

struct Program {
  std::string options;
  bool machine_code = false;
};

std::string code(const Program& program, const char* kind) { return std::string(kind) + program.options; }

int give(const std::string& text, char* to) {
  std::memcpy(to, text.c_str(), text.size() + 1);
  return 0;
}

}  // namespace

extern "C" {

int nvrtcCreateProgram(Program** program) { return *program = new Program, 0; }

int nvrtcDestroyProgram(Program** program) { return delete *program, 0; }

int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  for (int i = 0; i < count; i++) program->options += std::string(" ") + options[i];
  program->machine_code = program->options.find("sm_") != std::string::npos;
  return 0;
}

int nvrtcGetPTXSize(Program* program, size_t* bytes) { return *bytes = code(*program, "PTX").size() + 1, 0; }
int nvrtcGetPTX(Program* program, char* to) { return give(code(*program, "PTX"), to); }

int nvrtcGetCUBINSize(Program* program, size_t* bytes) {
  *bytes = program->machine_code ? code(*program, "CUBIN").size() + 1 : 0;
  return 0;
}
int nvrtcGetCUBIN(Program* program, char* to) { return program->machine_code ? give(code(*program, "CUBIN"), to) : 3; }
}
