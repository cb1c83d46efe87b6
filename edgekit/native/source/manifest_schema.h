// The manifest's schema as data.
#pragma once
#include <cstdint>

#include "json.h"

namespace edgekit {

struct TensorBytes {
  uint64_t value;
  bool fits;  // false: more than 64 bits
};

// Check the form of a manifest. Raises Refusal.
void check_manifest_schema(const Json& root);

// Return the bytes of a declared tensor, of one row where a dimension is open.
TensorBytes tensor_bytes(const Json& tensor);

}  // namespace edgekit
