#include "backend/runner/objects/object_ledger.h"

#include <gtest/gtest.h>

#include "backend/runner/objects/handles.h"
#include "fake_device.h"

namespace bandsaw::runner {
namespace {

struct ShareHost : DeviceHost {
  bool charge_memory(int64_t bytes) override {
    if (bytes > 0 && used + bytes > share) return false;
    used += bytes;
    return true;
  }
  void run_callback(const HostCallback&, CUresult, Done) override {}
  void poisoned(CUresult) override {}
  void print(std::string_view) override {}
  void charge_time(int, uint64_t, uint64_t) override {}
  void* visible_host(uint64_t, uint64_t) override { return nullptr; }
  int64_t used = 0, share = 64 << 20;
};

TEST(ObjectLedger, StreamsBeyondTheUsualCountAgainstTheShare) {
  ShareHost host;
  HandleTable table;
  table.set_prices(true, &host);
  std::vector<uint64_t> handles;
  for (int i = 0; i < 256; ++i) handles.push_back(table.add(HandleKind::kStream, std::make_shared<Stream>()));
  EXPECT_EQ(host.used, 0);
  size_t more = 0;
  while (const uint64_t handle = table.add(HandleKind::kStream, std::make_shared<Stream>())) {
    handles.push_back(handle);
    ASSERT_LT(++more, 20000u);
  }
  EXPECT_NEAR(static_cast<double>(more), (64 << 20) / (576.0 * 1024), 2);
  EXPECT_LE(host.used, host.share);
  EXPECT_NE(table.add(HandleKind::kEvent, std::make_shared<Event>()), 0u);  // what is included is still given
  EXPECT_NE(table.remove(HandleKind::kStream, handles.back()), nullptr);
  EXPECT_NE(table.add(HandleKind::kStream, std::make_shared<Stream>()), 0u);
  handles.pop_back();
  for (const uint64_t handle : handles) table.remove(HandleKind::kStream, handle);
  EXPECT_EQ(host.used, 0);
}

TEST(ObjectLedger, WhatBelongsToAContextIsGivenBackWithIt) {
  ShareHost host;
  HandleTable table;
  table.set_prices(false, &host);
  const uint64_t context = table.add(HandleKind::kContext, std::make_shared<Context>());
  for (int i = 0; i < 2000; ++i) ASSERT_NE(table.add(HandleKind::kStream, std::make_shared<Stream>(), context), 0u);
  EXPECT_GT(host.used, 0);
  table.remove(HandleKind::kContext, context);
  EXPECT_EQ(host.used, 0);
}

TEST(ObjectLedger, LimitsHoldWhateverTheShare) {
  struct Quota : ObjectQuota {
    bool hold(Limited kind) override { return kind != Limited::kStreams || (held < 3 && ++held); }
    void let_go(Limited kind) override { held -= kind == Limited::kStreams; }
    int held = 0;
  } quota;
  ShareHost host;
  HandleTable table;
  table.set_prices(false, &host, &quota);
  const uint64_t context = table.add(HandleKind::kContext, std::make_shared<Context>());
  for (int i = 0; i < 3; ++i) EXPECT_NE(table.add(HandleKind::kStream, std::make_shared<Stream>(), context), 0u);
  EXPECT_EQ(table.add(HandleKind::kStream, std::make_shared<Stream>(), context), 0u);
  EXPECT_NE(table.add(HandleKind::kEvent, std::make_shared<Event>()), 0u);
  table.remove(HandleKind::kContext, context);
  EXPECT_EQ(quota.held, 0);
}

TEST(ObjectLedger, WithoutPricesNothingIsCharged) {
  HandleTable table;
  for (int i = 0; i < 2000; ++i) ASSERT_NE(table.add(HandleKind::kStream, std::make_shared<Stream>()), 0u);
}

}  // namespace
}  // namespace bandsaw::runner
