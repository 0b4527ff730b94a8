#include "backend/runner/objects/handles.h"

#include <gtest/gtest.h>

namespace bandsaw::runner {
namespace {

TEST(Handles, CarryTheirKindAndAreFoundByIt) {
  HandleTable table;
  auto stream = std::make_shared<Stream>();
  const uint64_t handle = table.add(HandleKind::kStream, stream);
  EXPECT_EQ(wire::kind_of(handle), HandleKind::kStream);
  EXPECT_EQ(table.find(HandleKind::kStream, handle), stream);
  EXPECT_EQ(table.find(HandleKind::kEvent, handle), nullptr);
  const uint64_t forged = (handle & ~(0xffull << 56)) | static_cast<uint64_t>(HandleKind::kEvent) << 56;
  EXPECT_EQ(table.find(HandleKind::kEvent, forged), nullptr);
}

TEST(Handles, CarryTheirPartOfTheWindow) {
  HandleTable first, third;
  third.set_part(3);
  const uint64_t handle = third.add(HandleKind::kStream, std::make_shared<Stream>());
  first.add(HandleKind::kStream, std::make_shared<Stream>());
  EXPECT_EQ(handle >> VGPU_HANDLE_PART_SHIFT & (VGPU_WINDOW_PARTS - 1), 3u);
  EXPECT_NE(third.find(HandleKind::kStream, handle), nullptr);
  EXPECT_EQ(first.find(HandleKind::kStream, handle), nullptr) << "another device's";
  EXPECT_NE(third.remove(HandleKind::kStream, handle), nullptr);
}

TEST(Handles, OldGenerationsAndForeignIndicesAreRefused) {
  HandleTable table;
  const uint64_t first = table.add(HandleKind::kEvent, std::make_shared<Event>());
  EXPECT_NE(table.remove(HandleKind::kEvent, first), nullptr);
  const uint64_t second = table.add(HandleKind::kEvent, std::make_shared<Event>());
  EXPECT_EQ(static_cast<uint32_t>(first), static_cast<uint32_t>(second));
  EXPECT_NE(first, second);
  EXPECT_EQ(table.find(HandleKind::kEvent, first), nullptr);
  EXPECT_EQ(table.remove(HandleKind::kEvent, first), nullptr);
  EXPECT_EQ(table.find(HandleKind::kEvent, second + 1), nullptr);
  EXPECT_EQ(table.find(HandleKind::kEvent, second | 0xffffffff), nullptr);
}

TEST(Handles, OwnersTakeTheWholeTreeAlong) {
  HandleTable table;
  const uint64_t context = table.add(HandleKind::kContext, std::make_shared<Context>());
  const uint64_t module = table.add(HandleKind::kModule, std::make_shared<Module>(), context);
  auto function = std::make_shared<Function>();
  const uint64_t handle = table.add_once(HandleKind::kFunction, function, module);
  EXPECT_EQ(table.add_once(HandleKind::kFunction, function, module), handle);
  const uint64_t other = table.add(HandleKind::kGraph, std::make_shared<Graph>());
  EXPECT_EQ(table.size(), 4u);
  EXPECT_NE(table.remove(HandleKind::kContext, context), nullptr);
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(table.find(HandleKind::kFunction, handle), nullptr);
  EXPECT_EQ(table.handle_of(function.get()), 0u);
  EXPECT_NE(table.find(HandleKind::kGraph, other), nullptr);
}

TEST(Handles, GoWithAnotherOwnerOnceGivenToIt) {
  HandleTable table;
  const uint64_t outer = table.add(HandleKind::kGraph, std::make_shared<Graph>());
  const uint64_t node = table.add(HandleKind::kNode, std::make_shared<Node>(), outer);
  const uint64_t inner = table.add(HandleKind::kGraph, std::make_shared<Graph>());
  table.give_to(inner, node);
  EXPECT_EQ(table.owner(inner), node);
  table.give_to(outer, inner);  // it would own itself
  EXPECT_EQ(table.owner(outer), 0u);
  EXPECT_NE(table.remove(HandleKind::kGraph, outer), nullptr);
  EXPECT_EQ(table.size(), 0u);
}

TEST(Handles, ThereIsALimit) {
  HandleTable table;
  auto event = std::make_shared<Event>();
  for (uint32_t i = 0; i < HandleTable::kMax; ++i) ASSERT_NE(table.add(HandleKind::kEvent, event), 0u);
  EXPECT_EQ(table.add(HandleKind::kEvent, event), 0u);
}

}  // namespace
}  // namespace bandsaw::runner
