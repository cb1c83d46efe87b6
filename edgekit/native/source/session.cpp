#include "session.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "decode.h"
#include "float16.h"
#include "golden.h"
#include "refusal.h"
#include "text.h"

namespace edgekit {
namespace {

constexpr size_t ERROR_BYTES = 2048;

// Whether a float tensor has only finite values; others always do.
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

Session::Session(const Bundle& bundle, std::vector<const edgekit_engine*> engines,
                 const edgekit_options& options)
    : bundle_(bundle), engines_(std::move(engines)), strict_(options.strict != 0), threads_(options.threads) {
  if (threads_ < 0 || threads_ > 1024) {
    throw Refusal("threads must be a whole number from 1 to 1024, or 0, not " + std::to_string(threads_));
  }
  order_ = rank_variants(bundle.manifest(), bundle.name(), options.variant ? options.variant : "");
  for (const TensorSpec& spec : bundle.manifest().outputs) outputs_.push_back(tensor_of(spec, nullptr, 0));
  try {
    load_next();
  } catch (...) {
    unload();
    throw;
  }
}

Session::~Session() { unload(); }

void Session::unload() {
  if (loaded_) engine_->unload(loaded_);
  loaded_ = nullptr;
}

void Session::give_up() const {
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
  throw Refusal(text + "\n  hand in an engine for one of these targets, or build the bundle for another");
}

void Session::fail(const std::string& reason) {
  unload();
  const std::string name = active();
  failures_.emplace_back(name, reason);
  if (strict_)
    throw Refusal("variant " + name + " of " + bundle_.name() + " does not run\n  " + reason +
                  "\n  strict allows no fallback; start without it, or name another variant");
  next_++;
}

void Session::load_next() {
  while (next_ < order_.candidates.size()) {
    try {
      load(bundle_.manifest().variants[order_.candidates[next_]]);
      break;
    } catch (const Refusal& problem) {
      fail(problem.what());
    }
  }
  if (next_ == order_.candidates.size()) give_up();
  fallbacks_.clear();
  for (size_t i = 0; i < failures_.size(); i++) {
    fallbacks_.push_back({failures_[i].first, i + 1 < failures_.size() ? failures_[i + 1].first : active(),
                          failures_[i].second});
  }
}

void Session::load(const Variant& variant) {
  engine_ = nullptr;
  for (const edgekit_engine* one : engines_) {
    if (variant.target == one->target) engine_ = one;
  }
  if (!engine_) throw Refusal("no engine for target " + variant.target + " was handed in");
  std::vector<std::vector<unsigned char>> contents;
  std::vector<const char*> names;
  std::vector<const void*> bytes;
  std::vector<size_t> sizes;
  for (const auto& [file, entry] : variant.files) {
    contents.push_back(bundle_.read(entry));
    names.push_back(file.c_str()), bytes.push_back(contents.back().data()),
        sizes.push_back(contents.back().size());
  }
  std::vector<edgekit_tensor> inputs, outputs;
  for (const TensorSpec& spec : bundle_.manifest().inputs) inputs.push_back(tensor_of(spec, nullptr, 0));
  for (const TensorSpec& spec : bundle_.manifest().outputs) outputs.push_back(tensor_of(spec, nullptr, 0));
  std::string options =
      bundle_.manifest_text().substr(variant.options->begin, variant.options->end - variant.options->begin);
  edgekit_model model{static_cast<int>(names.size()),
                      names.data(),
                      bytes.data(),
                      sizes.data(),
                      static_cast<int>(inputs.size()),
                      static_cast<int>(outputs.size()),
                      inputs.data(),
                      outputs.data(),
                      options.c_str(),
                      threads_};
  char error[ERROR_BYTES] = "";
  loaded_ = engine_->load(engine_->context, &model, error, sizeof error);
  error[ERROR_BYTES - 1] = '\0';
  if (!loaded_) throw Refusal(error[0] ? error : "its engine did not load it and did not say why");
  contents.clear();
  check_golden(variant);
}

void Session::check_golden(const Variant& variant) {
  const Manifest& manifest = bundle_.manifest();
  for (size_t i = 0; i < manifest.golden.size(); i++) {
    const auto& [in, out] = manifest.golden[i];
    GoldenNames expected_names =
        variant.shrunk ? golden_names(variant.shrunk->at("golden").items.at(i)) : out;
    std::vector<GoldenArray> held;
    std::vector<edgekit_tensor> inputs;
    for (const TensorSpec& spec : manifest.inputs) held.push_back(bundle_.golden(in.at(spec.name), spec));
    for (GoldenArray& array : held) {
      inputs.push_back(tensor_of(array.spec, array.content.data() + array.data_start,
                                 array.content.size() - array.data_start));
    }
    std::vector<GoldenArray> wanted;
    std::vector<edgekit_tensor> expected;
    for (const TensorSpec& spec : manifest.outputs)
      wanted.push_back(bundle_.golden(expected_names.at(spec.name), spec));
    for (GoldenArray& array : wanted) {
      expected.push_back(tensor_of(array.spec, array.content.data() + array.data_start,
                                   array.content.size() - array.data_start));
      if (!is_finite(expected.back())) may_be_infinite_[array.spec.name] = true;
    }
    run_engine(inputs.data(), static_cast<int>(inputs.size()));
    for (size_t k = 0; k < expected.size(); k++) {
      const Json* limit = evidence_limit_db(*variant.evidence, expected[k].name);
      Snr snr = signal_to_noise(expected[k], outputs_[k]);
      if (limit && !snr.equal && snr.db < 0.5 * limit->decimal) {
        char text[160];
        std::snprintf(text, sizeof text, " of a golden vector: SNR %.1f dB; the limit is %.1f dB", snr.db,
                      0.5 * limit->decimal);
        throw Refusal(std::string("output ") + expected[k].name + text);
      }
    }
  }
}

void Session::run_engine(const edgekit_tensor* inputs, int count) {
  char error[ERROR_BYTES] = "";
  const auto& specs = bundle_.manifest().outputs;
  for (size_t i = 0; i < specs.size(); i++) outputs_[i] = tensor_of(specs[i], nullptr, 0);
  int failed = engine_->run(loaded_, inputs, count, outputs_.data(), static_cast<int>(outputs_.size()), error,
                            sizeof error);
  error[ERROR_BYTES - 1] = '\0';
  if (failed) throw Refusal(error[0] ? error : "its engine failed to run and did not say why");
  check_outputs();
}

void Session::check_outputs() const {
  const auto& specs = bundle_.manifest().outputs;
  for (size_t i = 0; i < specs.size(); i++) {
    check_tensor(outputs_[i]);
    if (!fits(specs[i], outputs_[i])) {
      throw Refusal("it returned " + specs[i].name + " " + outputs_[i].dtype + " " + shape_text(outputs_[i]) +
                    "; the model's outputs are " + list_of(specs));
    }
    if (!is_finite(outputs_[i]) && !may_be_infinite_.count(specs[i].name)) {
      throw Refusal("values of output " + specs[i].name +
                    " are NaN or infinite, and those of its golden vectors are not");
    }
  }
}

const std::vector<edgekit_tensor>& Session::run(const edgekit_tensor* inputs, int count) {
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
  if (next_ == order_.candidates.size()) give_up();  // an earlier run was the last variant's
  while (true) {
    try {
      if (!loaded_) load_next();  // strict: it failed at an earlier run
      run_engine(inputs, count);
      return outputs_;
    } catch (const Refusal& problem) {
      if (!loaded_) throw;
      fail(problem.what());
      load_next();
    }
  }
}

}  // namespace edgekit
