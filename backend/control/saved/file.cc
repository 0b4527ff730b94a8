#include "backend/control/saved/file.h"

#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace bandsaw::saved {
namespace {

constexpr int kLevel = 1;  // memory is to be written soon, more than to be small

Status write_all(int file, const void* bytes, size_t count) {
  for (size_t at = 0; at < count;) {
    const ssize_t written = ::write(file, static_cast<const char*>(bytes) + at, count - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Status::system("writing");
    at += static_cast<size_t>(written);
  }
  return {};
}

// Less than `count`: the end.
Result<size_t> read_some(int file, void* bytes, size_t count) {
  size_t at = 0;
  while (at < count) {
    const ssize_t got = ::read(file, static_cast<char*>(bytes) + at, count - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::system("reading");
    if (got == 0) break;
    at += static_cast<size_t>(got);
  }
  return at;
}

Status cut_off() { return Status::error(EBADMSG, "it is cut off"); }

}  // namespace

struct FileSink::Stream {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  std::vector<std::byte> out = std::vector<std::byte>(ZSTD_CStreamOutSize());
  ~Stream() { ZSTD_freeCCtx(context); }
};

FileSink::FileSink(int file) : file_(file), stream_(std::make_unique<Stream>()) {}
FileSink::~FileSink() = default;

Result<std::unique_ptr<FileSink>> FileSink::begin(int file) {
  std::unique_ptr<FileSink> sink(new FileSink(file));
  ZSTD_CCtx* const context = sink->stream_->context;
  if (!context || ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1)) ||
      ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, kLevel))) {
    return Status::error(ENOMEM, "cannot compress");
  }
  FileHead head;
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.version = kVersion;
  if (Status status = write_all(file, &head, sizeof head); !status.ok()) return status;
  return sink;
}

Status FileSink::flush(std::span<const std::byte> bytes, bool last) {
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  for (;;) {
    ZSTD_outBuffer out{stream_->out.data(), stream_->out.size(), 0};
    const size_t left = ZSTD_compressStream2(stream_->context, &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
    if (ZSTD_isError(left)) return Status::error(EIO, "cannot compress: {}", ZSTD_getErrorName(left));
    if (Status status = write_all(file_, out.dst, out.pos); !status.ok()) return status;
    if (last ? left == 0 : in.pos == in.size) return {};
  }
}

Status FileSink::write(std::span<const std::byte> bytes) { return flush(bytes, false); }

Status FileSink::end() {
  if (Status status = flush({}, true); !status.ok()) return status;
  // A pipe or a terminal has no disk behind it.
  return ::fsync(file_) == 0 || errno == EINVAL ? Status() : Status::system("writing");
}

struct FileSource::Stream {
  ZSTD_DCtx* context = ZSTD_createDCtx();
  std::vector<std::byte> in = std::vector<std::byte>(ZSTD_DStreamInSize());
  size_t begin = 0, end = 0;  // in `in`: what is still to be read
  bool ended = false;         // the frame, whose checksum was right
  ~Stream() { ZSTD_freeDCtx(context); }
};

FileSource::FileSource(int file) : file_(file), stream_(std::make_unique<Stream>()) {}
FileSource::~FileSource() = default;

Result<std::unique_ptr<FileSource>> FileSource::begin(int file) {
  std::unique_ptr<FileSource> source(new FileSource(file));
  if (!source->stream_->context) return Status::error(ENOMEM, "cannot decompress");
  FileHead head;
  const auto got = read_some(file, &head, sizeof head);
  if (!got.ok()) return got.status();
  if (Status status = check_file_head(head); !status.ok()) return status;
  return source;
}

Status FileSource::fill() {
  if (stream_->begin < stream_->end) return {};
  const auto got = read_some(file_, stream_->in.data(), stream_->in.size());
  if (!got.ok()) return got.status();
  if (got.value() == 0) return cut_off();
  stream_->begin = 0;
  stream_->end = got.value();
  return {};
}

Status FileSource::read(std::span<std::byte> bytes) {
  ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
  while (out.pos < out.size) {
    if (stream_->ended) return cut_off();
    ZSTD_inBuffer in{stream_->in.data(), stream_->end, stream_->begin};
    const size_t before = out.pos;
    const size_t left = ZSTD_decompressStream(stream_->context, &out, &in);
    if (ZSTD_isError(left)) return Status::error(EBADMSG, "it was altered: {}", ZSTD_getErrorName(left));
    const bool moved = out.pos != before || in.pos != stream_->begin;
    stream_->begin = in.pos;
    stream_->ended = left == 0;
    if (moved || stream_->ended) continue;
    if (Status status = fill(); !status.ok()) return status;
  }
  return {};
}

Status FileSource::end() {
  std::byte more;
  while (!stream_->ended) {
    ZSTD_outBuffer out{&more, 1, 0};
    ZSTD_inBuffer in{stream_->in.data(), stream_->end, stream_->begin};
    const size_t left = ZSTD_decompressStream(stream_->context, &out, &in);
    if (ZSTD_isError(left)) return Status::error(EBADMSG, "it was altered: {}", ZSTD_getErrorName(left));
    if (out.pos != 0) return Status::error(EBADMSG, "it was altered: something comes after its end");
    const bool moved = in.pos != stream_->begin;
    stream_->begin = in.pos;
    stream_->ended = left == 0;
    if (moved || stream_->ended) continue;
    if (Status status = fill(); !status.ok()) return status;
  }
  const auto got = read_some(file_, &more, 1);
  if (!got.ok()) return got.status();
  if (stream_->begin == stream_->end && got.value() == 0) return {};
  return Status::error(EBADMSG, "it was altered: something comes after its end");
}

}  // namespace bandsaw::saved
