// vgpuctl save and restore: the caller's own file, opened with the caller's rights, goes to the session by its socket.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "backend/control/json_link.h"
#include "backend/control/packet.h"
#include "backend/control/saved/file.h"
#include "backend/control/vgpu_spec.h"
#include "memory/base/json.h"
#include "tools/vgpuctl/commands.h"
#include "tools/vgpuctl/daemon_call.h"
#include "tools/vgpuctl/output.h"

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

constexpr size_t kAnswerMost = 4096;

// The session's end of the way of a file.
class FileWay {
 public:
  // What vgpud has said of it.
  Status open(const json& said) {
    auto socket = connect_unix(said.value("socket", ""), SOCK_SEQPACKET);
    if (!socket.ok()) return socket.status();
    socket_ = std::move(socket.value());
    return {};
  }
  // Sends, and waits for the answer, for however long. -1: no descriptor.
  Result<json> ask(const json& what, int file) {
    const std::string text = json_text(what);
    const int fds[] = {file};
    const Status sent = send_packet(socket_.get(), std::as_bytes(std::span(text)), {},
                                    std::span<const int>(fds).first(file < 0 ? 0 : 1));
    if (!sent.ok()) return sent;
    std::vector<std::byte> buffer(kAnswerMost);
    std::vector<UniqueFd> none;
    const auto length = receive_packet(socket_.get(), buffer, &none);
    if (!length.ok()) return length.status();
    const json answer = parse_json(std::string(reinterpret_cast<const char*>(buffer.data()), length.value()));
    if (length.value() == 0 || !answer.is_object()) return Status::error(EPIPE, "the session has given it up");
    if (answer.value("ok", false)) return answer;
    return Status::error(EIO, "{}", answer.value("error", "the session refuses"));
  }

 private:
  UniqueFd socket_;
};

Result<json> ask_vgpud(const Options& options, const char* action) {
  const Reply reply = call(options, "POST", vgpu_target(options) + "/" + action);
  const auto* const refusal = std::get_if<Refusal>(&reply);
  if (!refusal) return std::get<json>(reply);
  return Status::error(EBUSY, "{}{}{}", refusal->error, refusal->hint.empty() ? "" : "; ", refusal->hint);
}

// A name that nobody reads yet, beside the one that is wanted: what is there stays until all is written.
std::string beside(const std::string& path) { return path + ".part"; }

Result<uint64_t> write_file(const Options& options, FileWay* way, const json& said, int file) {
  if (Status status = way->open(said); !status.ok()) return status;
  const auto written = way->ask({{"token", said.value("token", "")}}, file);
  if (!written.ok()) return written.status();
  const std::string lacks = written.value().value("lacks", "");
  if (options.all && !lacks.empty()) {
    return Status::error(ENOTSUP, "a program of it has {}, which cannot be saved", lacks);
  }
  if (::rename(beside(options.file).c_str(), options.file.c_str()) < 0) return Status::system("{}", options.file);
  if (const auto kept = way->ask({{"keep", true}, {"end", options.all}}, -1); !kept.ok()) return kept.status();
  return written.value().value("bytes", uint64_t{0});
}

Result<uint64_t> save_suspended(const Options& options) {
  ::unlink(beside(options.file).c_str());  // of a save that came to no end
  const UniqueFd file(::open(beside(options.file).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return Status::system("{}", beside(options.file));
  const auto said = ask_vgpud(options, "save");
  FileWay way;
  auto saved = said.ok() ? write_file(options, &way, said.value(), file.get()) : Result<uint64_t>(said.status());
  if (!saved.ok()) ::unlink(beside(options.file).c_str());
  return saved;
}

Result<uint64_t> restore_suspended(const Options& options) {
  const UniqueFd file(::open(options.file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Status::system("{}", options.file);
  // Before anybody else sees it: it may be any file of the administrator's.
  saved::FileHead head;
  const ssize_t got = ::read(file.get(), &head, sizeof head);
  if (got < 0) return Status::system("{}", options.file);
  if (Status status = saved::check_file_head(got == sizeof head ? head : saved::FileHead()); !status.ok()) {
    return Status::error(EINVAL, "{}: {}", options.file, status.message());
  }
  const auto said = ask_vgpud(options, "restore");
  if (!said.ok()) return said.status();
  FileWay way;
  if (Status status = way.open(said.value()); !status.ok()) return status;
  const json asked{{"token", said.value().value("token", "")}, {"without_missing", options.without_missing}};
  const auto restored = way.ask(asked, file.get());
  if (!restored.ok()) return Status::error(EIO, "{}: {}", options.file, restored.status().message());
  return restored.value().value("bytes", uint64_t{0});
}

// Of what runs, with nothing that could be overwritten: what another session has saved may come.
bool is_empty(const json& view) {
  static const json::json_pointer processes("/live/processes");
  if (view.value("suspended", false) || !view.contains(processes)) return false;
  const json& all = view[processes];
  return std::none_of(all.begin(), all.end(), [](const json& one) { return one.value("runner", 0) != 0; });
}

int print_moved(const Options& options, const char* word, uint64_t bytes) {
  if (options.json) {
    fmt::print("{}\n", json_text(json{{"name", options.name}, {"file", options.file}, {"bytes", bytes}}));
  } else {
    fmt::print("{} is {} {}: {}\n", options.name, word, options.file, format_size(bytes));
  }
  return kOk;
}

}  // namespace

int save(const Options& options) {
  const Reply before = call(options, "GET", vgpu_target(options));
  if (const Refusal* refusal = std::get_if<Refusal>(&before)) return print_refusal(*refusal, options.json);
  const bool runs = !std::get<json>(before).value("suspended", false);
  if (runs) {
    // With their contexts off the GPU nobody could ask what programs have there.
    const char* const how = options.all ? "/suspend?contexts=stay" : "/suspend";
    const Reply suspended = call(options, "POST", vgpu_target(options) + how);
    if (const Refusal* refusal = std::get_if<Refusal>(&suspended)) return print_refusal(*refusal, options.json);
  }
  const auto saved = save_suspended(options);
  if (saved.ok()) return print_moved(options, "saved in", saved.value());
  const bool goes_on = runs && std::holds_alternative<json>(call(options, "POST", vgpu_target(options) + "/resume"));
  return print_refusal({kRefused, fmt::format("'{}' is not saved: {}", options.name, saved.status().message()),
                        goes_on ? "its programs go on as before" : "it stays suspended, with all of its memory"},
                       options.json);
}

int restore(const Options& options) {
  const Reply before = call(options, "GET", vgpu_target(options));
  if (const Refusal* refusal = std::get_if<Refusal>(&before)) return print_refusal(*refusal, options.json);
  const bool empty = is_empty(std::get<json>(before));
  if (empty) {
    const Reply suspended = call(options, "POST", vgpu_target(options) + "/suspend");
    if (const Refusal* refusal = std::get_if<Refusal>(&suspended)) return print_refusal(*refusal, options.json);
  }
  const auto restored = restore_suspended(options);
  if (!restored.ok()) {
    if (empty) (void)call(options, "POST", vgpu_target(options) + "/resume");
    return print_refusal({kRefused, fmt::format("'{}' is not restored: {}", options.name, restored.status().message()),
                          "it stays as it is"},
                         options.json);
  }
  const Reply resumed = call(options, "POST", vgpu_target(options) + "/resume");
  if (const Refusal* refusal = std::get_if<Refusal>(&resumed)) return print_refusal(*refusal, options.json);
  return print_moved(options, "restored from", restored.value());
}

}  // namespace bandsaw::ctl
