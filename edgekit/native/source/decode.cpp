#include "decode.h"

#include <cmath>
#include <cstring>

#include "float16.h"
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

float exponential(float x) { return static_cast<float>(std::exp(static_cast<double>(x))); }

std::string shape_text(const edgekit_tensor& tensor) {
  return list_text(std::vector<int64_t>(tensor.shape, tensor.shape + tensor.rank));
}

std::vector<float> floats_of(const edgekit_tensor& tensor) {
  std::string dtype = tensor.dtype;
  std::vector<float> values(tensor.size_bytes / element_bytes(dtype));
  if (dtype == "float32")
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
  size_t bad = 0;
  for (float value : values) bad += !std::isfinite(value);
  if (bad) {
    throw Refusal(std::to_string(bad) + " of " + std::to_string(values.size()) + " values of output " +
                  tensor.name +
                  " are NaN or infinite; the input or this variant's arithmetic is at fault: try another "
                  "engine or precision");
  }
  return values;
}

std::vector<Found> decode_output(const Task& task, const edgekit_tensor& output,
                                 const edgekit_placement& placed) {
  if (task.kind == "classify") {
    auto scores = floats_of(output);
    if (scores.empty())
      throw Refusal("output " + task.output + " is " + shape_text(output) + "; it has no class");
    return decode_classes(task, scores);
  }
  if (task.kind == "voice-activity") {
    auto values = floats_of(output);
    if (values.size() != 1)
      throw Refusal("the card decodes one probability per window, but the model returned " +
                    shape_text(output));
    return {{values[0] >= static_cast<float>(task.threshold), values[0], {}}};
  }
  if (std::string(output.dtype) != "float32") {
    throw Refusal("output " + task.output + " is " + output.dtype + "; libedgekit decodes boxes of float32");
  }
  auto values = floats_of(output);
  return decode_boxes(task, values.data(), std::vector<int64_t>(output.shape, output.shape + output.rank),
                      placed);
}

}  // namespace edgekit
