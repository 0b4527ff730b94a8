// What went wrong, in words for people and a code for programs. An empty message is success.
#pragma once

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace bandsaw {

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  template <typename... Args>
  static Status error(int code, fmt::format_string<Args...> format, Args&&... args) {
    return Status(code, fmt::format(format, std::forward<Args>(args)...));
  }
  // Appends what errno means.
  template <typename... Args>
  static Status system(fmt::format_string<Args...> format, Args&&... args) {
    const int code = errno;
    return Status(code, fmt::format(format, std::forward<Args>(args)...) + ": " + std::strerror(code));
  }
  bool ok() const { return code_ == 0; }
  int code() const { return code_; }  // a Linux errno
  const std::string& message() const { return message_; }

 private:
  Status(int code, std::string message) : code_(code ? code : EINVAL), message_(std::move(message)) {}
  int code_ = 0;
  std::string message_;
};

// A value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: conversion intended
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: conversion intended
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace bandsaw
