#include "golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "decode.h"
#include "float16.h"
#include "pairwise_sum.h"
#include "refusal.h"

namespace edgekit {
namespace {

template <class Number>
std::vector<double> converted(const edgekit_tensor& tensor) {
  std::vector<double> values(tensor.size_bytes / sizeof(Number));
  const char* at = static_cast<const char*>(tensor.bytes);
  for (double& value : values) {
    Number number;
    std::memcpy(&number, at, sizeof number);
    value = static_cast<double>(number);
    at += sizeof number;
  }
  return values;
}

std::vector<double> doubles_of(const edgekit_tensor& tensor) {
  const std::string dtype = tensor.dtype;
  if (dtype == "float32") return converted<float>(tensor);
  if (dtype == "float64") return converted<double>(tensor);
  if (dtype == "uint8" || dtype == "bool") return converted<uint8_t>(tensor);
  if (dtype == "int8") return converted<int8_t>(tensor);
  if (dtype == "int16") return converted<int16_t>(tensor);
  if (dtype == "uint16") return converted<uint16_t>(tensor);
  if (dtype == "int32") return converted<int32_t>(tensor);
  if (dtype == "uint32") return converted<uint32_t>(tensor);
  if (dtype == "int64") return converted<int64_t>(tensor);
  if (dtype == "uint64") return converted<uint64_t>(tensor);
  auto values = converted<uint16_t>(tensor);
  for (double& value : values) value = float_of(static_cast<uint16_t>(value));
  return values;
}

}  // namespace

void check_tensor(const edgekit_tensor& tensor) {
  std::string name = tensor.name ? tensor.name : "", dtype = tensor.dtype ? tensor.dtype : "";
  size_t size = element_bytes(dtype);
  if (!size)
    throw Refusal("tensor " + name + ": its dtype is '" + dtype +
                  "'; it must be numpy's name of a number type");
  if (tensor.rank < 0 || tensor.rank > EDGEKIT_RANK_LIMIT) {
    throw Refusal("tensor " + name + ": its rank is " + std::to_string(tensor.rank) +
                  "; it must be from 0 to 16");
  }
  std::vector<int64_t> shape(tensor.shape, tensor.shape + tensor.rank);
  bool negative = std::any_of(shape.begin(), shape.end(), [](int64_t d) { return d < 0; });
  uint64_t count = element_count(shape);
  if (negative || count > UINT64_MAX / size || count * size != tensor.size_bytes ||
      (count && !tensor.bytes)) {
    throw Refusal("tensor " + name + ": " + dtype + " " + list_text(shape) + " does not have " +
                  std::to_string(tensor.bytes ? tensor.size_bytes : 0) + " bytes");
  }
}

bool is_finite(const edgekit_tensor& tensor) {
  auto all = [&](auto number, auto bits) {
    const char *at = static_cast<const char*>(tensor.bytes), *end = at + tensor.size_bytes;
    unsigned bad = 0;  // without a branch, so that the compiler computes several at a time
    for (; at < end; at += sizeof number) {
      std::memcpy(&number, at, sizeof number);
      bad |= (number & bits) == bits;
    }
    return !bad;
  };
  if (std::strcmp(tensor.dtype, "float32") == 0) return all(uint32_t{}, uint32_t{0x7F800000});
  if (std::strcmp(tensor.dtype, "float64") == 0) return all(uint64_t{}, uint64_t{0x7FF0000000000000});
  if (std::strcmp(tensor.dtype, "float16") == 0) return all(uint16_t{}, uint16_t{0x7C00});
  return true;
}

edgekit_tensor tensor_of(const TensorSpec& spec, const void* bytes, size_t size_bytes) {
  edgekit_tensor tensor{};
  tensor.name = spec.name.c_str(), tensor.dtype = spec.dtype.c_str();
  tensor.rank = static_cast<int>(spec.shape.size());
  std::copy(spec.shape.begin(), spec.shape.end(), tensor.shape);
  tensor.bytes = const_cast<void*>(bytes), tensor.size_bytes = size_bytes;
  return tensor;
}

Snr signal_to_noise(const edgekit_tensor& expected, const edgekit_tensor& actual) {
  check_tensor(expected);
  check_tensor(actual);
  if (std::strcmp(expected.dtype, actual.dtype) != 0 || shape_text(expected) != shape_text(actual)) {
    throw Refusal(std::string("output ") + expected.name + " is " + actual.dtype + " " + shape_text(actual) +
                  "; " + expected.dtype + " " + shape_text(expected) + " is expected");
  }
  auto x = doubles_of(expected), y = doubles_of(actual);
  std::vector<double> noise, signal;
  for (size_t i = 0; i < x.size(); i++) {
    bool same = x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]));
    if (!std::isfinite(x[i]) ? !same : !std::isfinite(y[i])) return {false, -1000.0};
    if (!std::isfinite(x[i])) continue;
    noise.push_back((x[i] - y[i]) * (x[i] - y[i]));
    signal.push_back(x[i] * x[i]);
  }
  double noise_sum = pairwise_sum(noise.data(), noise.size()),
         signal_sum = pairwise_sum(signal.data(), signal.size());
  if (noise_sum == 0) return {true, 0};
  return {false, signal_sum != 0 ? 10 * std::log10(signal_sum / noise_sum) : -1000.0};
}

const Json* evidence_limit_db(const Json& evidence, const std::string& output) {
  const Json *accuracy = evidence.find("accuracy"), *limits = evidence.find("limits_db");
  const Json* found = accuracy ? accuracy->find(output) : nullptr;
  found = found ? found->find("limit_db") : nullptr;
  if (!found || found->is(Json::null)) found = limits ? limits->find(output) : nullptr;
  return found && found->is_number() ? found : nullptr;
}

}  // namespace edgekit
