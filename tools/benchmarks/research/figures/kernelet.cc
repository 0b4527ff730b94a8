// Kernelet's figures 6 to 9: its eight kernels and four mixes on the simulated GPU of tests/unit/slice.
#include <algorithm>
#include <numeric>
#include <string>

#include "tests/unit/slice/workloads.h"
#include "tools/benchmarks/research/figures/figures.h"
#include "tools/benchmarks/research/planning/make_planner.h"

namespace bandsaw::research {
namespace {

constexpr Time kLength = 20 * kMillisecond;  // of an instance alone

class Kernels {
 public:
  Kernels() : model_(gpu_.gpu()), table_(gpu_, kernels_) {
    for (const SimKernel& kernel : kernels_) model_.add(gpu_.profile(kernel, Known::kHalf));
  }

  // So fast that several are always pending, as in section 5.1.
  std::vector<Job> jobs(const Mix& mix, int each) {
    std::vector<Job> all = poisson_jobs(gpu_, kernels_, mix, each, kLength, 11);
    for (Job& job : all) job.arrival /= 8;
    return all;
  }

  double seconds(const std::string& mode, const std::vector<Job>& jobs, std::uint64_t seed = 1) {
    auto planner = make_planner(mode, model_, {}, &table_, seed);
    return Simulation(gpu_, kernels_, minimums(gpu_, kernels_, kLength), std::move(planner), {.rates = &rates_})
        .run(jobs)
        .seconds();
  }

 private:
  SimGpu gpu_{GpuModel{}};
  std::vector<SimKernel> kernels_ = eight_kernels();
  CoRunModel model_;
  SimTable table_;
  SimRates rates_;
};

Mix mix_named(const std::string& name) {
  const std::vector<Mix> all = mixes();
  return *std::find_if(all.begin(), all.end(), [&](const Mix& mix) { return mix.name == name; });
}

// Each instance reads data of its own, which the copy engine brings one after the other, in the order of arrival;
// a copy takes this part of what its kernel takes alone. The paper's is what makes overlapping worth 9 %.
constexpr double kCopy = 0.1;

// Overlapped: a kernel is ready when its data are there. Else nothing runs while data come, so the copies' time is
// added to that of kernels that are all there.
double with_copies(Kernels& kernels, std::vector<Job> jobs, bool overlapped, bool planned, double scale) {
  const double copy = kCopy * scale * static_cast<double>(kLength);
  double engine = 0;
  for (Job& job : jobs) {
    job.blocks = static_cast<Blocks>(static_cast<double>(job.blocks) * scale);
    engine = std::max(engine, static_cast<double>(job.arrival)) + copy;
    if (overlapped) job.arrival = static_cast<Time>(engine);
  }
  const double first = static_cast<double>(jobs.front().arrival) * 1e-9;
  const double seconds = kernels.seconds(planned ? "kernelet" : "consolidation", jobs);
  return overlapped ? seconds + std::min(first, copy * 1e-9) : seconds + copy * 1e-9 * static_cast<double>(jobs.size());
}

// How much longer the other ways take, and the part of the copies that planned kernels hide.
void add_case_two(Kernels& kernels, const std::string& mix, double scale, const std::string& at, FigureValues* values) {
  const std::vector<Job> jobs = kernels.jobs(mix_named(mix), 12);
  const double full = with_copies(kernels, jobs, true, true, scale),
               apart = with_copies(kernels, jobs, false, true, scale);
  values->push_back({"Y,Y against N,Y", at, 100 * (apart / full - 1)});
  values->push_back({"Y,Y against Y,N", at, 100 * (with_copies(kernels, jobs, true, false, scale) / full - 1)});
  values->push_back({"Y,Y against N,N", at, 100 * (with_copies(kernels, jobs, false, false, scale) / full - 1)});
  const double copies = kCopy * scale * static_cast<double>(kLength) * 1e-9 * static_cast<double>(jobs.size());
  values->push_back({"hidden", at, 100 * std::clamp((apart - full) / copies, 0.0, 1.0)});
}

}  // namespace

FigureValues kernelet_6() {
  Kernels kernels;
  FigureValues values;
  for (const Mix& mix : mixes()) {
    const std::vector<Job> jobs = kernels.jobs(mix, 25);
    const double base = kernels.seconds("consolidation", jobs), kernelet = kernels.seconds("kernelet", jobs);
    const double sequential = kernels.seconds("time-sliced", jobs), opt = kernels.seconds("opt", jobs);
    values.push_back({"against Base", mix.name, 100 * (base / kernelet - 1)});
    values.push_back({"against sequential", mix.name, 100 * (sequential / kernelet - 1)});
    values.push_back({"OPT against it", mix.name, 100 * (kernelet / opt - 1)});
  }
  return values;
}

FigureValues kernelet_7(int schedules) {
  Kernels kernels;
  const std::vector<Job> jobs = kernels.jobs(mix_named("ALL"), 4);
  const double kernelet = kernels.seconds("kernelet", jobs);
  std::vector<double> times;
  for (int i = 1; i <= schedules; ++i)
    times.push_back(kernels.seconds("random", jobs, static_cast<std::uint64_t>(i)) / kernelet);
  std::sort(times.begin(), times.end());
  const auto faster = std::count_if(times.begin(), times.end(), [](double time) { return time < 1; });
  FigureValues values = {{"faster than kernelet", "ALL", 100.0 * static_cast<double>(faster) / schedules}};
  for (int percent = 0; percent <= 100; percent += 5) {
    const std::size_t at = std::min(times.size() - 1, times.size() * static_cast<std::size_t>(percent) / 100);
    values.push_back({"cumulated", std::to_string(percent), times[at]});
  }
  return values;
}

FigureValues kernelet_8() {
  Kernels kernels;
  FigureValues values;
  for (const Mix& mix : mixes()) add_case_two(kernels, mix.name, 1, mix.name, &values);
  return values;
}

FigureValues kernelet_9() {
  Kernels kernels;
  FigureValues values;
  for (const double scale : {1.0, 2.5}) add_case_two(kernels, "MIX", scale, scale == 1 ? "sf 1" : "sf 2.5", &values);
  return values;
}

}  // namespace bandsaw::research
