// Comparison with golden vectors (edgekit/runtime/loading/golden_check.py).
#pragma once
#include <string>

#include "edgekit.h"
#include "manifest.h"

namespace edgekit {

struct Snr {
  bool equal;
  double db;
};

// 10 log10(sum x^2 / sum (x - y)^2) over the finite values. Raises Refusal: dtype or shape differ.
Snr signal_to_noise(const edgekit_tensor& expected, const edgekit_tensor& actual);

// Return the SNR limit that the build applied to an output, or NULL.
const Json* evidence_limit_db(const Json& evidence, const std::string& output);

// Check that a tensor's bytes are as many as its dtype and shape say. Raises Refusal.
void check_tensor(const edgekit_tensor& tensor);

// Whether a float tensor has only finite values; others always do.
bool is_finite(const edgekit_tensor& tensor);

// Return a tensor for a spec.
edgekit_tensor tensor_of(const TensorSpec& spec, const void* bytes, size_t size_bytes);

}  // namespace edgekit
