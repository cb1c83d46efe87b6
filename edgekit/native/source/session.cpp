#include "session.h"

#include "golden.h"
#include "refusal.h"

namespace edgekit {
namespace {

constexpr size_t ERROR_BYTES = 2048;

}  // namespace

Session::Session(const Bundle& bundle, std::vector<const edgekit_engine*> engines,
                 const edgekit_options& options)
    : bundle_(bundle),
      engines_(std::move(engines)),
      threads_(options.threads),
      choice_(bundle, options.variant ? options.variant : "", options.strict != 0, false) {
  if (threads_ < 0 || threads_ > 1024) {
    throw Refusal("threads must be a whole number from 1 to 1024, or 0, not " + std::to_string(threads_));
  }
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

void Session::fail(const std::string& reason) {
  unload();
  choice_.fail(reason);
}

void Session::load_next() {
  while (!choice_.exhausted()) {
    try {
      load(choice_.variant());
      choice_.settle();
      return;
    } catch (const Refusal& problem) {
      fail(problem.what());
    }
  }
  choice_.give_up();
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
  check_golden();
}

void Session::check_golden() {
  for (size_t i = 0; i < bundle_.manifest().golden.size(); i++) {
    std::vector<GoldenArray> held = choice_.golden_inputs(i);
    std::vector<edgekit_tensor> inputs;
    for (GoldenArray& array : held) inputs.push_back(tensor_of(array));
    run_engine(inputs.data(), static_cast<int>(inputs.size()));
    std::vector<Agreement> found;
    choice_.check_golden(i, outputs_, found);
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
}

const std::vector<edgekit_tensor>* Session::run(const edgekit_input* input, edgekit_prepared& prepared) {
  if (!preparation_) preparation_ = std::make_unique<Preparation>(bundle_);
  prepared = preparation_->prepare(input);
  if (!prepared.count) return nullptr;
  const auto& outputs = run(prepared.inputs, prepared.count);
  preparation_->carry(outputs.data(), static_cast<int>(outputs.size()));
  return &outputs;
}

const std::vector<edgekit_tensor>& Session::run(const edgekit_tensor* inputs, int count) {
  choice_.check_inputs(inputs, count);
  if (choice_.exhausted()) choice_.give_up();  // an earlier run was the last variant's
  while (true) {
    try {
      if (!loaded_) load_next();  // strict: it failed at an earlier run
      run_engine(inputs, count);
      choice_.check_outputs(outputs_);
      return outputs_;
    } catch (const Refusal& problem) {
      if (!loaded_) throw;
      fail(problem.what());
      load_next();
    }
  }
}

}  // namespace edgekit
