// The order between the legacy stream and blocking ones of a green context, on streams that only note what they wait
// for.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "backend/device/cuda/legacy_order.h"

namespace bandsaw::cuda {
namespace {

using Works = std::set<int>;

struct Model {
  std::map<CUstream, Works> streams;  // what each has been given or waits for
  std::map<CUevent, Works> events;
  std::set<CUstream> capturing;
  int calls = 0;
  uint64_t last = 0;
  bool fails = false;
};
Model model;

std::shared_ptr<const Driver> model_driver() {
  model = {};
  auto driver = std::make_shared<Driver>();
  driver->cuEventCreate = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(++model.last);
    return model.events[*event], CUDA_SUCCESS;
  };
  driver->cuEventDestroy = [](CUevent event) { return model.events.erase(event), CUDA_SUCCESS; };
  driver->cuEventRecordWithFlags = [](CUevent event, CUstream stream, unsigned) {
    ++model.calls;
    if (model.fails) return CUDA_ERROR_ILLEGAL_ADDRESS;
    return model.events.at(event) = model.streams[stream], CUDA_SUCCESS;
  };
  driver->cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned) {
    ++model.calls;
    const Works& works = model.events.at(event);
    return model.streams[stream].insert(works.begin(), works.end()), CUDA_SUCCESS;
  };
  driver->cuStreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* status) {
    *status = model.capturing.contains(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  return driver;
}

CUstream stream_number(uint64_t number) { return reinterpret_cast<CUstream>(number << 20); }

class LegacyOrderTest : public testing::Test {
 protected:
  // Puts work on the stream; all that it has to come after must be there.
  void work(CUstream stream, const Works& after) {
    const Works& before = model.streams[stream];
    for (const int other : after) EXPECT_TRUE(before.contains(other)) << other << " is not waited for";
    model.streams[stream].insert(++works_);
  }
  void work_on_legacy() {
    ASSERT_EQ(order_.before_legacy(false), CUDA_SUCCESS);
    Works after = on_blocking_;
    after.insert(on_legacy_.begin(), on_legacy_.end());
    work(CU_STREAM_LEGACY, after);
    on_legacy_.insert(works_);
  }
  void work_on(LegacyOrder::Blocking& stream) {
    ASSERT_EQ(order_.before(stream), CUDA_SUCCESS);
    work(stream.handle, on_legacy_);
    on_blocking_.insert(works_);
  }

  LegacyOrder order_{model_driver()};
  int works_ = 0;
  Works on_legacy_, on_blocking_;
};

TEST_F(LegacyOrderTest, AStreamAloneCostsNothing) {
  const auto stream = order_.add(stream_number(1));
  for (int i = 0; i < 10; ++i) work_on(*stream);
  EXPECT_EQ(model.calls, 0);
}

TEST_F(LegacyOrderTest, TheLegacyStreamAloneCostsNothing) {
  const auto stream = order_.add(stream_number(1));
  for (int i = 0; i < 10; ++i) work_on_legacy();
  EXPECT_EQ(model.calls, 0);
}

TEST_F(LegacyOrderTest, WhoIsOnlyWaitedForHasNothingToWaitFor) {
  const auto stream = order_.add(stream_number(1));
  work_on(*stream);
  EXPECT_EQ(order_.legacy_waits(false), CUDA_SUCCESS);
  EXPECT_TRUE(model.streams[CU_STREAM_LEGACY].contains(1));
  EXPECT_EQ(model.calls, 2);
  work_on(*stream);
  EXPECT_EQ(model.calls, 2);
}

TEST_F(LegacyOrderTest, AnyProgramKeepsTheOrder) {
  std::mt19937 random(7);
  for (int turn = 0; turn < 40; ++turn) {
    std::vector<std::shared_ptr<LegacyOrder::Blocking>> streams;
    for (int i = 0; i < 60; ++i) {
      const unsigned what = random() % 10;
      if (what < 1 || streams.empty()) {
        streams.push_back(order_.add(stream_number(1 + works_ + turn * 1000 + streams.size())));
      } else if (what < 2) {
        order_.remove(*streams.back());
        streams.pop_back();
      } else if (what < 3) {
        EXPECT_EQ(order_.legacy_waits(false), CUDA_SUCCESS);
      } else if (what < 5) {
        work_on_legacy();
      } else {
        work_on(*streams[random() % streams.size()]);
      }
    }
    for (const auto& stream : streams) order_.remove(*stream);
  }
  order_.clear();
  EXPECT_TRUE(model.events.empty()) << "events left behind";
}

TEST_F(LegacyOrderTest, ACaptureForbidsTheLegacyStream) {
  const auto stream = order_.add(stream_number(1)), other = order_.add(stream_number(2));
  work_on(*other);
  model.capturing.insert(stream->handle);
  EXPECT_EQ(order_.before_legacy(true), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(order_.legacy_waits(true), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(model.calls, 0);
  model.capturing.clear();
  work_on_legacy();
}

TEST_F(LegacyOrderTest, AFailureIsToldAndNothingIsForgotten) {
  const auto stream = order_.add(stream_number(1));
  work_on(*stream);
  model.fails = true;
  EXPECT_EQ(order_.before_legacy(false), CUDA_ERROR_ILLEGAL_ADDRESS);
  model.fails = false;
  work_on_legacy();
  model.fails = true;
  EXPECT_EQ(order_.before(*stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  model.fails = false;
  work_on(*stream);
  model.fails = true;
  order_.remove(*stream);
  EXPECT_EQ(order_.before_legacy(false), CUDA_SUCCESS);
}

}  // namespace
}  // namespace bandsaw::cuda
