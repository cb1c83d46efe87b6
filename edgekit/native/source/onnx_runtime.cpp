// The settings are those of targets/edgekit_ort/run.py, so that a variant computes the same numbers here and
// there.
#include "onnx_runtime.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "json.h"
#include "manifest.h"
#include "opened_engine.h"
#include "ort_functions.h"
#include "processor.h"
#include "refusal.h"
#include "shared_library.h"

namespace edgekit {
namespace {

struct ElementType {
  const char* name;
  int type;
};
const ElementType ELEMENT_TYPES[] = {
    {"float32", ort::FLOAT},   {"uint8", ort::UINT8},    {"int8", ort::INT8},     {"uint16", ort::UINT16},
    {"int16", ort::INT16},     {"int32", ort::INT32},    {"int64", ort::INT64},   {"bool", ort::BOOL},
    {"float16", ort::FLOAT16}, {"float64", ort::DOUBLE}, {"uint32", ort::UINT32}, {"uint64", ort::UINT64}};

// The loaded library, with one environment for all sessions.
struct Library {
  std::unique_ptr<ort::Api> api;
  ort::Env* env = nullptr;
  ort::MemoryInfo* memory = nullptr;
  std::string version;

  void check(ort::Status* status, const char* what) const {
    if (!status) return;
    std::string text = "ONNX Runtime " + version + " " + what + ": " + api->error_message(status);
    api->release_status(status);
    throw Refusal(text);
  }
};

// A loaded model.onnx.
struct Model {
  const Library& library;
  ort::Session* session = nullptr;
  std::vector<ort::Value*> inputs, outputs;
  std::vector<const char*> input_names, output_names;

  explicit Model(const Library& of) : library(of) {}
  ~Model() {
    release(inputs);
    release(outputs);
    if (session) library.api->release_session(session);
  }
  void release(std::vector<ort::Value*>& values) const {
    for (ort::Value*& value : values) {
      if (value) library.api->release_value(value);
      value = nullptr;
    }
  }
};

std::unique_ptr<Library> open_library(const char* name) {
  const SharedLibrary opened(name, "onnxruntime", ".1", "OrtGetApiBase");
  if (!opened.why().empty()) {
    throw Refusal(std::string("ONNX Runtime cannot be loaded from ") +
                  (name ? name : "the system's libraries") + "\n  " + opened.why() +
                  "\n  give the path of libonnxruntime; the wheel onnxruntime has it in onnxruntime/capi");
  }
  const auto* base = reinterpret_cast<const ort::Base* (*)()>(opened.find("OrtGetApiBase"))();
  auto library = std::make_unique<Library>();
  library->version = base->version();
  const void* const* table = base->get_api(ort::API_VERSION);
  if (!table) {
    throw Refusal("ONNX Runtime " + library->version + " does not have version " +
                  std::to_string(ort::API_VERSION) + " of its C API\n  install ONNX Runtime 1.17 or later");
  }
  library->api = std::make_unique<ort::Api>(table);
  library->check(library->api->create_env(ort::LOG_ERROR, "edgekit", &library->env), "did not start");
  library->check(library->api->cpu_memory(ort::ARENA_ALLOCATOR, ort::MEMORY_DEFAULT, &library->memory),
                 "has no memory");
  return library;
}

bool is_true(const Json& options, const char* key) {
  const Json* value = options.find(key);
  return value && (value->truth || (value->is_number() && value->decimal != 0) || !value->items.empty() ||
                   !value->fields.empty() || (value->is(Json::text) && !value->content.empty()));
}

void configure(const Library& library, ort::Options* settings, const Json& options, int threads) {
  const ort::Api& api = *library.api;
  auto set = [&](const char* key, const char* value) {
    library.check(api.set_config(settings, key, value), key);
  };
  library.check(api.set_threads(settings, threads), "threads");
  library.check(api.set_op_threads(settings, 1), "threads");
  library.check(api.set_optimization(settings, ort::ENABLE_ALL), "optimization");
  library.check(api.set_log_level(settings, ort::LOG_ERROR), "log");
  const Json* arithmetic = options.find("arithmetic");
  set("session.intra_op.allow_spinning", "0");
  set("session.qdq_matmulnbits_accuracy_level", "1");
  set("session.disable_quant_qdq", is_true(options, "widened_weights") ? "1" : "0");
  set("session.x64quantprecision", is_true(options, "wide_sums") && !adds_widely() ? "1" : "0");
  set("mlas.enable_gemm_fastmath_arm64_bfloat16", arithmetic && arithmetic->content == "bf16" ? "1" : "0");
  set("optimization.disable_specified_optimizers",
      is_true(options, "float_islands") ? "Pad_Fusion;QDQPropagationTransformer;WeightBiasQuantization"
                                        : "Pad_Fusion;QDQPropagationTransformer");
}

void* load(void* context, const edgekit_model* given, char* error, size_t error_size) {
  try {
    const Library& library = *static_cast<Library*>(context);
    if (given->file_count != 1 || std::strcmp(given->file_names[0], "model.onnx") != 0) {
      throw Refusal("libedgekit runs variants of ort with one file, model.onnx; this one has " +
                    std::to_string(given->file_count));
    }
    Json options = parse_json(given->options_json, "options", MANIFEST_LIMIT_BYTES);
    auto model = std::make_unique<Model>(library);
    ort::Options* settings = nullptr;
    library.check(library.api->create_options(&settings), "has no options");
    try {
      configure(library, settings, options, given->threads);
      library.check(library.api->create_session(library.env, given->file_bytes[0], given->file_sizes[0],
                                                settings, &model->session),
                    "did not load model.onnx");
    } catch (...) {
      library.api->release_options(settings);
      throw;
    }
    library.api->release_options(settings);
    for (int i = 0; i < given->input_count; i++) model->input_names.push_back(given->inputs[i].name);
    for (int i = 0; i < given->output_count; i++) model->output_names.push_back(given->outputs[i].name);
    model->inputs.resize(given->input_count), model->outputs.resize(given->output_count);
    return model.release();
  } catch (const std::exception& problem) {
    std::snprintf(error, error_size, "%s", problem.what());
    return nullptr;
  }
}

// Describe one output: its dtype, shape and bytes.
void describe(const Library& library, ort::Value* value, edgekit_tensor& output) {
  const ort::Api& api = *library.api;
  ort::TensorInfo* info = nullptr;
  library.check(api.tensor_info(value, &info), "gave no tensor");
  int type = 0;
  size_t rank = 0;
  ort::Status* status = api.element_type(info, &type);
  if (!status) status = api.rank(info, &rank);
  if (!status && rank <= EDGEKIT_RANK_LIMIT) status = api.dimensions(info, output.shape, rank);
  api.release_tensor_info(info);
  library.check(status, "gave no shape");
  if (rank > EDGEKIT_RANK_LIMIT)
    throw Refusal("an output has " + std::to_string(rank) + " dimensions; the limit is 16");
  output.rank = static_cast<int>(rank);
  output.dtype = "text";
  for (const ElementType& one : ELEMENT_TYPES) output.dtype = one.type == type ? one.name : output.dtype;
  library.check(api.data_of(value, &output.bytes), "gave no values");
  output.size_bytes =
      element_count(std::vector<int64_t>(output.shape, output.shape + rank)) * element_bytes(output.dtype);
}

int run(void* loaded, const edgekit_tensor* inputs, int input_count, edgekit_tensor* outputs,
        int output_count, char* error, size_t error_size) {
  Model& model = *static_cast<Model*>(loaded);
  const Library& library = model.library;
  try {
    model.release(model.outputs);  // those of the last run
    for (int i = 0; i < input_count; i++) {
      int type = 0;
      for (const ElementType& one : ELEMENT_TYPES)
        type = std::strcmp(one.name, inputs[i].dtype) == 0 ? one.type : type;
      library.check(library.api->create_tensor(library.memory, inputs[i].bytes, inputs[i].size_bytes,
                                               inputs[i].shape, inputs[i].rank, type, &model.inputs[i]),
                    "refused an input");
    }
    library.check(library.api->run(model.session, nullptr, model.input_names.data(), model.inputs.data(),
                                   model.inputs.size(), model.output_names.data(), model.output_names.size(),
                                   model.outputs.data()),
                  "failed to run");
    model.release(model.inputs);
    for (int i = 0; i < output_count; i++) describe(library, model.outputs[i], outputs[i]);
    return 0;
  } catch (const std::exception& problem) {
    model.release(model.inputs);
    std::snprintf(error, error_size, "%s", problem.what());
    return 1;
  }
}

void unload(void* loaded) { delete static_cast<Model*>(loaded); }

}  // namespace

const edgekit_engine* onnx_runtime(const char* library) {
  return opened_engine(library, {"ort", nullptr, load, run, unload}, open_library);
}

}  // namespace edgekit
