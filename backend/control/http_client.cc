#include "backend/control/http_client.h"

#include <curl/curl.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace bandsaw {
namespace {

constexpr size_t kReplyMax = 16u << 20;

struct FreeCurl {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  void operator()(char* text) const { curl_free(text); }
};
template <typename T>
using CurlPtr = std::unique_ptr<T, FreeCurl>;

CurlPtr<CURL> make_handle() {
  CurlPtr<CURL> curl(curl_easy_init());
  if (!curl) throw std::bad_alloc();
  return curl;
}

// Less than it was given ends the transfer.
size_t append(const char* data, size_t, size_t length, void* body) {
  auto* text = static_cast<std::string*>(body);
  if (text->size() + length > kReplyMax) return 0;
  text->append(data, length);
  return length;
}

Status failure(CURL* curl, CURLcode code, const std::string& socket_path, const char* detail) {
  long os_error = 0;
  curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &os_error);
  const int error = static_cast<int>(os_error);
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return Status::error(ETIMEDOUT, "the daemon did not answer in time");
    case CURLE_COULDNT_CONNECT:
      return Status::error(error ? error : ECONNREFUSED, "cannot connect to {}: {}", socket_path,
                           error ? std::strerror(error) : detail);
    case CURLE_COULDNT_RESOLVE_HOST:  // what libcurl says of a path that does not fit
      return Status::error(ENAMETOOLONG, "cannot connect to {}: {}", socket_path, detail);
    case CURLE_WRITE_ERROR:
      return Status::error(EPROTO, "the reply is too large");
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
      return Status::error(error ? error : ECONNRESET, "the daemon ended the connection before it answered: {}",
                           detail);
    default:
      return Status::error(EPROTO, "the daemon's answer is not HTTP: {}", detail);
  }
}

}  // namespace

Result<HttpReply> http_request(const std::string& socket_path, const std::string& method, const std::string& target,
                               const std::string& body, std::chrono::seconds timeout) {
  const CurlPtr<CURL> curl = make_handle();
  const CurlPtr<curl_slist> headers(curl_slist_append(nullptr, "Content-Type: application/json"));
  const std::string url = "http://bandsaw" + target;
  HttpReply reply;
  char detail[CURL_ERROR_SIZE] = "";
  const auto set = [&curl](CURLoption option, auto value) { curl_easy_setopt(curl.get(), option, value); };
  set(CURLOPT_UNIX_SOCKET_PATH, socket_path.c_str());
  set(CURLOPT_NOPROXY, "*");  // whatever the environment says
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PATH_AS_IS, 1L);
  if (!body.empty()) {
    set(CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
    set(CURLOPT_POSTFIELDS, body.c_str());
    set(CURLOPT_HTTPHEADER, headers.get());
  }
  set(CURLOPT_CUSTOMREQUEST, method.c_str());
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(std::chrono::milliseconds(timeout).count()));
  set(CURLOPT_ERRORBUFFER, detail);
  set(CURLOPT_WRITEFUNCTION, &append);
  set(CURLOPT_WRITEDATA, &reply.body);
  const CURLcode done = curl_easy_perform(curl.get());
  if (done != CURLE_OK) return failure(curl.get(), done, socket_path, *detail ? detail : curl_easy_strerror(done));
  long code = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &code);
  reply.code = static_cast<int>(code);
  return reply;
}

std::string url_escaped(const std::string& text) {
  const CurlPtr<char> escaped(curl_easy_escape(make_handle().get(), text.data(), static_cast<int>(text.size())));
  if (!escaped) throw std::bad_alloc();
  return escaped.get();
}

}  // namespace bandsaw
