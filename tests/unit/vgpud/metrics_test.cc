#include "backend/vgpud/metrics/metrics.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "backend/vgpud/metrics/metrics_server.h"
#include "memory/base/version.h"

namespace bandsaw {
namespace {

using nlohmann::json;

bool is_name(const std::string& text) {
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:") ==
             std::string::npos;
}

// The text exposition format, as far as we write it: a reader that knows nothing of the writer.
struct Exposition {
  std::map<std::string, std::string> help, type;
  std::map<std::string, double> samples;  // by name and labels as written
  std::string error;

  explicit Exposition(const std::string& text) {
    std::istringstream lines(text);
    if (text.empty() || text.back() != '\n') error = "no line feed at the end";
    for (std::string line; error.empty() && std::getline(lines, line);) read(line);
  }
  void read(const std::string& line) {
    if (line.starts_with("# HELP ")) return comment(line, &help);
    if (line.starts_with("# TYPE ")) {
      current_ = line.substr(7, line.find(' ', 7) - 7);
      return comment(line, &type);
    }
    const size_t name_end = line.find_first_of("{ ");
    if (name_end == std::string::npos || !is_name(line.substr(0, name_end))) return fail(line);
    if (line.substr(0, name_end) != current_) return fail("outside of its family: " + line);
    size_t end = name_end;
    if (line[end] == '{' && !labels(line, &end)) return fail(line);
    size_t used = 0;
    if (line[end] != ' ') return fail(line);
    const double value = std::stod(line.substr(end + 1), &used);
    if (end + 1 + used != line.size()) return fail(line);
    if (!samples.emplace(line.substr(0, end), value).second) return fail("twice: " + line);
  }
  void comment(const std::string& line, std::map<std::string, std::string>* into) {
    const size_t space = line.find(' ', 7);
    if (space == std::string::npos || !is_name(line.substr(7, space - 7))) return fail(line);
    if (!into->emplace(line.substr(7, space - 7), line.substr(space + 1)).second) fail("twice: " + line);
  }
  static bool labels(const std::string& line, size_t* at) {
    for (++*at;; ++*at) {
      const size_t equals = line.find("=\"", *at);
      if (equals == std::string::npos || !is_name(line.substr(*at, equals - *at))) return false;
      for (*at = equals + 2; *at < line.size() && line[*at] != '"'; ++*at) {
        if (line[*at] == '\\') ++*at;
      }
      if (++*at >= line.size()) return false;
      if (line[*at] == '}') return ++*at < line.size();
      if (line[*at] != ',') return false;
    }
  }
  void fail(const std::string& why) { error = why; }

 private:
  std::string current_;
};

json status_example() {
  return json::parse(R"json({"scheduler":{"policy":"band+","queues":"mrq"},
    "devices":[{"id":"cuda:0","name":"NVIDIA \"H200\"\\","uuid":"GPU-1","driver":"13000","memory":1000,"memory_given":10,
              "compute_given":30,"copy_given":20,"lost":""},
             {"id":"soft:0","name":"Bandsaw software device","uuid":"","driver":"","memory":500,"memory_given":20,
              "compute_given":70,"copy_given":2,"lost":"its runners fail"}]})json");
}

json view_example(const std::string& name) {
  return {
      {"name", name},
      {"device", "cuda:0"},
      {"domain", "d"},
      {"memory", 10},
      {"compute", 30},
      {"copy", 20},
      {"cap", 100},
      {"reserve", 5},
      {"priority", -2},
      {"latency_us", 250},
      {"latency", {{"cost_us", 2'500'000}}},
      {"keeps_engine", true},
      {"session", {{"restarts", 2}}},
      {"engines",
       {{"compute",
         {{"busy_ns", 2500000000}, {"wait_ns", 1}, {"grants", 9}, {"overruns", 0}, {"waiting", 1}, {"in_flight", 2}}}}},
      {"live",
       {{"memory_used", 7},
        {"processes", {1, 2}},
        {"stalls", {{"waits", 3}, {"wait_ns", 1500000000}}},
        {"usage", {{"calls", 12}, {"launches", 3}, {"errors", 1}, {"bytes_in", 4}}}}}};
}

TEST(Metrics, AreWellFormedAndInBaseUnits) {
  const Exposition page(render_metrics(status_example(), json::array({view_example("a"), view_example("b")})));
  ASSERT_EQ(page.error, "");
  const auto& samples = page.samples;
  EXPECT_EQ(samples.at(R"(bandsaw_vgpu_engine_busy_seconds_total{vgpu="a",gpu="cuda:0",engine="compute"})"), 2.5);
  EXPECT_EQ(samples.at(R"(bandsaw_vgpu_engine_wait_seconds_total{vgpu="b",gpu="cuda:0",engine="compute"})"), 1e-9);
  EXPECT_EQ(samples.at(R"(bandsaw_vgpu_engine_share_ratio{vgpu="a",gpu="cuda:0",engine="copy_out"})"), 0.2);
  EXPECT_EQ(samples.at(R"(bandsaw_vgpu_engine_cap_ratio{vgpu="a",gpu="cuda:0",engine="copy_in"})"), 1);
  EXPECT_EQ(samples.at(R"(bandsaw_vgpu_memory_bytes{vgpu="a",gpu="cuda:0"})"), 7);
  EXPECT_EQ(samples.at(R"(bandsaw_vgpu_memory_limit_bytes{vgpu="a",gpu="cuda:0"})"), 10);
  EXPECT_EQ(samples.at(R"(bandsaw_vgpu_calls_total{vgpu="a",gpu="cuda:0"})"), 12);
  EXPECT_EQ(samples.at(R"(bandsaw_vgpu_processes{vgpu="a",gpu="cuda:0"})"), 2);
  EXPECT_EQ(samples.at(R"(bandsaw_vgpu_priority{vgpu="a",gpu="cuda:0"})"), -2);
  EXPECT_EQ(samples.at(R"(bandsaw_vgpu_latency_bound_seconds{vgpu="a",gpu="cuda:0"})"), 250e-6);
  EXPECT_EQ(samples.at(R"(bandsaw_vgpu_latency_cost_seconds_total{vgpu="a",gpu="cuda:0"})"), 2.5);
  EXPECT_EQ(samples.at(R"(bandsaw_vgpu_keeps_engine{vgpu="a",gpu="cuda:0"})"), 1);
  EXPECT_EQ(samples.at(R"(bandsaw_vgpu_stall_wait_seconds_total{vgpu="a",gpu="cuda:0"})"), 1.5);
  EXPECT_EQ(samples.at(R"(bandsaw_gpu_share_given_ratio{gpu="cuda:0",engine="compute"})"), 0.3);
  EXPECT_EQ(samples.at(R"(bandsaw_gpu_share_given_ratio{gpu="soft:0",engine="compute"})"), 0.7);
  EXPECT_EQ(samples.at(R"(bandsaw_gpu_memory_given_bytes{gpu="soft:0"})"), 20);
  EXPECT_EQ(samples.at(R"(bandsaw_gpu_up{gpu="cuda:0"})"), 1);
  EXPECT_EQ(samples.at(R"(bandsaw_gpu_up{gpu="soft:0"})"), 0);
  EXPECT_EQ(samples.count(R"(bandsaw_gpu_info{gpu="cuda:0",model="NVIDIA \"H200\"\\",uuid="GPU-1",driver="13000",)"
                          R"(policy="band+",queues="mrq"})"),
            1u);
}

TEST(Metrics, SayWhatIsSuspended) {
  json asleep = view_example("b");
  asleep["suspended"] = true;
  const Exposition page(render_metrics(status_example(), json::array({view_example("a"), asleep})));
  ASSERT_EQ(page.error, "");
  EXPECT_EQ(page.samples.at(R"(bandsaw_vgpu_suspended{vgpu="a",gpu="cuda:0"})"), 0);
  EXPECT_EQ(page.samples.at(R"(bandsaw_vgpu_suspended{vgpu="b",gpu="cuda:0"})"), 1);
  EXPECT_EQ(page.samples.at(R"(bandsaw_vgpu_asleep{vgpu="b",gpu="cuda:0"})"), 0);
}

TEST(Metrics, SayWhatIsAsleep) {
  json asleep = view_example("b"), away = view_example("c");
  asleep["live"]["suspension"]["asleep"] = true;
  away["live"] = nullptr;
  const Exposition page(render_metrics(status_example(), json::array({view_example("a"), asleep, away})));
  ASSERT_EQ(page.error, "");
  EXPECT_EQ(page.samples.at(R"(bandsaw_vgpu_asleep{vgpu="a",gpu="cuda:0"})"), 0);
  EXPECT_EQ(page.samples.at(R"(bandsaw_vgpu_asleep{vgpu="b",gpu="cuda:0"})"), 1);
  EXPECT_EQ(page.samples.at(R"(bandsaw_vgpu_asleep{vgpu="c",gpu="cuda:0"})"), 0);
}

TEST(Metrics, SayWhatIsRunning) {
  const Exposition page(render_metrics(json::object(), json::array()));
  ASSERT_EQ(page.error, "");
  EXPECT_EQ(page.samples.at(std::string("bandsaw_build_info{version=\"") + kBandsawVersion + "\"}"), 1);
}

TEST(Metrics, FollowPrometheussRulesOfNaming) {
  const Exposition page(render_metrics(status_example(), json::array({view_example("a")})));
  ASSERT_EQ(page.error, "");
  EXPECT_GT(page.type.size(), 20u);
  for (const auto& [name, type] : page.type) {
    EXPECT_TRUE(page.help.contains(name)) << name;
    EXPECT_TRUE(name.starts_with("bandsaw_")) << name;
    EXPECT_EQ(name.ends_with("_total"), type == "counter") << name;
    EXPECT_TRUE(type == "counter" || type == "gauge") << type;
  }
  EXPECT_EQ(page.help.size(), page.type.size());
}

TEST(Metrics, WhatIsNotKnownHasNoSample) {
  json away = view_example("a");
  away["live"] = json();
  away["engines"] = json();
  const Exposition page(render_metrics(status_example(), json::array({away})));
  ASSERT_EQ(page.error, "");
  EXPECT_EQ(page.samples.at(R"(bandsaw_vgpu_up{vgpu="a",gpu="cuda:0"})"), 0);
  EXPECT_EQ(page.samples.at(R"(bandsaw_vgpu_memory_limit_bytes{vgpu="a",gpu="cuda:0"})"), 10);
  EXPECT_FALSE(page.type.contains("bandsaw_vgpu_calls_total"));
  EXPECT_FALSE(page.type.contains("bandsaw_vgpu_engine_busy_seconds_total"));
  EXPECT_EQ(Exposition(render_metrics(json::object(), json::array())).error, "");
}

TEST(Listen, ReadsAddressesAndRefusesTheRest) {
  std::string address;
  uint16_t port = 0;
  ASSERT_TRUE(parse_listen("127.0.0.1:9495", &address, &port).ok());
  EXPECT_EQ(address + " " + std::to_string(port), "127.0.0.1 9495");
  ASSERT_TRUE(parse_listen("[::1]:80", &address, &port).ok());
  EXPECT_EQ(address + " " + std::to_string(port), "::1 80");
  for (const char* bad :
       {"", ":", "9495", "localhost:9495", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:12x",
        "127.0.0.1:-1", "::1:80", "[127.0.0.1]:80", "[::1]", "256.0.0.1:80"}) {
    const Status status = parse_listen(bad, &address, &port);
    EXPECT_EQ(status.code(), EINVAL) << bad;
    EXPECT_NE(status.message().find("127.0.0.1:9495"), std::string::npos);
  }
}

TEST(MetricsServer, AnswersGetMetricsAndNothingElse) {
  ::signal(SIGPIPE, SIG_IGN);
  auto listener = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  sockaddr_in where{};
  socklen_t length = sizeof where;
  ::getsockname(listener.value().get(), reinterpret_cast<sockaddr*>(&where), &length);
  const auto taken = listen_tcp("127.0.0.1", ntohs(where.sin_port));
  EXPECT_NE(taken.status().message().find("metrics.listen"), std::string::npos) << taken.status().message();

  const std::unique_ptr<event_base, decltype(&event_base_free)> base(event_base_new(), event_base_free);
  MetricsServer server(base.get(), std::move(listener.value()),
                       [](const std::function<void(std::string)>& done) { done("x 1\n"); });
  const auto ask = [&](const std::string& line) {
    UniqueFd client(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
    const std::string request = line + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    EXPECT_EQ(::send(client.get(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    std::string reply;
    char buffer[2048];
    for (int i = 0; i < 1000; ++i) {
      event_base_loop(base.get(), EVLOOP_NONBLOCK);
      const ssize_t count = ::recv(client.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (count == 0) break;
      if (count > 0) reply.append(buffer, static_cast<size_t>(count));
      if (count < 0) ::usleep(200);
    }
    return reply;
  };
  const std::string page = ask("GET /metrics");
  EXPECT_NE(page.find("200"), std::string::npos);
  EXPECT_NE(page.find("Content-Type: text/plain; version=0.0.4"), std::string::npos);
  EXPECT_TRUE(page.ends_with("x 1\n")) << page;
  EXPECT_NE(ask("GET /v1/vgpus").find("404"), std::string::npos);
  EXPECT_NE(ask("POST /metrics").find("405"), std::string::npos);
}

TEST(Metrics, TheMpsDaemonIsThereWhereItCanBe) {
  const json without = {{"devices", {{{"id", "soft"}, {"mps", {{"daemon", nullptr}}}}}}};
  EXPECT_EQ(render_metrics(without, json::array()).find("_mps_"), std::string::npos);
  const json with = {{"devices", {{{"id", "cuda:0"}, {"mps", {{"daemon", {{"state", "running"}, {"restarts", 3}}}}}}}}};
  const Exposition page(render_metrics(with, json::array()));
  EXPECT_EQ(page.error, "");
  EXPECT_EQ(page.samples.at("bandsaw_gpu_mps_up{gpu=\"cuda:0\"}"), 1);
  EXPECT_EQ(page.samples.at("bandsaw_gpu_mps_restarts_total{gpu=\"cuda:0\"}"), 3);
}

}  // namespace
}  // namespace bandsaw
