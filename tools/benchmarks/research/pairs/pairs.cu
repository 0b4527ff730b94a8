// What the eight kernels do alone and beside each other on the GPU itself, for tools/bench model: a line of JSON for
// each thing measured. Residency is bounded by dynamic shared memory that nobody uses; the split between shared memory
// and cache is the same in all runs of alone and pairs.
//
//   pairs measure PART,... [ms=20 ratios=7 log_words=26 small=0]      parts: constants, alone, pairs, overlap
#define BLOCK_STAMPS
#include <memory>
#include <sstream>

#include "overlaps.h"
#include "probes.h"
#include "runs.h"

namespace mps_bench {
namespace {

constexpr const char* kNames[] = {"PC", "SPMV", "ST", "BS", "MM", "TEA", "MRIQ", "SAD"};

using Subjects = std::vector<std::unique_ptr<Subject>>;
using Curve = std::vector<double>;  // blocks per nanosecond with so many resident, from 1 on

void print_share(const char* suffix, const Share& share) {
  std::printf(",\"rate%s\":%.6g,\"resident%s\":%.4f,\"block_ns%s\":%.1f,\"clock%s\":%.4f", suffix, share.rate, suffix,
              share.resident, suffix, share.block_ns, suffix, share.clock);
}

Share steady(const Stamps& stamps, int sms) {
  const Span span = span_of(stamps);
  return share_of(stamps, span.begin + 0.05 * (span.last_begin - span.begin), span.last_begin, sms);
}

Share alone_at(const Bench& bench, Subject* subject, int resident) {
  const int shared = subject->padding(resident);
  const double wave = static_cast<double>(resident) * bench.sms;
  Share share = steady(subject->alone(subject->bounded(3 * wave), shared), bench.sms);
  const double blocks = std::max(4 * wave, share.rate * bench.run_ns);
  return steady(subject->alone(subject->bounded(blocks), shared), bench.sms);
}

Curve alone(const Bench& bench, Subject* subject) {
  subject->calibrate();
  const cudaFuncAttributes& attributes = subject->attributes();
  std::printf(
      "{\"what\":\"kernel\",\"kernel\":\"%s\",\"threads\":%d,\"registers\":%d,\"shared\":%zu,\"local\":%zu,"
      "\"fits\":%d,\"rounds\":%d,\"log_words\":%d}\n",
      subject->name().c_str(), kThreads, attributes.numRegs, attributes.sharedSizeBytes, attributes.localSizeBytes,
      subject->resident(), subject->rounds(), bench.log_words);
  Curve curve;
  for (int resident = 1; resident <= subject->resident(); ++resident) {
    const Share share = alone_at(bench, subject, resident);
    curve.push_back(share.rate);
    std::printf("{\"what\":\"alone\",\"kernel\":\"%s\",\"wanted\":%d", subject->name().c_str(), resident);
    print_share("", share);
    std::printf("}\n");
  }
  subject->carve(-1);
  const Share share = alone_at(bench, subject, subject->resident());
  std::printf("{\"what\":\"alone with cache\",\"kernel\":\"%s\",\"wanted\":%d", subject->name().c_str(),
              subject->resident());
  print_share("", share);
  std::printf("}\n");
  subject->carve(100);
  std::fflush(stdout);
  return curve;
}

// Both in grid slices of as many blocks as they are to have on the SMs, each grid slice after the last one of its
// kernel: the hardware gives no block of a kernel a place before all blocks of an earlier launch have one, so that one
// launch of more blocks than are to be resident would keep the other kernel out.
void together(const Bench& bench, Subject* a, const Curve& curve_a, int resident, Subject* b, const Curve& curve_b) {
  const int others = std::clamp(a->resident() - resident, 1, b->resident());
  const auto slices = [&](const Curve& curve, int count) {
    return std::max(6, static_cast<int>(std::ceil(curve[count - 1] * bench.run_ns / (count * bench.sms))));
  };
  const std::string what = "pair of " + a->name() + " and " + b->name();
  const int slices_a = slices(curve_a, resident), slices_b = slices(curve_b, others);
  a->restart(), b->restart();
  for (int i = 0, j = 0; i < slices_a || j < slices_b;) {
    const bool first = j >= slices_b || (i < slices_a && i * slices_b <= j * slices_a);
    Subject* subject = first ? a : b;
    const int count = first ? resident : others;
    if (!subject->launch_more(count * bench.sms, first ? a->padding(resident) : 0, first ? bench.other : bench.second))
      break;
    ++(first ? i : j);
  }
  if (!went(cudaDeviceSynchronize(), what)) std::exit(3);
  const Stamps stamps_a = a->stamps(), stamps_b = b->stamps();
  const Span span_a = span_of(stamps_a), span_b = span_of(stamps_b);
  const double last = std::min(span_a.last_begin, span_b.last_begin);
  const double begin = std::max(span_a.begin, span_b.begin);
  const double from = begin + 0.05 * (last - begin);
  std::printf("{\"what\":\"pair\",\"a\":\"%s\",\"b\":\"%s\",\"wanted_a\":%d,\"wanted_b\":%d,\"window_ns\":%.0f",
              a->name().c_str(), b->name().c_str(), resident, others, last - from);
  print_share("_a", share_of(stamps_a, from, last, bench.sms));
  print_share("_b", share_of(stamps_b, from, last, bench.sms));
  std::printf("}\n");
  std::fflush(stdout);
}

// Every pair, `a` with as many different numbers of blocks as wanted.
void pairs(const Bench& bench, const Subjects& subjects, const std::vector<Curve>& curves, int ratios) {
  for (size_t i = 0; i < subjects.size(); ++i) {
    for (size_t j = i + 1; j < subjects.size(); ++j) {
      const int most = std::max(1, subjects[i]->resident() - 1), count = std::clamp(ratios, 1, most);
      for (int k = 0; k < count; ++k) {
        const int resident = count == 1 ? (most + 1) / 2 : 1 + k * (most - 1) / (count - 1);
        together(bench, subjects[i].get(), curves[i], resident, subjects[j].get(), curves[j]);
      }
    }
  }
}

int run(const std::string& parts, const Options& options) {
  const auto asked = [&](const char* part) {
    return ("," + parts + ",").find(std::string(",") + part + ",") != std::string::npos;
  };
  const Bench bench = make_bench(options);
  const int64_t begin = now_ns();
  const auto seconds = [&](const char* part) {
    std::printf("{\"what\":\"time\",\"until\":\"%s\",\"seconds\":%.2f}\n", part, 1e-9 * (now_ns() - begin));
    std::fflush(stdout);
  };
  if (asked("constants")) {
    constants(bench);
    seconds("constants");
  }
  if (!asked("alone") && !asked("pairs") && !asked("overlap")) return 0;
  Subjects subjects;
  std::vector<Curve> curves;
  for (const char* name : kNames) {
    if (bench.small && subjects.size() == 2) break;
    subjects.push_back(std::make_unique<Subject>(*find_kind(name), bench, bench.small ? 1u << 10 : 1u << 18));
    subjects.back()->carve(100);
    curves.push_back(alone(bench, subjects.back().get()));
  }
  seconds("alone");
  if (asked("pairs")) {
    pairs(bench, subjects, curves, static_cast<int>(options.number("ratios", 7)));
    seconds("pairs");
  }
  if (asked("overlap")) {
    overlaps(bench, subjects);
    seconds("overlap");
  }
  return 0;
}

}  // namespace
}  // namespace mps_bench

int main(int argc, char** argv) {
  if (argc < 3 || std::strcmp(argv[1], "measure") != 0) {
    std::fprintf(stderr, "usage: %s measure constants,alone,pairs,overlap [name=value ...]\n", argv[0]);
    return 2;
  }
  return mps_bench::run(argv[2], Options(argc, argv));
}
