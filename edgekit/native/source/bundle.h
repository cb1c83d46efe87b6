// A bundle: header, manifest and entries of one file (docs/bundle-format.md).
#pragma once
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "card.h"
#include "manifest.h"
#include "mutex.h"

namespace edgekit {

// A regular file, read at offsets.
class PlainFile {
 public:
  explicit PlainFile(const std::string& name);
  ~PlainFile();
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  // Read up to size bytes at an offset; fewer at the end.
  size_t read(uint64_t at, void* buffer, size_t size) const;
  uint64_t size() const { return size_; }

 private:
#if !defined(__wasm__)
  std::FILE* file_ = nullptr;
  mutable Mutex mutex_;  // one position for all threads
#endif
  uint64_t size_ = 0;
};

struct GoldenArray {
  TensorSpec spec;  // its shape is closed
  std::vector<unsigned char> content;
  size_t data_start;
};

class Bundle {
 public:
  explicit Bundle(const std::string& name);

  const Manifest& manifest() const { return manifest_; }
  const std::string& name() const { return name_; }
  const std::string& digest() const { return digest_; }
  const std::string& manifest_text() const { return manifest_text_; }
  std::string_view card_text() const;
  const Entry& entry(const std::string& name) const;
  std::vector<unsigned char> read(const std::string& entry) const;
  void read_into(const Entry& entry, unsigned char* buffer) const;
  void verify() const;
  GoldenArray golden(const std::string& entry, const TensorSpec& spec) const;
  // Return the card, parsed when it is first asked for. Raises Refusal.
  const Card& card() const;

 private:
  [[noreturn]] void damaged(const Entry& entry, const std::string& why) const;
  void hash(const Entry& entry, unsigned char* buffer) const;

  std::string name_, digest_, manifest_text_;
  PlainFile file_;
  Manifest manifest_;
  uint64_t start_ = 0;
  mutable Mutex card_mutex_;
  mutable std::unique_ptr<Card> card_;
};

}  // namespace edgekit
