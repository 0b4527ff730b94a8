#include "backend/session/request.h"

#include "guest-driver/uapi/vgpu_ring.h"
#include "tests/unit/session/fake_runner.h"

namespace bandsaw {
namespace {

constexpr uint64_t kTop = ~uint64_t{0};

Status checked(const std::vector<std::byte>& bytes) {
  auto request = parse_request(bytes);
  return request.ok() ? check_mapping(request.value()) : request.status();
}

TEST(Request, ExactLengthsOnly) {
  for (uint32_t type = 0; type < 12; ++type) {
    for (size_t length = 0; length < 128; ++length) {
      std::vector<std::byte> bytes(length);
      if (length >= sizeof type) std::memcpy(bytes.data(), &type, sizeof type);
      const bool header_only = type == VGPU_CTL_DESTROY_PROCESS || type == VGPU_CTL_KICK || type == VGPU_CTL_PING;
      const bool good =
          (header_only && length == sizeof(vgpu_ctl_header)) ||
          (type == VGPU_CTL_QUERY && length == sizeof(vgpu_ctl_query)) ||
          (type == VGPU_CTL_PRIORITY && length == sizeof(vgpu_ctl_priority)) ||
          (type == VGPU_CTL_CREATE_PROCESS && length == sizeof(vgpu_ctl_create_process)) ||
          ((type == VGPU_CTL_DROP_RING || type == VGPU_CTL_DROP_REGION) && length == sizeof(vgpu_ctl_drop));
      EXPECT_EQ(parse_request(bytes).ok(), good) << type << " " << length;
    }
  }
}

TEST(Request, NiceValuesAreThoseOfLinux) {
  for (const int32_t nice : {-21, -20, 0, 19, 20, INT32_MIN}) {
    vgpu_ctl_priority priority{};
    priority.header = {VGPU_CTL_PRIORITY, 1};
    priority.nice = static_cast<__le32>(nice);
    const auto request = parse_request(std::as_bytes(std::span(&priority, 1)));
    ASSERT_EQ(request.ok(), nice >= -20 && nice <= 19) << nice;
    if (request.ok()) {
      EXPECT_EQ(request.value().nice, nice);
    }
  }
}

TEST(Request, SegmentCountMustMatchItsBytes) {
  auto bytes = add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{0, 4096}, {8192, 4096}});
  EXPECT_TRUE(parse_request(bytes).ok());
  bytes.pop_back();
  EXPECT_FALSE(parse_request(bytes).ok());
  bytes.resize(bytes.size() + 17);
  EXPECT_FALSE(parse_request(bytes).ok());
  vgpu_ctl_add_region many{};
  many.header.type = VGPU_CTL_ADD_REGION;
  for (const uint32_t count : {0u, VGPU_SEGMENTS_MAX + 1, ~0u, 0x10000000u}) {
    many.segments = count;
    EXPECT_FALSE(parse_request(bytes_of(many)).ok()) << count;
  }
}

TEST(Mapping, AcceptsPagesAtTheEdges) {
  EXPECT_TRUE(checked(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{0, 4096}})).ok());
  EXPECT_TRUE(checked(add(VGPU_CTL_ADD_REGION, 1, 1, kGuestAddressEnd - 4096, {{kTop - 8191, 4096}})).ok());
  EXPECT_TRUE(checked(add(VGPU_CTL_ADD_RING, 1, 1, 0, {{0, VGPU_RING_BYTES}})).ok());
}

TEST(Mapping, RefusesWhatIsNotPagesOrOverflows) {
  const auto region = [](uint64_t va, std::vector<vgpu_segment> segments) {
    return checked(add(VGPU_CTL_ADD_REGION, 1, 1, va, segments)).code();
  };
  EXPECT_EQ(region(0, {{0, 4096}}), EINVAL);
  EXPECT_EQ(region(4097, {{0, 4096}}), EINVAL);
  EXPECT_EQ(region(4096, {{1, 4096}}), EINVAL);
  EXPECT_EQ(region(4096, {{0, 100}}), EINVAL);
  EXPECT_EQ(region(4096, {{0, 0}}), EINVAL);
  EXPECT_EQ(region(kGuestAddressEnd, {{0, 4096}}), EINVAL);
  EXPECT_EQ(region(kGuestAddressEnd - 4096, {{0, 8192}}), EINVAL);
  EXPECT_EQ(region(kTop - 4095, {{0, 4096}}), EINVAL);
  EXPECT_EQ(region(4096, {{kTop - 4095, 8192}}), EINVAL);               // wraps
  EXPECT_EQ(region(4096, {{0, 1ull << 63}, {0, 1ull << 63}}), EINVAL);  // the sum wraps to 0
}

TEST(Mapping, SumAndFlagsAndRingSize) {
  auto bytes = add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{0, 4096}});
  const uint64_t wrong = 8192;
  std::memcpy(bytes.data() + offsetof(vgpu_ctl_add_region, bytes), &wrong, sizeof wrong);
  EXPECT_EQ(checked(bytes).code(), EINVAL);
  EXPECT_EQ(checked(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{0, 4096}}, 8)).code(), EINVAL);
  EXPECT_EQ(checked(add(VGPU_CTL_ADD_RING, 1, 1, 4096, {{0, VGPU_RING_BYTES}}, 1)).code(), EINVAL);
  EXPECT_EQ(checked(add(VGPU_CTL_ADD_RING, 1, 1, 4096, {{0, 4096}})).code(), EINVAL);
}

TEST(Text, OfGuestsIsMadePrintable) {
  const unsigned char bytes[] = {'a', '\n', 0x1b, 0xff, 'b', 0, 'c'};
  EXPECT_EQ(printable(bytes), "a???b");
}

}  // namespace
}  // namespace bandsaw
