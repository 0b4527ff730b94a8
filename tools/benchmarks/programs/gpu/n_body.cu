// All-pairs gravitation with tiles in shared memory; the last step of some bodies is checked on the CPU.
#include "program.h"

constexpr int kTile = 256;
constexpr float kSoftening = 1e-2f, kTime = 1e-4f;

struct Bodies {
  DeviceBuffer<float4> position, speed;
  explicit Bodies(int n) : position(n), speed(n) {}
};

// Positions carry the mass in w.
__global__ void move(const float4* from, const float4* speed_from, float4* to, float4* speed_to, int n) {
  __shared__ float4 tile[kTile];
  const int i = blockIdx.x * kTile + threadIdx.x;
  const float4 here = from[i];
  float ax = 0, ay = 0, az = 0;
  for (int first = 0; first < n; first += kTile) {
    tile[threadIdx.x] = from[first + threadIdx.x];
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < kTile; ++k) {
      const float dx = tile[k].x - here.x, dy = tile[k].y - here.y, dz = tile[k].z - here.z;
      const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + kSoftening);
      const float pull = tile[k].w * inverse * inverse * inverse;
      ax += dx * pull, ay += dy * pull, az += dz * pull;
    }
    __syncthreads();
  }
  float4 speed = speed_from[i];
  speed.x += ax * kTime, speed.y += ay * kTime, speed.z += az * kTime;
  speed_to[i] = speed;
  to[i] = make_float4(here.x + speed.x * kTime, here.y + speed.y * kTime, here.z + speed.z * kTime, here.w);
}

// The speed of one body after a step, in double.
static bool body_right(const std::vector<float4>& before, const float4& speed, const float4& got, int i) {
  double a[3] = {};
  for (const float4& other : before) {
    const double d[3] = {double{other.x} - before[i].x, double{other.y} - before[i].y, double{other.z} - before[i].z};
    const double inverse = 1 / std::sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + double{kSoftening});
    for (int axis = 0; axis < 3; ++axis) a[axis] += d[axis] * other.w * inverse * inverse * inverse;
  }
  const auto right = [](double had, double pull, double has) {
    return close(had + pull * kTime, has, 1e-3, 1e-3 * std::fabs(pull) * kTime + 1e-6);
  };
  return right(speed.x, a[0], got.x) && right(speed.y, a[1], got.y) && right(speed.z, a[2], got.z);
}

int main(int argc, char** argv) {
  const Scale scale(argc, argv);
  const int n = scale.of(65536, kTile, kTile), steps = scale.of(350, 2);
  Random random(7);
  std::vector<float4> position(n), speed(n, make_float4(0, 0, 0, 0)), before, speed_before;
  for (float4& each : position)
    each = make_float4(random.unit() - 0.5f, random.unit() - 0.5f, random.unit() - 0.5f, (0.5f + random.unit()) / n);
  const Bodies bodies[2] = {Bodies(n), Bodies(n)};
  const double begin = begin_steady();
  bodies[0].position.put(position);
  bodies[0].speed.put(speed);
  for (int i = 0; i < steps; ++i) {
    const Bodies &from = bodies[i % 2], &to = bodies[(i + 1) % 2];
    if (i == steps - 1) before = from.position.fetch(), speed_before = from.speed.fetch();
    move<<<n / kTile, kTile>>>(from.position.get(), from.speed.get(), to.position.get(), to.speed.get(), n);
  }
  CHECK(cudaGetLastError());
  const auto after = bodies[steps % 2].speed.fetch();
  const double steady = now_us() - begin;
  bool right = true;
  for (int i = 0; i < n; i += n / 16) right = right && body_right(before, speed_before[i], after[i], i);
  return finish(steady, right);
}
