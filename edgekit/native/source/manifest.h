// The manifest: its schema, and what its parts must be to each other (edgekit/bundle/manifest.py).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "json.h"

namespace edgekit {

constexpr size_t MANIFEST_LIMIT_BYTES = 8 << 20;

struct TensorSpec {
  std::string name, dtype;
  std::vector<int64_t> shape;

  // Return the text that errors show, e.g. "images float32 1x3x416x416".
  std::string text() const;
};

struct Entry {
  std::string name, sha256;
  int64_t offset, size;
};

struct Variant {
  std::string name, target, profile, precision, status;
  std::vector<std::pair<std::string, std::string>> files;  // the engine's name -> entry
  const Json *options, *evidence, *shrunk;                 // shrunk: NULL if it computes the source model
  bool verified, rejected;
  double time_ms;  // 0: not measured

  bool usable() const { return !files.empty() && !rejected; }
};

using GoldenNames = std::map<std::string, std::string>;  // tensor -> entry

struct Manifest {
  Json root;
  std::vector<TensorSpec> inputs, outputs;
  std::vector<Variant> variants;
  std::vector<Entry> entries;
  std::map<std::string, size_t> entry_index;
  std::vector<std::pair<GoldenNames, GoldenNames>> golden;  // inputs, outputs

  const Json* card() const;  // NULL: there is none
};

// Parse and check a manifest. Raises Refusal.
Manifest read_manifest(std::string_view data);

// Return the size of an element, or 0 of an unknown dtype.
size_t element_bytes(std::string_view dtype);

// Return the elements of a shape, of one row where a dimension is -1; UINT64_MAX if they are more than that.
uint64_t element_count(const std::vector<int64_t>& shape);

// Round up to a multiple of 64.
inline uint64_t aligned(uint64_t offset) { return (offset + 63) / 64 * 64; }

// Return the entries of golden outputs: tensor -> entry.
GoldenNames golden_names(const Json& table);

}  // namespace edgekit
