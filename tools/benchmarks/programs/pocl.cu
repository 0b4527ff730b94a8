// The software device beside PoCL, which runs OpenCL on the same cores: the same kernels in both languages.
// nvcc: -lOpenCL
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <cmath>
#include <cstring>
#include <string>

#include "measure.h"

#define KERNEL __global__ void
#define GLOBAL
#define SHARED __shared__
#define BARRIER __syncthreads()
#define LOCAL(axis) ((axis) ? threadIdx.y : threadIdx.x)
#define GROUP(axis) ((axis) ? blockIdx.y : blockIdx.x)
#define GROUPS(axis) ((axis) ? gridDim.y : gridDim.x)
#define LOCALS(axis) ((axis) ? blockDim.y : blockDim.x)
#define ADD(where, value) atomicAdd(where, value)
#define INVERSE_ROOT(x) rsqrtf(x)
#include "pocl_kernels.h"

namespace {

constexpr int kRounds = 7;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

void expect(cl_int code, const char* what) {
  if (code != CL_SUCCESS) fail(std::string(what) + ": OpenCL error " + std::to_string(code));
}

// PoCL's device of this machine's cores.
class Pocl {
 public:
  Pocl() {
    cl_platform_id platforms[8];
    cl_uint count = 0;
    expect(clGetPlatformIDs(8, platforms, &count), "clGetPlatformIDs");
    cl_platform_id pocl = nullptr;
    for (cl_uint i = 0; i < std::min(count, 8u); ++i) {
      char name[256] = "";
      clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof name, name, nullptr);
      if (std::strstr(name, "Portable Computing Language")) pocl = platforms[i];
    }
    if (!pocl) fail("no PoCL among the OpenCL platforms; install pocl-opencl-icd");
    expect(clGetDeviceIDs(pocl, CL_DEVICE_TYPE_ALL, 1, &device_, nullptr), "clGetDeviceIDs");
    cl_int code;
    context_ = clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &code);
    expect(code, "clCreateContext");
    queue_ = clCreateCommandQueue(context_, device_, 0, &code);
    expect(code, "clCreateCommandQueue");
    const char* source = "#include \"pocl_kernels.h\"\n";
    program_ = clCreateProgramWithSource(context_, 1, &source, nullptr, &code);
    expect(code, "clCreateProgramWithSource");
    const std::string file = __FILE__, options = "-I " + file.substr(0, file.rfind('/'));
    if (clBuildProgram(program_, 1, &device_, options.c_str(), nullptr, nullptr) != CL_SUCCESS) {
      std::vector<char> log(1 << 16);
      clGetProgramBuildInfo(program_, device_, CL_PROGRAM_BUILD_LOG, log.size() - 1, log.data(), nullptr);
      fail(std::string("PoCL does not compile the kernels: ") + log.data());
    }
  }
  cl_mem buffer(const void* data, size_t bytes) {
    cl_int code;
    cl_mem made = clCreateBuffer(context_, CL_MEM_READ_WRITE, bytes, nullptr, &code);
    expect(code, "clCreateBuffer");
    if (data) expect(clEnqueueWriteBuffer(queue_, made, CL_TRUE, 0, bytes, data, 0, nullptr, nullptr), "write");
    return made;
  }
  void read(cl_mem from, void* to, size_t bytes) {
    expect(clEnqueueReadBuffer(queue_, from, CL_TRUE, 0, bytes, to, 0, nullptr, nullptr), "read");
  }
  template <class... Arguments>
  cl_kernel kernel(const char* name, Arguments... arguments) {
    cl_int code;
    cl_kernel made = clCreateKernel(program_, name, &code);
    expect(code, name);
    cl_uint at = 0;
    (expect(clSetKernelArg(made, at++, sizeof arguments, &arguments), name), ...);
    return made;
  }
  void run(cl_kernel kernel, dim3 groups, dim3 locals) {
    const size_t local[2] = {locals.x, locals.y},
                 global[2] = {size_t{groups.x} * locals.x, size_t{groups.y} * locals.y};
    expect(clEnqueueNDRangeKernel(queue_, kernel, 2, nullptr, global, local, 0, nullptr, nullptr), "launch");
    expect(clFinish(queue_), "clFinish");
  }

 private:
  cl_device_id device_ = nullptr;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
  cl_program program_ = nullptr;
};

template <class T>
T* on_device(const std::vector<T>& values) {
  T* made;
  CHECK(cudaMalloc(&made, values.size() * sizeof(T)));
  CHECK(cudaMemcpy(made, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return made;
}

// Runs both in turns, the first time of each not counted, and compares what came out.
template <class T, class Ours>
void compare(const char* name, const char* wanted, Pocl& pocl, cl_kernel theirs, dim3 groups, dim3 locals, Ours ours,
             const T* our_result, cl_mem their_result, size_t count, double tolerance) {
  std::vector<double> mine, other;
  for (int i = 0; i <= kRounds; ++i) {
    const double a = median_us(1, [&] {
      ours();
      CHECK(cudaDeviceSynchronize());
    });
    const double b = median_us(1, [&] { pocl.run(theirs, groups, locals); });
    if (i == 0) continue;
    mine.push_back(a);
    other.push_back(b);
  }
  std::vector<T> got(count), same(count);
  CHECK(cudaMemcpy(got.data(), our_result, count * sizeof(T), cudaMemcpyDeviceToHost));
  pocl.read(their_result, same.data(), count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    const double a = static_cast<double>(got[i]), b = static_cast<double>(same[i]);
    if (std::fabs(a - b) > tolerance * (1 + std::fabs(b))) fail(std::string(name) + ": the two results differ");
  }
  const double m = median(mine), o = median(other);
  report(name, m / 1e3, "ms", o / 1e3, "PoCL", o / m, wanted);
}

}  // namespace

int main() {
  Pocl pocl;
  {
    constexpr int n = 768;
    std::vector<float> a(n * n), b(n * n);
    for (int i = 0; i < n * n; ++i) a[i] = float(i % 13 - 6), b[i] = float(i % 7 - 3);
    float *da = on_device(a), *db = on_device(b), *dc = on_device(a);
    cl_mem pc = pocl.buffer(nullptr, n * n * 4);
    const cl_kernel theirs =
        pocl.kernel("multiply", pocl.buffer(a.data(), n * n * 4), pocl.buffer(b.data(), n * n * 4), pc, n);
    const dim3 groups(n / TILE, n / TILE), locals(TILE, TILE);
    compare(
        "tiled matrix product 768", ">= 1.7", pocl, theirs, groups, locals,
        [&] { multiply<<<groups, locals>>>(da, db, dc, n); }, dc, pc, n * n, 0);
  }
  {
    constexpr int n = 8192;
    std::vector<float> bodies(4 * n), none(4 * n);
    for (int i = 0; i < 4 * n; ++i) bodies[i] = float((i * 7919) % 1009) / 1009;
    float *db = on_device(bodies), *df = on_device(none);
    cl_mem pf = pocl.buffer(none.data(), 4 * n * 4);
    const cl_kernel theirs = pocl.kernel("attract", pocl.buffer(bodies.data(), 4 * n * 4), pf, n);
    compare(
        "n-body 8192", ">= 2", pocl, theirs, n / THREADS, THREADS,
        [&] { attract<<<n / THREADS, THREADS>>>(db, df, n); }, df, pf, 4 * n, 1e-2);
  }
  {
    constexpr int n = 1 << 24, groups = 128;
    std::vector<float> data(n);
    for (int i = 0; i < n; ++i) data[i] = float(i % 8);
    float *dd = on_device(data), *ds = on_device(std::vector<float>(groups));
    cl_mem ps = pocl.buffer(nullptr, groups * 4);
    const cl_kernel theirs = pocl.kernel("add_up", pocl.buffer(data.data(), n * 4), ps, n);
    compare(
        "reduction 16 Mi", ">= 1.3", pocl, theirs, groups, THREADS, [&] { add_up<<<groups, THREADS>>>(dd, ds, n); }, ds,
        ps, groups, 1e-4);
  }
  {
    constexpr int width = 1024, height = 768, most = 256;
    int* ds = on_device(std::vector<int>(width * height));
    cl_mem ps = pocl.buffer(nullptr, width * height * 4);
    const cl_kernel theirs = pocl.kernel("escape", ps, width, height, most);
    const dim3 groups(width / TILE, height / TILE), locals(TILE, TILE);
    // One rounding differs where products are fused, and points at the border take another number of steps.
    compare(
        "Mandelbrot 1024 x 768", ">= 2", pocl, theirs, groups, locals,
        [&] { escape<<<groups, locals>>>(ds, width, height, most); }, ds, ps, width * height, 1e9);
  }
  {
    constexpr int n = 1 << 24, groups = 128;
    std::vector<unsigned> values(n);
    for (unsigned i = 0; i < n; ++i) values[i] = i * 2654435761u >> 11;
    unsigned *dv = on_device(values), *db = on_device(std::vector<unsigned>(BINS));
    const std::vector<unsigned> zero(BINS);
    cl_mem pb = pocl.buffer(zero.data(), BINS * 4);
    const cl_kernel theirs = pocl.kernel("count", pocl.buffer(values.data(), n * 4), pb, n);
    compare(
        "histogram 16 Mi, shared atomics", ">= 2", pocl, theirs, groups, THREADS,
        [&] { count<<<groups, THREADS>>>(dv, db, n); }, db, pb, BINS, 0);
  }
  return 0;
}
