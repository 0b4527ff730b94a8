// Where this build had no zstd.
#include <cerrno>

#include "backend/control/saved/file.h"

namespace bandsaw::saved {
namespace {

Status none() { return Status::error(ENOTSUP, "this build writes and reads no saved virtual GPUs (it lacked zstd)"); }

}  // namespace

struct FileSink::Stream {};
FileSink::FileSink(int file) : file_(file) {}
FileSink::~FileSink() = default;
Result<std::unique_ptr<FileSink>> FileSink::begin(int) { return none(); }
Status FileSink::write(std::span<const std::byte>) { return none(); }
Status FileSink::end() { return none(); }

struct FileSource::Stream {};
FileSource::FileSource(int file) : file_(file) {}
FileSource::~FileSource() = default;
Result<std::unique_ptr<FileSource>> FileSource::begin(int) { return none(); }
Status FileSource::read(std::span<std::byte>) { return none(); }
Status FileSource::end() { return none(); }

}  // namespace bandsaw::saved
