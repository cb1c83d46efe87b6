#include "decode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "float16.h"
#include "golden.h"
#include "manifest.h"
#include "refusal.h"
#include "text.h"

namespace edgekit {
namespace {

template <class Number>
void convert(const void* bytes, std::vector<float>& values) {
  const char* at = static_cast<const char*>(bytes);
  for (float& value : values) {
    Number number;
    std::memcpy(&number, at, sizeof number);
    value = static_cast<float>(number);
    at += sizeof number;
  }
}

}  // namespace

std::string shape_text(const edgekit_tensor& tensor) {
  return list_text(std::vector<int64_t>(tensor.shape, tensor.shape + tensor.rank));
}

Floats floats_of(const edgekit_tensor& tensor) {
  std::string dtype = tensor.dtype;
  Floats floats{{}, nullptr, tensor.size_bytes / element_bytes(dtype)};
  const bool is_own = dtype == "float32" && reinterpret_cast<uintptr_t>(tensor.bytes) % alignof(float) == 0;
  std::vector<float>& values = floats.copy;
  if (!is_own) values.resize(floats.count);
  if (is_own)
    floats.values = static_cast<const float*>(tensor.bytes);
  else if (dtype == "float32")
    convert<float>(tensor.bytes, values);
  else if (dtype == "uint8")
    convert<uint8_t>(tensor.bytes, values);
  else if (dtype == "int8")
    convert<int8_t>(tensor.bytes, values);
  else if (dtype == "int32")
    convert<int32_t>(tensor.bytes, values);
  else if (dtype == "float16") {
    std::vector<float> words(values.size());
    convert<uint16_t>(tensor.bytes, words);
    for (size_t i = 0; i < words.size(); i++) values[i] = float_of(static_cast<uint16_t>(words[i]));
  } else {
    throw Refusal(std::string("output ") + tensor.name + " is " + dtype +
                  ", which libedgekit does not decode");
  }
  if (!is_own) floats.values = values.data();
  if (is_finite(tensor)) return floats;
  const auto bad = std::count_if(floats.values, floats.values + floats.count,
                                 [](float value) { return !std::isfinite(value); });
  throw Refusal(std::to_string(bad) + " of " + std::to_string(floats.count) + " values of output " +
                tensor.name +
                " are NaN or infinite; the input or this variant's arithmetic is at fault: try another "
                "engine or precision");
}

std::vector<Found> decode_output(const Task& task, const edgekit_tensor& output,
                                 const edgekit_placement& placed) {
  if (task.kind == "classify") {
    const Floats scores = floats_of(output);
    if (!scores.count)
      throw Refusal("output " + task.output + " is " + shape_text(output) + "; it has no class");
    return decode_classes(task, scores.values, scores.count);
  }
  if (task.kind == "voice-activity") {
    const Floats floats = floats_of(output);
    if (floats.count != 1)
      throw Refusal("the card decodes one probability per window, but the model returned " +
                    shape_text(output));
    return {{floats.values[0] >= static_cast<float>(task.threshold), floats.values[0], {}}};
  }
  if (std::string(output.dtype) != "float32") {
    throw Refusal("output " + task.output + " is " + output.dtype + "; libedgekit decodes boxes of float32");
  }
  const Floats floats = floats_of(output);
  return decode_boxes(task, floats.values, std::vector<int64_t>(output.shape, output.shape + output.rank),
                      placed);
}

}  // namespace edgekit
