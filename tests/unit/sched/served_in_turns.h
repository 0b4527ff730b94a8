// Hardware of our own that serves processes in turns, in virtual time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "vgpu-sched/policy/time_slice_weights.h"

namespace bandsaw::sched {

// One process: it has work for `busy`, then none for `pause`, and so on. `busy` 0: always.
struct Program {
  VgpuId vgpu = 0;
  int priority = 0;  // within its virtual GPU
  Time busy = 0, pause = 0;
  Time other_busy = 0;         // of every other step, if they differ
  Time left = 0, back_at = 0;  // of its present work; when there is work again
  Time served = 0, steps = 0, paused = 0;
  Time issue = 0;  // it takes so long to issue the work of a step
  Time longest_wait = 0, ready_since = 0;
  double told = 1;      // part of its time that it reports,
  double beside = 1;    // and of that, while others have work
  bool knows = false;   // it reports what its work takes by itself
  bool learns = false;  // it tries to know it, and does once its work took 7/8 of a time slice at most
  std::uint32_t cut_samples = 0, learnt = 0;
  bool can_keep = true;          // its runner keeps the engine in pauses if it is to
  Time kept = 0;                 // steps that were followed by no rest,
  double slower = 0;             // by what part of its work they took longer than alone
  bool tells = true;             // it says what they take alone,
  Time told_done = 0;            // so much in sum
  Time lost = 0;                 // of each time slice that is interrupted or interrupts, to restore its state
  Time begun = 0, measured = 0;  // when its present work was first served; of all that has ended

  bool ended = false;

  bool has_work(Time now) const { return !ended && back_at <= now; }
  Time work() const { return other_busy != 0 && steps % 2 != 0 ? other_busy : busy; }
  Time mean_work() const { return other_busy != 0 ? (busy + other_busy) / 2 : busy; }
};

class TimeSliceWeightsTest : public testing::Test {
 protected:
  static constexpr Time kSwitch = 170 * kMicrosecond;

  Program& add(VgpuId vgpu, int percent, Time busy = 0, Time pause = 0, Time latency = 0) {
    weights_.set(vgpu, {.percent = percent}, latency);
    shares_[vgpu] = percent;
    programs_.push_back({.vgpu = vgpu, .busy = busy, .pause = pause, .left = busy});
    return programs_.back();
  }

  // The hardware serves who is next and has work, for its time slice or until the work is done.
  void run_for(Time span) {
    for (const Time end = now_ + span; now_ < end;) {
      if (begins_anew_) begin_anew_if_changed();
      Program* next = nullptr;
      for (size_t i = 0; i < programs_.size() && !next; ++i) {
        Program& program = programs_[(turn_ + i) % programs_.size()];
        if (program.has_work(now_)) next = &program;
      }
      if (!next) {
        pass(100 * kMicrosecond);
        continue;
      }
      serve(*next);
      turn_ = static_cast<size_t>(next - &programs_[0]) + 1;
    }
  }
  // Part of the time since the last call.
  std::vector<double> served(Time span) {
    std::vector<double> parts;
    for (Program& program : programs_) {
      parts.push_back(static_cast<double>(std::exchange(program.served, 0)) / static_cast<double>(span));
    }
    return parts;
  }
  std::vector<double> after(Time settle, Time span) {
    run_for(settle);
    served(1);
    run_for(span);
    return served(span);
  }

  // What it does in the next `span`, as a part of what it does alone.
  double progress(const Program& program, Time span) {
    const Time before = program.steps;
    run_for(span);
    return static_cast<double>((program.steps - before) * (program.mean_work() + program.pause)) /
           static_cast<double>(span);
  }
  void start_over() {
    programs_.clear();
    weights_ = TimeSliceWeights();
  }

  // For each program the mean over so many seconds of |its part of what was served - its part of the shares|.
  std::vector<double> errors_of_seconds(int seconds) {
    run_for(2 * kSecond);
    served(1);
    std::vector<double> errors(programs_.size());
    for (int second = 0; second < seconds; ++second) {
      run_for(kSecond);
      const auto parts = served(kSecond);
      const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
      for (size_t i = 0; i < parts.size(); ++i)
        errors[i] += std::abs(parts[i] / sum - shares_[programs_[i].vgpu] / 100.0) / seconds;
    }
    return errors;
  }

  TimeSliceWeights weights_;
  std::map<VgpuId, int> shares_;
  std::vector<Program> programs_;
  Time now_ = kSecond;
  bool begins_anew_ = false;  // with the first one, where a time slice changes, as the hardware does

 private:
  void begin_anew_if_changed() {
    std::vector<Time> slices;
    for (const Program& program : programs_) slices.push_back(weights_.slice(program.vgpu));
    if (std::exchange(slices_, slices) != slices) turn_ = 0;
  }
  bool others_have_work(const Program& program) const {
    return std::ranges::any_of(programs_,
                               [&](const Program& other) { return &other != &program && other.has_work(now_); });
  }
  void serve(Program& program) {
    program.longest_wait = std::max(program.longest_wait, now_ - program.ready_since);
    const Time slice = weights_.slice(program.vgpu, static_cast<uint32_t>(&program - &programs_[0]));
    const bool alone = !others_have_work(program);
    if (program.can_keep && program.busy != 0 && program.pause <= kMillisecond && weights_.keeps(program.vgpu))
      return serve_kept(program, slice);
    const Time lost = alone ? 0 : std::min(program.lost, slice / 2);
    const Time span = program.busy == 0 ? slice : std::min(slice, program.left + lost);
    if (program.left == program.work()) {
      program.begun = now_;
      if (program.steps != 0) program.paused += program.pause;
    }
    pass(span);
    program.served += span - lost;
    program.left -= span - lost;
    program.ready_since = now_;
    if (program.busy != 0 && program.left <= 0) {
      const Time known = program.work();
      ++program.steps;
      if (program.learns && !program.knows) {
        program.knows = now_ - program.begun <= slice - slice / 8;
        ++(program.knows ? program.learnt : program.cut_samples);
      }
      const Time took = program.knows ? known : now_ - program.begun;
      program.measured += static_cast<Time>(program.told * (alone ? 1 : program.beside) * static_cast<double>(took));
      program.left = program.work();
      program.back_at = now_ + program.pause;
      program.ready_since = program.back_at;
    }
    if (!alone) pass(kSwitch);
  }
  // Its pauses are a part of its time slice.
  void serve_kept(Program& program, Time slice) {
    for (Time left = slice; left > 0;) {
      if (program.left == program.work()) {
        const Time slower = static_cast<Time>(program.slower * static_cast<double>(program.work()));
        pass(slower);
        left -= slower;
      }
      const Time span = std::max<Time>(0, std::min(left, program.left + program.pause));
      pass(span);
      program.served += std::min(span, program.left);
      left -= span;
      program.left -= span;
      if (program.left > -program.pause) break;
      program.measured += program.work();
      if (program.tells) program.told_done += program.work() + program.pause;
      ++program.steps, ++program.kept;
      program.left = program.work();
    }
    program.ready_since = now_;
    if (others_have_work(program)) pass(kSwitch);
  }
  void pass(Time span) {
    for (const Time end = now_ + span; now_ < end;) {
      const Time until = std::min(end, sample_at_);
      now_ = until;
      if (now_ == sample_at_) sample();
    }
  }
  void sample() {
    std::vector<TimeSliceWeights::Load> loads;
    for (uint32_t i = 0; i < programs_.size(); ++i) {
      const Program& program = programs_[i];
      if (program.ended) continue;
      loads.push_back({.vgpu = program.vgpu,
                       .process = i,
                       .priority = program.priority,
                       .busy = program.has_work(now_),
                       .measured = program.measured,
                       .own = program.knows ? program.measured : 0,
                       .rests = static_cast<uint32_t>(program.steps - program.kept),
                       .paused = program.paused,
                       .issued = program.issue * (program.steps - program.kept),
                       .done = program.told_done,
                       .cut_samples = program.cut_samples,
                       .learnt = program.learnt});
    }
    weights_.advance(now_, loads);
    sample_at_ = now_ + kMillisecond;
  }

  std::vector<Time> slices_;
  Time sample_at_ = kSecond;
  size_t turn_ = 0;
};

}  // namespace bandsaw::sched
