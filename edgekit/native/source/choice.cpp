#include "choice.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "decode.h"
#include "refusal.h"
#include "text.h"

namespace edgekit {
namespace {

constexpr double GARBAGE_SHARE = 0.5, NO_LIMIT_DB = -1000;

std::string list_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> texts;
  for (const TensorSpec& spec : specs) texts.push_back(spec.text());
  return joined(texts);
}

bool fits(const TensorSpec& spec, const edgekit_tensor& tensor) {
  if (spec.dtype != tensor.dtype || tensor.rank != static_cast<int>(spec.shape.size())) return false;
  for (int i = 0; i < tensor.rank; i++) {
    if (spec.shape[i] != -1 && spec.shape[i] != tensor.shape[i]) return false;
  }
  return true;
}

}  // namespace

edgekit_tensor tensor_of(GoldenArray& array) {
  return tensor_of(array.spec, array.content.data() + array.data_start,
                   array.content.size() - array.data_start);
}

Choice::Choice(const Bundle& bundle, const std::string& named, bool strict, bool whole_limits)
    : bundle_(bundle),
      strict_(strict),
      whole_limits_(whole_limits),
      order_(rank_variants(bundle.manifest(), bundle.name(), named)) {}

void Choice::give_up() const {
  std::string text = "no variant of " + bundle_.name() + " works here";
  size_t width = 0;
  for (const auto* reasons : {&failures_, &order_.skipped}) {
    for (const auto& [name, _] : *reasons) width = std::max(width, characters(name));
  }
  for (const auto* reasons : {&failures_, &order_.skipped}) {
    for (const auto& [name, reason] : *reasons) {
      text += "\n  " + name + std::string(width - characters(name), ' ') + "  " + reason;
    }
  }
  if (failures_.empty() && order_.skipped.empty()) text += "\n  it has no variants";
  throw Refusal(text +
                (whole_limits_
                     ? "\n  build the bundle for a target whose engine is right here"
                     : "\n  hand in an engine for one of these targets, or build the bundle for another"));
}

void Choice::fail(const std::string& reason) {
  const std::string name = variant().name;
  failures_.emplace_back(name, reason);
  if (strict_)
    throw Refusal("variant " + name + " of " + bundle_.name() + " does not run\n  " + reason +
                  "\n  strict allows no fallback; start without it, or name another variant");
  next_++;
}

void Choice::settle() {
  fallbacks_.clear();
  for (size_t i = 0; i < failures_.size(); i++) {
    fallbacks_.push_back({failures_[i].first,
                          i + 1 < failures_.size() ? failures_[i + 1].first : variant().name,
                          failures_[i].second});
  }
}

std::vector<GoldenArray> Choice::golden_inputs(size_t golden) const {
  const Manifest& manifest = bundle_.manifest();
  std::vector<GoldenArray> arrays;
  for (const TensorSpec& spec : manifest.inputs)
    arrays.push_back(bundle_.golden(manifest.golden.at(golden).first.at(spec.name), spec));
  return arrays;
}

void Choice::check_golden(size_t golden, const std::vector<edgekit_tensor>& outputs,
                          std::vector<Agreement>& found) {
  const Manifest& manifest = bundle_.manifest();
  const Variant& variant = this->variant();
  GoldenNames names = variant.shrunk ? golden_names(variant.shrunk->at("golden").items.at(golden))
                                     : manifest.golden.at(golden).second;
  std::vector<GoldenArray> wanted;
  std::vector<edgekit_tensor> expected;
  for (const TensorSpec& spec : manifest.outputs) wanted.push_back(bundle_.golden(names.at(spec.name), spec));
  for (GoldenArray& array : wanted) {
    expected.push_back(tensor_of(array));
    if (!is_finite(expected.back())) may_be_infinite_.insert(array.spec.name);
  }
  check_outputs(outputs);
  for (size_t k = 0; k < expected.size(); k++) {
    const Json* limit = evidence_limit_db(*variant.evidence, expected[k].name);
    if (!limit && whole_limits_) {
      throw Refusal(std::string("the bundle has no SNR limit that output ") + expected[k].name +
                    " could be held to on an engine that the build did not run");
    }
    double limit_db = limit ? (whole_limits_ ? 1 : GARBAGE_SHARE) * limit->decimal : NO_LIMIT_DB;
    found.push_back({signal_to_noise(expected[k], outputs[k]), limit_db});
    const Snr& snr = found.back().snr;
    if (limit && !snr.equal && !(snr.db >= limit_db)) {
      char text[160];
      std::snprintf(text, sizeof text, " of a golden vector: SNR %.1f dB; the limit is %.1f dB", snr.db,
                    limit_db);
      throw Refusal(std::string("output ") + expected[k].name + text);
    }
  }
}

void Choice::check_outputs(const std::vector<edgekit_tensor>& outputs) const {
  const auto& specs = bundle_.manifest().outputs;
  for (size_t i = 0; i < specs.size(); i++) {
    check_tensor(outputs.at(i));
    if (!fits(specs[i], outputs[i])) {
      throw Refusal("it returned " + specs[i].name + " " + outputs[i].dtype + " " + shape_text(outputs[i]) +
                    "; the model's outputs are " + list_of(specs));
    }
    if (!is_finite(outputs[i]) && !may_be_infinite_.count(specs[i].name)) {
      throw Refusal("values of output " + specs[i].name +
                    " are NaN or infinite, and those of its golden vectors are not");
    }
  }
}

void Choice::check_inputs(const edgekit_tensor* inputs, int count) const {
  const auto& specs = bundle_.manifest().inputs;
  if (count != static_cast<int>(specs.size())) {
    throw Refusal(std::to_string(count) + " inputs were given; the model takes " + list_of(specs));
  }
  for (int i = 0; i < count; i++) {
    check_tensor(inputs[i]);
    if (!inputs[i].name || specs[i].name != inputs[i].name || !fits(specs[i], inputs[i])) {
      throw Refusal("input " + std::to_string(i) + " is " + (inputs[i].name ? inputs[i].name : "") + " " +
                    inputs[i].dtype + " " + shape_text(inputs[i]) + "; the model takes " + list_of(specs));
    }
  }
}

}  // namespace edgekit
