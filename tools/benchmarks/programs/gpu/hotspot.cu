// A heat stencil: many short launches one after the other; the last steps are checked on the CPU in windows.
#include "program.h"

constexpr float kSide = 0.1f, kAir = 0.01f, kAirTemperature = 20.f;
constexpr int kCheckedSteps = 16, kWindow = 24;

__host__ __device__ inline float next_heat(float here, float up, float down, float left, float right, float power) {
  return here + kSide * (up + down + left + right - 4 * here) + kAir * (kAirTemperature - here) + power;
}

__global__ void heat_step(const float* from, const float* power, float* to, int n) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= n || y >= n) return;
  const int i = y * n + x;
  to[i] = next_heat(from[i], from[y ? i - n : i], from[y < n - 1 ? i + n : i], from[x ? i - 1 : i],
                    from[x < n - 1 ? i + 1 : i], power[i]);
}

// The steps of one window, with a margin that shrinks by a cell a step, against the device's result.
static bool window_right(const std::vector<float>& before, const std::vector<float>& power,
                         const std::vector<float>& after, int n, int left, int top) {
  const int x0 = std::max(0, left - kCheckedSteps), x1 = std::min(n, left + kWindow + kCheckedSteps);
  const int y0 = std::max(0, top - kCheckedSteps), y1 = std::min(n, top + kWindow + kCheckedSteps);
  const int width = x1 - x0;
  std::vector<float> now(size_t(width) * (y1 - y0)), next(now.size());
  for (int y = y0; y < y1; ++y)
    for (int x = x0; x < x1; ++x) now[(y - y0) * width + x - x0] = before[size_t(y) * n + x];
  const auto cell = [&](int x, int y) {
    return now[(std::clamp(y, y0, y1 - 1) - y0) * width + std::clamp(x, x0, x1 - 1) - x0];
  };
  for (int step = 0; step < kCheckedSteps; ++step) {
    for (int y = y0; y < y1; ++y)
      for (int x = x0; x < x1; ++x)
        next[(y - y0) * width + x - x0] = next_heat(cell(x, y), cell(x, y - 1), cell(x, y + 1), cell(x - 1, y),
                                                    cell(x + 1, y), power[size_t(y) * n + x]);
    now.swap(next);
  }
  for (int y = top; y < std::min(n, top + kWindow); ++y)
    for (int x = left; x < std::min(n, left + kWindow); ++x)
      if (!close(cell(x, y), after[size_t(y) * n + x], 1e-4)) return false;
  return true;
}

int main(int argc, char** argv) {
  const Scale scale(argc, argv);
  const int n = scale.of(2048, 64, 16), steps = scale.of(60000, 20);
  Random random(5);
  std::vector<float> heat(size_t(n) * n), power(heat.size());
  for (float& each : heat) each = 40 + 40 * random.unit();
  for (float& each : power) each = random.unit();
  const dim3 threads(32, 8), blocks((n + 31) / 32, (n + 7) / 8);
  const DeviceBuffer<float> buffers[2] = {DeviceBuffer<float>(heat.size()), DeviceBuffer<float>(heat.size())};
  const DeviceBuffer<float> device_power(power.size());
  std::vector<float> before;
  const double begin = begin_steady();
  buffers[0].put(heat);
  device_power.put(power);
  for (int i = 0; i < steps; ++i) {
    if (i == steps - kCheckedSteps) before = buffers[i % 2].fetch();
    heat_step<<<blocks, threads>>>(buffers[i % 2].get(), device_power.get(), buffers[(i + 1) % 2].get(), n);
  }
  CHECK(cudaGetLastError());
  const auto after = buffers[steps % 2].fetch();
  const double steady = now_us() - begin;
  bool right = true;
  for (int where : {0, n / 3, n - kWindow})
    right = right && window_right(before, power, after, n, where, where) &&
            window_right(before, power, after, n, n - kWindow - where, where);
  return finish(steady, right);
}
