// Reading of regular files, and nothing else: opening a pipe could block forever, and a device has no end.
#include <cerrno>
#include <cstring>

#if defined(_WIN32)
#include <sys/stat.h>
#else
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#include "bundle.h"
#include "refusal.h"

namespace edgekit {
namespace {

constexpr uint64_t FILE_LIMIT_BYTES = 64ull << 30;

[[noreturn]] void unreadable(const std::string& name, const std::string& why) {
  throw Refusal(name + " is not a bundle that EdgeKit can open\n  it cannot be read: " + why +
                "\n  give the path of a readable file");
}

}  // namespace

PlainFile::PlainFile(const std::string& name) {
#if defined(_WIN32)
  struct _stat64 facts;
  bool there = _stat64(name.c_str(), &facts) == 0;
  if (there && (facts.st_mode & _S_IFMT) != _S_IFREG) unreadable(name, "it is not a regular file");
  file_ = there ? std::fopen(name.c_str(), "rb") : nullptr;
#else
  struct stat facts;
  int handle = open(name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // NONBLOCK: a pipe without a writer
  if (handle >= 0 && fstat(handle, &facts) == 0 && !S_ISREG(facts.st_mode)) {
    ::close(handle);
    unreadable(name, "it is not a regular file");
  }
  file_ = handle >= 0 ? fdopen(handle, "rb") : nullptr;
#endif
  if (!file_ && errno == ENOENT) throw Refusal(name + ": file not found");
  if (!file_) unreadable(name, std::strerror(errno));
  size_ = static_cast<uint64_t>(facts.st_size);
  std::string why;
  if (size_ == 0) why = "it is empty";
  if (size_ > FILE_LIMIT_BYTES) {
    why = "it has " + std::to_string(size_) + " bytes; the limit is " + std::to_string(FILE_LIMIT_BYTES);
  }
  if (!why.empty()) {
    std::fclose(file_);
    unreadable(name, why);
  }
  std::setvbuf(file_, nullptr, _IONBF, 0);  // large pieces go straight into the caller's memory
}

PlainFile::~PlainFile() { std::fclose(file_); }

size_t PlainFile::read(uint64_t at, void* buffer, size_t size) const {
  std::lock_guard<std::mutex> held(mutex_);
#if defined(_WIN32)
  if (_fseeki64(file_, static_cast<long long>(at), SEEK_SET)) return 0;
#else
  if (fseeko(file_, static_cast<off_t>(at), SEEK_SET)) return 0;
#endif
  return std::fread(buffer, 1, size, file_);
}

}  // namespace edgekit
