// The record loop of a program that the compute engine is kept for.
#include "tests/unit/runner/guest.h"

namespace bandsaw::runner {
namespace {

using wire::Opcode;

class KeptDevice : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  bool keep_engine(std::function<Keep()>, std::function<void()> ended) override {
    ended_ = std::move(ended);
    return true;
  }
  bool keep_behind() override { return --until_behind > 0; }
  void let_go() { ended_(); }
  std::atomic<int> until_behind{0};  // so often it is asked in vain

 private:
  std::function<void()> ended_;
};

class KeepLoop : public Guest {
 protected:
  KeepLoop() : Guest(std::make_unique<KeptDevice, uint64_t, DeviceHost*>) {
    grant_page_->gates[0][kCompute].open = kOpenWide;
    grant_page_->keep_engine = 1;
    process_->gate().connect(grant_page_.get(), 0, UniqueFd());
    make_context(ring_);
  }
  ~KeepLoop() override {
    record_loop_ = nullptr;  // before the grant page goes
    kept().let_go();
  }
  KeptDevice& kept() { return *static_cast<KeptDevice*>(device_); }
  bool sleeps() { return TestRing::load(ring_.header->host_sleeping) != 0; }

  const std::unique_ptr<GrantPage> grant_page_ = std::make_unique<GrantPage>();
  TestRing ring_ = add_ring(0);
};

// Others have the engine for longer than it polls, and it can come behind the work only once that is back.
TEST_F(KeepLoop, WhileItSleepsItLooksForTheMomentToComeBehindTheWork) {
  kept().until_behind = 2000;
  const vgpu_fill fill{device_base(), 0, 8, 1, 1, 7};
  ring_.send(Opcode::kFill, wire::FillArgs{fill, 0, {3, 1}});
  EXPECT_TRUE(TestRing::wait([&] { return sleeps(); }));
  const int left = kept().until_behind;
  EXPECT_GT(left, 0);
  EXPECT_TRUE(TestRing::wait([&] { return kept().until_behind < left - 20; }));
  kept().until_behind = 1;
  EXPECT_EQ(ring_.call(Opcode::kMemoryInfo).result, CUDA_SUCCESS);
}

}  // namespace
}  // namespace bandsaw::runner
