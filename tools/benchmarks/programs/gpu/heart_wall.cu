// Tracking of points through a film by block matching: a few long kernels, a block a point, a loop over frames inside.
#include <climits>
#include <cstdlib>

#include "program.h"

constexpr int kSize = 256, kPoints = 51, kTemplate = 24, kReach = 12;
constexpr int kTries = 2 * kReach + 1, kWindow = kTemplate + 2 * kReach, kThreads = 256;

struct Place {
  int x, y;
};

// Keeps the searched window inside the frame; with wrapping motion the film can be played again and again.
__host__ __device__ inline int inside(int at) {
  const int low = kReach, high = kSize - kTemplate - kReach;
  return at < low ? low : at > high ? high : at;
}

__global__ void track(const unsigned char* film, int frames, const unsigned char* templates, Place* places) {
  __shared__ unsigned char wanted[kTemplate * kTemplate], window[kWindow * kWindow];
  __shared__ unsigned best;
  const int point = blockIdx.x;
  Place place = places[point];
  for (int i = threadIdx.x; i < kTemplate * kTemplate; i += kThreads)
    wanted[i] = templates[point * kTemplate * kTemplate + i];
  for (int frame = 0; frame < frames; ++frame) {
    const unsigned char* picture = film + size_t(frame) * kSize * kSize;
    for (int i = threadIdx.x; i < kWindow * kWindow; i += kThreads)
      window[i] = picture[(place.y - kReach + i / kWindow) * kSize + place.x - kReach + i % kWindow];
    if (threadIdx.x == 0) best = UINT_MAX;
    __syncthreads();
    for (int attempt = threadIdx.x; attempt < kTries * kTries; attempt += kThreads) {
      const unsigned char* from = window + attempt / kTries * kWindow + attempt % kTries;
      int difference = 0;
      for (int y = 0; y < kTemplate; ++y)
        for (int x = 0; x < kTemplate; ++x) difference += abs(from[y * kWindow + x] - wanted[y * kTemplate + x]);
      atomicMin(&best, static_cast<unsigned>(difference) << 10 | static_cast<unsigned>(attempt));
    }
    __syncthreads();
    const int found = best & 1023;
    place = {inside(place.x + found % kTries - kReach), inside(place.y + found / kTries - kReach)};
    __syncthreads();
  }
  if (threadIdx.x == 0) places[point] = place;
}

// The same for one point on the CPU.
static Place track_on_cpu(const std::vector<unsigned char>& film, int frames, const unsigned char* wanted,
                          Place place) {
  for (int frame = 0; frame < frames; ++frame) {
    unsigned best = UINT_MAX;
    for (int attempt = 0; attempt < kTries * kTries; ++attempt) {
      const unsigned char* from = &film[size_t(frame) * kSize * kSize + (place.y - kReach + attempt / kTries) * kSize +
                                        place.x - kReach + attempt % kTries];
      int difference = 0;
      for (int y = 0; y < kTemplate; ++y)
        for (int x = 0; x < kTemplate; ++x) difference += std::abs(from[y * kSize + x] - wanted[y * kTemplate + x]);
      best = std::min(best, static_cast<unsigned>(difference) << 10 | static_cast<unsigned>(attempt));
    }
    const int found = best & 1023;
    place = {inside(place.x + found % kTries - kReach), inside(place.y + found / kTries - kReach)};
  }
  return place;
}

// Noise that drifts by a pixel or two each frame, with a little fresh noise on top.
static std::vector<unsigned char> drifting_film(int frames) {
  Random random(6);
  std::vector<unsigned char> scene(kSize * kSize), film(size_t(frames) * kSize * kSize);
  for (auto& pixel : scene) pixel = static_cast<unsigned char>(random.below(230));
  int dx = 0, dy = 0;
  for (int frame = 0; frame < frames; ++frame) {
    dx += random.below(5) - 2, dy += random.below(5) - 2;
    for (int y = 0; y < kSize; ++y)
      for (int x = 0; x < kSize; ++x)
        film[(size_t(frame) * kSize + y) * kSize + x] =
            scene[((y + dy) & (kSize - 1)) * kSize + ((x + dx) & (kSize - 1))] +
            static_cast<unsigned char>(random.below(16));
  }
  return film;
}

static bool same(const Place& a, const Place& b) { return a.x == b.x && a.y == b.y; }

int main(int argc, char** argv) {
  const Scale scale(argc, argv);
  const int frames = scale.of(2000, 4), kernels = scale.of(20, 2);
  const auto film = drifting_film(frames);
  std::vector<Place> places(kPoints), before;
  std::vector<unsigned char> templates(kPoints * kTemplate * kTemplate);
  for (int point = 0; point < kPoints; ++point) {
    places[point] = {inside(20 + point % 8 * 26), inside(20 + point / 8 * 28)};
    for (int i = 0; i < kTemplate * kTemplate; ++i)
      templates[point * kTemplate * kTemplate + i] =
          film[(places[point].y + i / kTemplate) * kSize + places[point].x + i % kTemplate];
  }
  const DeviceBuffer<unsigned char> device_film(film.size()), device_templates(templates.size());
  const DeviceBuffer<Place> device_places(kPoints);
  const double begin = begin_steady();
  device_film.put(film);
  device_templates.put(templates);
  device_places.put(places);
  for (int i = 0; i < kernels; ++i) {
    if (i == kernels - 1) before = device_places.fetch();
    track<<<kPoints, kThreads>>>(device_film.get(), frames, device_templates.get(), device_places.get());
  }
  CHECK(cudaGetLastError());
  const auto after = device_places.fetch();
  const double steady = now_us() - begin;
  bool right = true;
  for (int point = 0; point < kPoints; point += 26)
    right = right &&
            same(after[point], track_on_cpu(film, frames, &templates[point * kTemplate * kTemplate], before[point]));
  return finish(steady, right);
}
