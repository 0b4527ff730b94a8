// Answers of the control API, for the files that make it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "backend/vgpud/api/http_server.h"
#include "memory/base/status.h"

namespace bandsaw::api {

void send(const HttpServer::Answer& answer, int code, const nlohmann::json& body);
struct Refusal {
  int code = 0;
  std::string error, hint;
};

void refuse(const HttpServer::Answer& answer, const Refusal& refusal);
void refuse(const HttpServer::Answer& answer, int code, const std::string& error, const std::string& hint);
// What kept the registry from being written.
void refuse_storage(const HttpServer::Answer& answer, const Status& status);
// Shares out of bounds (400), or that do not fit or are in use (409).
Refusal refusal_of_shares(const Status& status);
void refuse_shares(const HttpServer::Answer& answer, const Status& status);

}  // namespace bandsaw::api
