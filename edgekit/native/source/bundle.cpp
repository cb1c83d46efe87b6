#include "bundle.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "refusal.h"
#include "sha256.h"
#include "text.h"

namespace edgekit {
namespace {

constexpr size_t HEADER_BYTES = 64, COPIED_BYTES = 1 << 20, NPY_HEADER_LIMIT_BYTES = 4096;
const char AGAIN[] = "copy or download it again from where it was built";
const char REBUILD[] = "it was not written by edgekit; build it again with `edgekit build`";

[[noreturn]] void not_a_bundle(const std::string& name, const std::string& why,
                               const std::string& what_to_do) {
  throw Refusal(name + " is not a bundle that EdgeKit can open\n  " + why + "\n  " + what_to_do);
}

uint64_t little_endian(const unsigned char* bytes, int count) {
  uint64_t value = 0;
  for (int i = count; i--;) value = value << 8 | bytes[i];
  return value;
}

std::string count_text(uint64_t value) { return std::to_string(value); }

// The header of a golden array as Python writes it.
std::string npy_header(const TensorSpec& spec) {
  static const std::pair<const char*, const char*> CODES[] = {
      {"bool", "|b1"},    {"int8", "|i1"},    {"uint8", "|u1"},  {"int16", "<i2"},
      {"uint16", "<u2"},  {"float16", "<f2"}, {"int32", "<i4"},  {"uint32", "<u4"},
      {"float32", "<f4"}, {"int64", "<i8"},   {"uint64", "<u8"}, {"float64", "<f8"}};
  std::string code;
  for (const auto& [dtype, text] : CODES) code = spec.dtype == dtype ? text : code;
  std::vector<std::string> shape;
  for (int64_t d : spec.shape) shape.push_back(std::to_string(d));
  return "{'descr': '" + code + "', 'fortran_order': False, 'shape': (" + joined(shape) +
         (shape.size() == 1 ? ",), }" : "), }");
}

}  // namespace

Bundle::Bundle(const std::string& name) : name_(name), file_(name) {
  unsigned char head[HEADER_BYTES];
  static const std::string MAGIC("EDGEKIT\0", 8);
  size_t count = file_.read(0, head, HEADER_BYTES);
  std::string start(reinterpret_cast<char*>(head), std::min<size_t>(count, 8));
  if (count && MAGIC.compare(0, start.size(), start) != 0) {
    not_a_bundle(
        name, "header: it starts with " + ascii_bytes(start) + "; a bundle starts with " + ascii_bytes(MAGIC),
        "pass a .edgekit file; edgekit build makes one from a model");
  }
  if (count < HEADER_BYTES) {
    not_a_bundle(name,
                 "header: the file has " + count_text(count) + " of " + count_text(HEADER_BYTES) + " bytes",
                 AGAIN);
  }
  uint64_t version = little_endian(head + 8, 4), zero = little_endian(head + 12, 4);
  uint64_t manifest_size = little_endian(head + 16, 8), file_size = little_endian(head + 24, 8);
  if (version != 1) {
    not_a_bundle(
        name,
        "header: it has format version " + count_text(version) + "; edgekit " LIBRARY_VERSION " reads 1",
        "install an edgekit-sdk that reads it, or build it again with this one");
  }
  if (zero) not_a_bundle(name, "header: bytes 12 to 15 must be zero and are " + count_text(zero), REBUILD);
  if (file_size != file_.size()) {
    not_a_bundle(name,
                 "header: it declares " + count_text(file_size) + " bytes, and the file has " +
                     count_text(file_.size()),
                 AGAIN);
  }
  if (manifest_size > MANIFEST_LIMIT_BYTES) {
    not_a_bundle(name,
                 "header: a manifest of " + count_text(manifest_size) + " bytes; the limit is " +
                     count_text(MANIFEST_LIMIT_BYTES),
                 REBUILD);
  }
  start_ = aligned(HEADER_BYTES + manifest_size);
  if (start_ > file_.size()) {
    not_a_bundle(name,
                 "header: a manifest of " + count_text(manifest_size) + " bytes, and the file has " +
                     count_text(file_.size()),
                 AGAIN);
  }
  manifest_text_.resize(manifest_size);
  manifest_text_.resize(file_.read(HEADER_BYTES, manifest_text_.data(), manifest_size));
  Sha256 sha;
  sha.update(manifest_text_.data(), manifest_text_.size());
  auto digest = sha.digest();
  if (std::memcmp(digest.data(), head + 32, 32) != 0) {
    not_a_bundle(name, "manifest: its sha256 is not the one in the header", AGAIN);
  }
  digest_ = hexadecimal(digest);
  try {
    manifest_ = read_manifest(manifest_text_);
  } catch (const Refusal& problem) {
    not_a_bundle(name, problem.what(), REBUILD);
  }
  uint64_t end = start_;
  if (!manifest_.entries.empty())
    end += manifest_.entries.back().offset + static_cast<uint64_t>(manifest_.entries.back().size);
  if (end != file_.size()) {
    not_a_bundle(
        name,
        "entries: they end at byte " + count_text(end) + ", and the file has " + count_text(file_.size()),
        REBUILD);
  }
}

std::string_view Bundle::card_text() const {
  const Json* card = manifest_.card();
  return card ? std::string_view(manifest_text_).substr(card->begin, card->end - card->begin)
              : std::string_view();
}

const Entry& Bundle::entry(const std::string& name) const {
  auto at = manifest_.entry_index.find(name);
  if (at == manifest_.entry_index.end()) {
    throw Refusal(name_ + " has no entry " + ascii_text(name) + "; `edgekit inspect` lists what it has");
  }
  return manifest_.entries[at->second];
}

void Bundle::damaged(const Entry& entry, const std::string& why) const {
  throw Refusal(name_ + " is damaged\n  entry " + entry.name + ": " + why + "\n  " + AGAIN);
}

// Hash an entry in pieces, into the buffer where there is one.
void Bundle::hash(const Entry& entry, unsigned char* buffer) const {
  std::vector<unsigned char> own(buffer ? 0 : std::min<uint64_t>(entry.size, COPIED_BYTES));
  Sha256 sha;
  uint64_t size = static_cast<uint64_t>(entry.size);
  for (uint64_t at = 0; at < size;) {
    size_t wanted = static_cast<size_t>(std::min<uint64_t>(COPIED_BYTES, size - at));
    unsigned char* piece = buffer ? buffer + at : own.data();
    size_t count = file_.read(start_ + static_cast<uint64_t>(entry.offset) + at, piece, wanted);
    if (!count)
      damaged(entry, "the file ends " + count_text(size - at) +
                         " bytes too early; it was changed since it was opened");
    sha.update(piece, count);
    at += count;
  }
  if (hexadecimal(sha.digest()) != entry.sha256) damaged(entry, "its sha256 is not the one in the manifest");
}

void Bundle::read_into(const Entry& entry, unsigned char* buffer) const {
  unsigned char nothing;
  hash(entry, buffer ? buffer : &nothing);
}

std::vector<unsigned char> Bundle::read(const std::string& name) const {
  const Entry& found = entry(name);
  if (static_cast<uint64_t>(found.size) > static_cast<uint64_t>(PTRDIFF_MAX)) throw std::bad_alloc();
  std::vector<unsigned char> content(static_cast<size_t>(found.size));
  read_into(found, content.data());
  return content;
}

void Bundle::verify() const {
  for (const Entry& one : manifest_.entries) hash(one, nullptr);
  uint64_t at = HEADER_BYTES + manifest_text_.size();
  auto check_padding = [&](uint64_t offset, uint64_t size) {
    unsigned char padding[64] = {};
    size_t count = static_cast<size_t>(start_ + offset - at);
    file_.read(at, padding, std::min<size_t>(count, 64));
    if (std::any_of(padding, padding + count, [](unsigned char byte) { return byte; })) {
      not_a_bundle(name_, "byte " + count_text(at) + " and on: the padding is not zero", AGAIN);
    }
    at = start_ + offset + size;
  };
  if (manifest_.entries.empty()) check_padding(0, 0);
  for (const Entry& one : manifest_.entries) check_padding(one.offset, one.size);
  for (const auto& [inputs, outputs] : manifest_.golden) {
    for (const TensorSpec& spec : manifest_.inputs) golden(inputs.at(spec.name), spec);
    for (const TensorSpec& spec : manifest_.outputs) golden(outputs.at(spec.name), spec);
  }
  for (const Variant& variant : manifest_.variants) {
    if (!variant.shrunk) continue;
    for (const Json& own : variant.shrunk->at("golden").items) {
      GoldenNames names = golden_names(own);
      for (const TensorSpec& spec : manifest_.outputs) golden(names.at(spec.name), spec);
    }
  }
}

GoldenArray Bundle::golden(const std::string& entry_name, const TensorSpec& declared) const {
  GoldenArray array{declared, read(entry_name), 0};
  const auto& content = array.content;
  auto refuse = [&](const std::string& why) {
    not_a_bundle(name_, "entry " + entry_name + ": " + why, REBUILD);
  };
  if (content.size() < 10 || std::memcmp(content.data(), "\x93NUMPY\x01\x00", 8) != 0)
    refuse("it is not a .npy file of version 1.0");
  array.data_start = 10 + little_endian(content.data() + 8, 2);
  size_t data_bytes = content.size() > array.data_start ? content.size() - array.data_start : 0;
  uint64_t size = element_bytes(declared.dtype);
  for (int64_t& d : array.spec.shape) {
    if (d == -1)
      d = static_cast<int64_t>(data_bytes / std::max<uint64_t>(1, element_count(declared.shape) * size));
  }
  if (array.data_start > NPY_HEADER_LIMIT_BYTES) {
    refuse("a .npy header of " + count_text(array.data_start) + " bytes; the limit is " +
           count_text(NPY_HEADER_LIMIT_BYTES));
  }
  const char* text = reinterpret_cast<const char*>(content.data());
  std::string header(text + 10, std::min(array.data_start, content.size()) - 10);
  header.erase(header.find_last_not_of(" \n") + 1);
  if (header != npy_header(array.spec)) refuse("its .npy header does not match " + array.spec.text());
  uint64_t wanted = element_count(array.spec.shape) * size;
  if (content.size() < array.data_start || data_bytes != wanted) {
    int64_t given = static_cast<int64_t>(content.size()) - static_cast<int64_t>(array.data_start);
    refuse(std::to_string(given) + " bytes of data where " + array.spec.text() + " has " +
           count_text(wanted));
  }
  return array;
}

const Card& Bundle::card() const {
  Lock held(card_mutex_);
  const Json* table = manifest_.card();
  if (!table) throw Refusal(name_ + " has no card, so pictures cannot be prepared; build it with --card");
  if (!card_) card_ = std::make_unique<Card>(read_card(*table, manifest_));
  return *card_;
}

}  // namespace edgekit
