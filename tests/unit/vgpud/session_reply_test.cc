// Answers of sessions that have been taken over: nothing of them may reach vgpud's own code in another form than it
// expects.
#include "backend/vgpud/sessions/session_reply.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "memory/base/json.h"

namespace bandsaw {
namespace {

using nlohmann::json;

json good() {
  const json usage = {{"memory_bytes", 1}, {"sticky", 0}, {"slicing", {{"kernels", 1}, {"refused", {{"reason", 2}}}}}};
  return {{"ok", true},
          {"name", "web0"},
          {"memory_used", 5},
          {"usage", usage},
          {"segments",
           json::array({{{"id", "7"}, {"named", true}, {"users", json::array({{{"vgpu", 1}, {"count", 2}}})}}})},
          {"vm", {{"connected", false}, {"driver", false}, {"ram_bytes", 0}}},
          {"processes", json::array({{{"pid", 1}, {"comm", "saxpy"}, {"direct", true}, {"usage", usage}}})},
          {"of_another_release", {1, 2, "three"}}};
}

TEST(SessionReply, WhatSessionsSayPasses) {
  EXPECT_TRUE(check_reply(good()).ok());
  EXPECT_TRUE(check_reply({{"ok", true}, {"mps", ""}, {"failing", ""}}).ok());
  EXPECT_TRUE(check_reply({{"ok", false}, {"error", "unknown request"}}).ok());
  EXPECT_TRUE(check_reply(json::object()).ok());
}

TEST(SessionReply, FieldsOfAnotherKindAreRefused) {
  for (const char* field : {"/ok",
                            "/name",
                            "/memory_used",
                            "/usage",
                            "/usage/sticky",
                            "/usage/slicing",
                            "/usage/slicing/refused",
                            "/usage/slicing/refused/reason",
                            "/vm",
                            "/vm/connected",
                            "/processes",
                            "/processes/0",
                            "/processes/0/pid",
                            "/segments",
                            "/segments/0",
                            "/segments/0/id",
                            "/segments/0/named",
                            "/segments/0/users",
                            "/segments/0/users/0",
                            "/segments/0/users/0/count",
                            "/processes/0/comm",
                            "/processes/0/usage/sticky"}) {
    const json::json_pointer at{field};
    for (const json& wrong : {json(1.5), json(nullptr), json("text"), json(true), json(json::array({1})), json(7),
                              json({{"a", json::array()}})}) {
      json reply = good();
      if (reply[at].type() == wrong.type() || (reply[at].is_number() && wrong.is_number_integer())) continue;
      reply[at] = wrong;
      EXPECT_EQ(check_reply(reply).code(), EPROTO) << field << " " << wrong.type_name();
    }
  }
  EXPECT_EQ(check_reply(json::array()).code(), EPROTO);
}

TEST(SessionReply, SizesHaveBounds) {
  json reply = good();
  reply["name"] = std::string(5000, 'x');
  EXPECT_EQ(check_reply(reply).code(), EPROTO);
  reply["name"] = "\x1b[2J";  // what a terminal would obey
  EXPECT_EQ(check_reply(reply).code(), EPROTO);
  const std::string deep = "{\"a\": " + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  EXPECT_EQ(check_reply(parse_json(deep)).code(), EPROTO);
  const json many = {{"a", std::vector<int>(100'000)}};
  EXPECT_EQ(check_reply(many).code(), EPROTO);
}

}  // namespace
}  // namespace bandsaw
