// Reading of regular files, and nothing else: opening a pipe could block forever, and a device has no end.
#include <cerrno>
#include <cstring>

#if defined(_WIN32)
#include <sys/stat.h>
#elif !defined(__wasm__)
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#include "bundle.h"
#include "refusal.h"

#if defined(__wasm__)
extern "C" {  // the page has the bundle in memory (edgekit/web/core.js)
__attribute__((import_module("edgekit"), import_name("size"))) double host_size(void);
__attribute__((import_module("edgekit"), import_name("read"))) size_t host_read(double at, void* buffer,
                                                                                size_t size);
}
#endif

namespace edgekit {
namespace {

constexpr uint64_t FILE_LIMIT_BYTES = 64ull << 30;

[[noreturn]] void unreadable(const std::string& name, const std::string& why) {
  throw Refusal(name + " is not a bundle that EdgeKit can open\n  it cannot be read: " + why +
                "\n  give the path of a readable file");
}

// Return why a file of this size is not read, or "".
std::string wrong_size(uint64_t size) {
  if (size == 0) return "it is empty";
  if (size <= FILE_LIMIT_BYTES) return "";
  return "it has " + std::to_string(size) + " bytes; the limit is " + std::to_string(FILE_LIMIT_BYTES);
}

}  // namespace

#if defined(__wasm__)

PlainFile::PlainFile(const std::string& name) : size_(static_cast<uint64_t>(host_size())) {
  std::string why = wrong_size(size_);
  if (!why.empty()) unreadable(name, why);
}

PlainFile::~PlainFile() = default;

size_t PlainFile::read(uint64_t at, void* buffer, size_t size) const {
  return host_read(static_cast<double>(at), buffer, size);
}

#else

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
  std::string why = wrong_size(size_);
  if (!why.empty()) {
    std::fclose(file_);
    unreadable(name, why);
  }
  std::setvbuf(file_, nullptr, _IONBF, 0);  // large pieces go straight into the caller's memory
}

PlainFile::~PlainFile() { std::fclose(file_); }

size_t PlainFile::read(uint64_t at, void* buffer, size_t size) const {
  Lock held(mutex_);
#if defined(_WIN32)
  if (_fseeki64(file_, static_cast<long long>(at), SEEK_SET)) return 0;
#else
  if (fseeko(file_, static_cast<off_t>(at), SEEK_SET)) return 0;
#endif
  return std::fread(buffer, 1, size, file_);
}

#endif

}  // namespace edgekit
