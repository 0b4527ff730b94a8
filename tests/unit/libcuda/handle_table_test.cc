#include "guest-driver/libcuda/api/handle_table.h"

#include <gtest/gtest.h>

namespace bandsaw::libcuda {
namespace {

struct Thing {
  uint64_t handle = 0;
  int value = 0;
};

std::unique_ptr<Thing> thing(uint64_t handle, int value) { return std::make_unique<Thing>(Thing{handle, value}); }

constexpr uint64_t kind(uint64_t number, uint64_t generation, uint64_t index) {
  return number << 56 | generation << 32 | index;
}

TEST(HandleTable, FindsOnlyTheWholeHandle) {
  auto table = std::make_unique<HandleTable<Thing>>();
  table->insert(thing(kind(6, 1, 300), 5));
  EXPECT_EQ(table->find(kind(6, 1, 300))->value, 5);
  EXPECT_EQ(table->find(kind(6, 2, 300)), nullptr);
  EXPECT_EQ(table->find(kind(5, 1, 300)), nullptr);
  EXPECT_EQ(table->find(kind(6, 1, 301)), nullptr);
  EXPECT_EQ(table->find(kind(6, 1, 0xffffffff)), nullptr);
  EXPECT_EQ(table->find(uint64_t{0}), nullptr);
}

TEST(HandleTable, ANewGenerationReplacesTheOld) {
  auto table = std::make_unique<HandleTable<Thing>>();
  table->insert(thing(kind(6, 1, 3), 1));
  table->insert(thing(kind(6, 2, 3), 2));
  EXPECT_EQ(table->find(kind(6, 1, 3)), nullptr);
  EXPECT_EQ(table->find(kind(6, 2, 3))->value, 2);
  table->remove(kind(6, 1, 3));
  EXPECT_NE(table->find(kind(6, 2, 3)), nullptr);
  table->remove(kind(6, 2, 3));
  EXPECT_EQ(table->find(kind(6, 2, 3)), nullptr);
}

TEST(HandleTable, WhatWasRemovedStaysReadableForAWhile) {
  auto table = std::make_unique<HandleTable<Thing>>();
  Thing* const stale = table->insert(thing(kind(6, 1, 3), 42));
  table->remove(kind(6, 1, 3));
  EXPECT_EQ(stale->value, 42);
}

TEST(HandleTable, RefusesIndicesThatNoHostGives) {
  auto table = std::make_unique<HandleTable<Thing>>();
  EXPECT_EQ(table->insert(thing(kind(6, 1, 0x7fffffff), 1)), nullptr);
}

TEST(HandleTable, RemovesByPredicate) {
  auto table = std::make_unique<HandleTable<Thing>>();
  for (uint64_t i = 0; i < 1000; ++i) table->insert(thing(kind(6, 1, i + 1), static_cast<int>(i % 2)));
  table->remove_if([](const Thing& one) { return one.value == 1; });
  EXPECT_NE(table->find(kind(6, 1, 1)), nullptr);
  EXPECT_EQ(table->find(kind(6, 1, 2)), nullptr);
}

}  // namespace
}  // namespace bandsaw::libcuda
