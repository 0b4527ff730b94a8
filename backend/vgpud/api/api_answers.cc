#include "backend/vgpud/api/api_answers.h"

#include "memory/base/json.h"
#include "memory/base/log.h"

namespace bandsaw::api {

using nlohmann::json;

void send(const HttpServer::Answer& answer, int code, const json& body) {
  answer({.code = code, .body = json_text(body) + "\n"});
}

void refuse(const HttpServer::Answer& answer, int code, const std::string& error, const std::string& hint) {
  log::info("refused: {}", error);
  send(answer, code, {{"error", error}, {"hint", hint}});
}

void refuse(const HttpServer::Answer& answer, const Refusal& refusal) {
  refuse(answer, refusal.code, refusal.error, refusal.hint);
}

void refuse_storage(const HttpServer::Answer& answer, const Status& status) {
  const bool full = status.code() == ENOSPC || status.code() == EDQUOT || status.code() == EFBIG;
  log::error("{}", status.message());
  send(answer, full ? 507 : 500,
       {{"error", "nothing was changed: " + status.message()},
        {"hint", full ? "make room on the disk that holds the registry, then try again"
                      : "make the registry's folder writable for vgpud, then try again"}});
}

Refusal refusal_of_shares(const Status& status) {
  switch (status.code()) {
    case ENOSPC:
      return {409, status.message(),
              "ask for less, or lower the share of another virtual GPU (`vgpuctl list` shows them)"};
    case ENODEV:
      return {409, status.message(), "`vgpuctl status` says what is wrong with each device"};
    case EBUSY:
      return {409, status.message(),
              "ask for at least what is in use, or end programs that use it (`vgpuctl show NAME` lists them)"};
    case ERANGE:
      return {409, status.message(),
              "ask for at least that, share by mps, or set no bound (`vgpuctl set NAME --latency-us none`)"};
    default:
      return {400, status.message(), "see `vgpuctl create --help`"};
  }
}

void refuse_shares(const HttpServer::Answer& answer, const Status& status) {
  refuse(answer, refusal_of_shares(status));
}

}  // namespace bandsaw::api
