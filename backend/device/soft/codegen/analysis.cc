#include "backend/device/soft/codegen/analysis.h"

#include <algorithm>
#include <map>

#include "backend/device/soft/codegen/gathering.h"
#include "backend/device/soft/codegen/graph.h"
#include "backend/device/soft/codegen/opinfo.h"

namespace bandsaw::soft {
namespace {

struct Occurrence {
  int block;
  size_t index;
};

class Analyser {
 public:
  explicit Analyser(const FlatFunction& f) : f_(f), n_(f.blocks.size()), entry_(f.source->entry) {}

  Analysis run() {
    for (auto& b : f_.blocks) graph_.push_back(b.successors);
    find_read();
    order();
    occurrences();
    meet_ = meeting_blocks(graph_, a_.order);
    partial_.assign(n_, false);
    stop_.assign(n_, -2);
    a_.varying.assign(f_.registers.size(), false);
    for (bool changed = true; changed;) {
      changed = spread_varying();
      changed |= grow_regions();
    }
    make_regions();
    find_live();
    return std::move(a_);
  }

 private:
  void find_read() {
    a_.read.assign(f_.registers.size(), false);
    for (const auto& block : f_.blocks) {
      for (const Op& op : block.ops) for_uses(op, op_info(op, entry_).definitions, [&](int r) { a_.read[r] = true; });
    }
  }

  // What counts, and does not look at what it has counted to, waits for nobody.
  bool waits(const Op& op) const {
    if (op.in->opcode != "atom") return may_spin(op);
    bool looks = false;
    for_definitions(op, op_info(op, entry_).definitions, [&](int r) { looks = looks || a_.read[r]; });
    return looks;
  }

  void order() {
    std::vector<int> rank(n_);
    for (size_t i = 0; i < n_; ++i) rank[i] = -static_cast<int>(i);
    a_.order = reverse_post_order(graph_, rank);
    set_positions();
    idom_ = dominators(graph_, a_.order, a_.position);
    auto depth = loop_depths(graph_, a_.order, a_.position, idom_);
    for (size_t i = 0; i < n_; ++i) rank[i] = depth[i] * static_cast<int>(n_ + 1) - static_cast<int>(i);
    a_.order = reverse_post_order(graph_, rank);
    set_positions();
    idom_ = dominators(graph_, a_.order, a_.position);
    std::vector<bool> all(n_), cyclic;
    for (int b : a_.order) all[b] = true;
    auto component = components(graph_, all, &cyclic);
    std::vector<bool> spinning(cyclic.size());
    a_.in_cycle.assign(n_, false);
    a_.spins.assign(n_, false);
    spin_block_.assign(n_, false);
    for (int b : a_.order) {
      a_.in_cycle[b] = cyclic[component[b]];
      for (auto& op : f_.blocks[b].ops) spin_block_[b] = spin_block_[b] || waits(op);
      if (spin_block_[b] && a_.in_cycle[b]) spinning[component[b]] = true;
    }
    for (int b : a_.order) a_.spins[b] = spinning[component[b]];
  }

  void set_positions() {
    a_.position.assign(n_, -1);
    for (size_t i = 0; i < a_.order.size(); ++i) a_.position[a_.order[i]] = static_cast<int>(i);
  }

  void occurrences() {
    size_t registers = f_.registers.size();
    definitions_.resize(registers);
    std::vector<std::vector<Occurrence>> uses(registers);
    a_.exposed.assign(registers, false);
    for (int b : a_.order) {
      std::vector<bool> defined(registers);
      for (size_t i = 0; i < f_.blocks[b].ops.size(); ++i) {
        const Op& op = f_.blocks[b].ops[i];
        OpInfo info = op_info(op, entry_);
        auto use = [&](int r) {
          uses[r].push_back({b, i});
          if (!defined[r]) a_.exposed[r] = true;
        };
        for_uses(op, info.definitions, use);
        for_definitions(op, info.definitions, [&](int r) {
          definitions_[r].push_back({b, i});
          if (op.guard >= 0) {
            if (!defined[r]) a_.exposed[r] = true;  // keeps the old value in some lanes
          } else {
            defined[r] = true;
          }
        });
      }
    }
    a_.single.assign(registers, false);
    for (size_t r = 0; r < registers; ++r) {
      if (definitions_[r].size() != 1) continue;
      Occurrence d = definitions_[r][0];
      if (f_.blocks[d.block].ops[d.index].guard >= 0) continue;
      a_.single[r] = std::all_of(uses[r].begin(), uses[r].end(), [&](Occurrence u) {
        return u.block == d.block ? u.index > d.index : dominates(idom_, a_.position, d.block, u.block);
      });
    }
  }

  bool op_varies(const Op& op, int block) {
    OpInfo info = op_info(op, entry_);
    if (info.result == Result::kVarying) return true;
    if (info.result == Result::kWarp && names_lanes(*op.in) && op.args.back().reg >= 0 &&
        a_.varying[op.args.back().reg])
      return true;  // lanes of different groups
    if (info.result == Result::kLoad && !entry_ && op.in->space() == ptx::Space::kParam) return true;
    if (info.result == Result::kLoad && op.in->space() == ptx::Space::kParam && op.args.size() > 1 && op.args[1].var &&
        std::find(f_.parameters.begin(), f_.parameters.end(), op.args[1].var) == f_.parameters.end())
      return true;  // a call's returned value
    bool varying = false;
    for_uses(op, info.definitions, [&](int r) { varying = varying || a_.varying[r]; });
    if (varying && info.result != Result::kWarp) return true;
    if (varying && op.guard >= 0 && a_.varying[op.guard]) return true;
    if (!partial_[block]) return false;
    return info.result != Result::kPure;
  }

  bool spread_varying() {
    bool any = false;
    for (bool changed = true; changed;) {
      changed = false;
      for (int b : a_.order) {
        for (auto& op : f_.blocks[b].ops) {
          OpInfo info = op_info(op, entry_);
          if (info.result == Result::kNone) continue;
          bool varies = op_varies(op, b);
          for_definitions(op, info.definitions, [&](int r) {
            if (a_.varying[r]) return;
            if (varies || (partial_[b] && !a_.single[r])) a_.varying[r] = changed = any = true;
          });
        }
      }
    }
    return any;
  }

  bool divergent(int b) const {
    const auto& ops = f_.blocks[b].ops;
    if (ops.empty() || !is_terminator(*ops.back().in)) return false;
    const Op& op = ops.back();
    if (op.in->opcode == "bra") return op.guard >= 0 && a_.varying[op.guard];
    if (op.in->opcode == "brx") {
      return (op.guard >= 0 && a_.varying[op.guard]) || (op.args[0].reg >= 0 && a_.varying[op.args[0].reg]);
    }
    return false;  // ret, exit and trap end lanes; the rest stay together
  }

  // Some lanes may end in the region, so that they never come to its stop.
  bool has_end(const std::vector<bool>& region) const {
    for (int b : a_.order) {
      if (!region[b]) continue;
      if (graph_[b].empty()) return true;
      const auto& ops = f_.blocks[b].ops;
      if (!ops.empty() && (ops.back().in->opcode == "ret" || ops.back().in->opcode == "exit")) return true;
    }
    return false;
  }

  bool gathers_within(const std::vector<bool>& region) const {
    for (int b : a_.order)
      if (region[b] && f_.blocks[b].sync_head) return true;
    return false;
  }

  // Lanes that wait at the stop could come to an instruction of the region that gathers, which the others would have
  // left behind: these may end without passing the stop. They may also be what an instruction in the region waits for,
  // at one behind the stop. Where all pass it, they come by this branch again together.
  bool gathers_twice(int b, int stop) const {
    const auto region = between(graph_, b, stop);
    if (!gathers_within(region)) return false;
    std::vector<bool> seen(n_);
    const bool all_pass = !has_end(region);
    seen[b] = all_pass;
    for (std::vector<int> work{stop}; !work.empty();) {
      const int x = work.back();
      work.pop_back();
      if (seen[x]) continue;
      seen[x] = true;
      if (f_.blocks[x].sync_head && (region[x] || !all_pass)) return true;
      work.insert(work.end(), graph_[x].begin(), graph_[x].end());
    }
    return false;
  }

  // The nearest block where all lanes that leave b meet, outside of every region; -1 if there is none.
  int find_stop(int b) const {
    BitSet set(n_, true);
    for (int s : graph_[b]) set.intersect(meet_[s]);
    int best = -1;
    std::vector<bool> seen(n_);
    std::vector<int> queue(graph_[b]);
    for (size_t i = 0; i < queue.size() && best < 0; ++i) {
      int x = queue[i];
      if (seen[x]) continue;
      seen[x] = true;
      if (set[x] && !partial_[x] && !gathers_twice(b, x)) best = x;
      queue.insert(queue.end(), graph_[x].begin(), graph_[x].end());
    }
    return best;
  }

  bool spins_within(const std::vector<bool>& region) {
    std::vector<bool> cyclic;
    auto component = components(graph_, region, &cyclic);
    for (int b : a_.order)
      if (region[b] && spin_block_[b] && cyclic[component[b]]) return true;
    return false;
  }

  bool has_barrier(const std::vector<bool>& region) const {
    for (int b : a_.order) {
      if (!region[b] || !f_.blocks[b].sync_head) continue;
      const auto& in = *f_.blocks[b].ops.front().in;
      if (!f_.blocks[b].called_with && in.opcode == "call") return true;
      if ((in.opcode == "bar" || in.opcode == "barrier") && !in.has("warp")) return true;
    }
    return false;
  }

  // Lanes at a region's stop wait for those inside. Where these wait in turn for what the others would do after the
  // stop (release a lock, arrive at a barrier, exit), the lanes must not meet there.
  bool must_not_meet(const std::vector<bool>& region) { return spins_within(region) || has_barrier(region); }

  bool grow_regions() {
    bool any = false;
    for (bool changed = true; changed;) {
      changed = false;
      for (int b : a_.order) {
        if (!divergent(b)) continue;
        int stop = find_stop(b);
        auto region = between(graph_, b, stop);
        if (stop >= 0 && must_not_meet(region)) {
          stop = -1;
          region = between(graph_, b, stop);
        }
        for (size_t x = 0; x < n_; ++x) {
          if (region[x] && !partial_[x]) partial_[x] = changed = any = true;
        }
      }
    }
    return any;
  }

  bool assign_stops() {
    std::fill(stop_.begin(), stop_.end(), -2);
    for (int b : a_.order) {
      if (!divergent(b)) continue;
      int stop = find_stop(b);
      auto region = between(graph_, b, stop);
      if (stop >= 0 && must_not_meet(region)) {
        stop = -1;
        region = between(graph_, b, stop);
      }
      for (size_t x = 0; x < n_; ++x) {
        if (!region[x]) continue;
        if (stop_[x] != -2 && stop_[x] != stop) return false;
        stop_[x] = stop;
      }
    }
    return true;
  }

  void make_regions() {
    if (!assign_stops()) {  // overlapping regions with different ends: let nothing meet again
      for (bool more = true; more;) {
        more = false;
        for (int b : a_.order) {
          if (!divergent(b)) continue;
          auto region = between(graph_, b, -1);
          for (size_t x = 0; x < n_; ++x)
            if (region[x] && !partial_[x]) partial_[x] = more = true;
        }
        more |= spread_varying();
      }
      for (size_t x = 0; x < n_; ++x) stop_[x] = -1;
    }
    a_.region_of.assign(n_, -1);
    a_.index_in_region.assign(n_, -1);
    std::map<int, int> by_stop;
    for (int b : a_.order) {
      if (!partial_[b]) continue;
      auto [it, fresh] = by_stop.emplace(stop_[b], static_cast<int>(a_.regions.size()));
      if (fresh) {
        a_.regions.emplace_back();
        a_.regions.back().stop = stop_[b];
      }
      Region& r = a_.regions[it->second];
      a_.region_of[b] = it->second;
      a_.index_in_region[b] = static_cast<int>(r.blocks.size());
      r.blocks.push_back(b);
      r.gathering = r.gathering || f_.blocks[b].sync_head;
    }
    for (auto& r : a_.regions) {
      std::vector<bool> in(n_);
      for (int b : r.blocks) in[b] = true;
      r.rotating = spins_within(in);
    }
  }

  // The registers that a block takes away from those live behind it, and then adds.
  struct Change {
    BitSet removed, added;
  };

  Change change_of(int block) {
    Change change{BitSet(f_.registers.size()), BitSet(f_.registers.size())};
    const auto& ops = f_.blocks[block].ops;
    for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
      const OpInfo info = op_info(*op, entry_);
      for_definitions(*op, info.definitions, [&](int r) {
        // What is blended into the old value reads that.
        if (op->guard >= 0 || a_.needs_blend(block, r)) return change.added.set(r);
        change.added.reset(r);
        change.removed.set(r);
      });
      for_uses(*op, info.definitions, [&](int r) { change.added.set(r); });
    }
    return change;
  }

  // Liveness, backwards until nothing changes. Large kernels have tens of thousands of blocks and of registers.
  void find_live() {
    const size_t registers = f_.registers.size();
    a_.live.assign(n_, BitSet(registers));
    std::vector<Change> changes(n_);
    for (int b : a_.order) changes[b] = change_of(b);
    for (bool changed = true; changed;) {
      changed = false;
      for (auto it = a_.order.rbegin(); it != a_.order.rend(); ++it) {
        BitSet now(registers);
        for (int s : graph_[*it]) now.unite(a_.live[s]);
        now.remove(changes[*it].removed);
        now.unite(changes[*it].added);
        if (now == a_.live[*it]) continue;
        a_.live[*it] = std::move(now);
        changed = true;
      }
    }
    a_.joins.assign(registers, 0);
    for (int b : a_.order)
      if (partial_[b]) a_.live[b].each([&](size_t r) { ++a_.joins[r]; });
  }

  const FlatFunction& f_;
  size_t n_;
  bool entry_;
  Graph graph_;
  Analysis a_;
  std::vector<int> idom_, stop_;
  std::vector<BitSet> meet_;
  std::vector<bool> partial_, spin_block_;
  std::vector<std::vector<Occurrence>> definitions_;
};

}  // namespace

bool Analysis::needs_blend(int block, int reg) const {
  if (!partial(block) || !exposed[reg]) return false;
  return !(single[reg] && !in_cycle[block] && !regions[region_of[block]].rotating);
}

Analysis analyse(const FlatFunction& function) { return Analyser(function).run(); }

}  // namespace bandsaw::soft
