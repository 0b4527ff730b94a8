#include "backend/session/exchange.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace bandsaw {
namespace {

Exchange::Thing thing_of(const int& owner, uint64_t bytes) {
  Exchange::Thing thing;
  thing.owner = &owner;
  thing.bytes = bytes;
  thing.fd.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return thing;
}

TEST(ExchangeTest, WhatIsPublishedIsFoundByItsKeyAlone) {
  const int a = 0, b = 0;
  Exchange here, elsewhere;
  const auto first = here.publish(thing_of(a, 1)), second = here.publish(thing_of(b, 2));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first.value(), second.value());
  ASSERT_NE(here.find(first.value()), nullptr);
  EXPECT_EQ(here.find(first.value())->bytes, 1u);
  EXPECT_EQ(here.find(second.value())->bytes, 2u);
  EXPECT_EQ(elsewhere.find(first.value()), nullptr) << "another virtual GPU's key";
  EXPECT_EQ(here.find(ExchangeKey{}), nullptr);
}

TEST(ExchangeTest, OnlyTheOwnerWithdraws) {
  const int a = 0, b = 0;
  Exchange exchange;
  const ExchangeKey key = exchange.publish(thing_of(a, 1)).value();
  const int fd = exchange.find(key)->fd.get();
  exchange.withdraw(&b, key);
  EXPECT_NE(exchange.find(key), nullptr);
  exchange.withdraw(&a, key);
  EXPECT_EQ(exchange.find(key), nullptr);
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1) << "its descriptor is closed";
}

TEST(ExchangeTest, AnOwnersEndTakesAllOfIts) {
  const int a = 0, b = 0;
  Exchange exchange;
  const ExchangeKey other = exchange.publish(thing_of(b, 1)).value();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(exchange.publish(thing_of(a, 1)).ok());
  exchange.drop(&a);
  EXPECT_EQ(exchange.size(), 1u);
  EXPECT_NE(exchange.find(other), nullptr);
}

TEST(ExchangeTest, OneOwnerCannotFillIt) {
  const int a = 0, b = 0;
  Exchange exchange;
  const auto without_fd = [](const int& owner) {
    Exchange::Thing thing;
    thing.owner = &owner;
    return thing;
  };
  ExchangeKey last{};
  for (size_t i = 0; i < Exchange::kThingsMost; ++i) last = exchange.publish(without_fd(a)).value();
  EXPECT_EQ(exchange.publish(without_fd(a)).status().code(), ENOSPC);
  EXPECT_TRUE(exchange.publish(without_fd(b)).ok());
  exchange.withdraw(&a, last);
  EXPECT_TRUE(exchange.publish(without_fd(a)).ok());
}

}  // namespace
}  // namespace bandsaw
