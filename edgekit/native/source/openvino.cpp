// OpenVINO's CPU plugin. The settings are those of targets/edgekit_openvino/run.py, so that a variant
// computes the same numbers here and there.
//
// Arguments and element types are those of OpenVINO 2026 (include/openvino/c in its wheel).
#include "openvino.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "json.h"
#include "manifest.h"
#include "refusal.h"
#include "opened_engine.h"
#include "shared_library.h"
#include "signal_stack.h"

namespace edgekit {
namespace {
namespace ov {  // all sources are compiled as one

constexpr const char* FIRST = "ov_core_create";
constexpr const char* SINCE_2026 = "ov_core_compile_model_props";
constexpr int BYTES = 16;  // the element type u8

struct Shape {
  int64_t rank;
  int64_t* dims;
};
struct Property {
  const char *key, *value;
};
struct Version {
  const char *build, *description;
};

struct ElementName {
  const char* name;
  int type;
};
const ElementName ELEMENT_NAMES[] = {{"bool", 1},   {"float16", 3}, {"float32", 4}, {"float64", 5},
                                     {"int8", 7},   {"int16", 8},   {"int32", 9},   {"int64", 10},
                                     {"uint8", 16}, {"uint16", 17}, {"uint32", 18}, {"uint64", 19}};
// The plugin computes these in narrower ones, and wraps or clamps what does not fit.
const char* const NARROWED[] = {"int64", "uint64", "uint32", "float64"};

using Object = void*;

// The loaded library, with one core for all models.
struct Runtime {
  SharedLibrary library;
  std::string version;
  Object core = nullptr;

  explicit Runtime(const char* path) : library(path, "openvino_c", "", FIRST) {}

  // Call a function that returns a status, and return the status.
  template <class... Arguments>
  int status(const char* function, Arguments... arguments) const {
    void* address = library.find(function);
    if (!address) throw Refusal(std::string("OpenVINO has no ") + function);
    return reinterpret_cast<int (*)(Arguments...)>(address)(arguments...);
  }

  // The same. Raises Refusal: the status is not 0.
  template <class... Arguments>
  void call(const char* function, Arguments... arguments) const {
    if (!status(function, arguments...)) return;
    const char* why = reinterpret_cast<const char* (*)()>(library.find("ov_get_last_err_msg"))();
    throw Refusal("OpenVINO " + version + " failed in " + function + ": " + (why ? why : "no reason"));
  }

  // Free an object. NULL is ignored.
  void destroy(const char* function, Object object) const {
    if (object) reinterpret_cast<void (*)(Object)>(library.find(function))(object);
  }
};

// A loaded model.xml.
struct Compiled {
  const Runtime& runtime;
  std::vector<unsigned char> weights;  // model.bin, which OpenVINO reads while the model lives
  Object weights_tensor = nullptr, model = nullptr, compiled = nullptr, request = nullptr;
  std::vector<Object> inputs;      // NULL for one that the file does not read
  std::vector<Object> outputs;     // those of the last run
  std::vector<std::string> names;  // of the outputs

  explicit Compiled(const Runtime& of) : runtime(of) {}
  ~Compiled() {
    release(outputs);
    release(inputs);
    runtime.destroy("ov_infer_request_free", request);
    runtime.destroy("ov_compiled_model_free", compiled);
    runtime.destroy("ov_model_free", model);
    runtime.destroy("ov_tensor_free", weights_tensor);
  }
  void release(std::vector<Object>& tensors) const {
    for (Object& tensor : tensors) {
      runtime.destroy("ov_tensor_free", tensor);
      tensor = nullptr;
    }
  }
};

size_t file_of(const edgekit_model* given, const char* name) {
  for (int i = 0; i < given->file_count; i++) {
    if (std::strcmp(given->file_names[i], name) == 0) return i;
  }
  throw Refusal(
      std::string("libedgekit runs variants of openvino with model.xml and model.bin; this one has no ") +
      name);
}

void compile(Compiled& model, const edgekit_model* given) {
  const Runtime& runtime = model.runtime;
  const size_t xml = file_of(given, "model.xml"), bin = file_of(given, "model.bin");
  const Json options = parse_json(given->options_json, "options", MANIFEST_LIMIT_BYTES);
  const auto* bytes = static_cast<const unsigned char*>(given->file_bytes[bin]);
  model.weights.assign(bytes, bytes + given->file_sizes[bin]);
  if (model.weights.empty())
    model.weights.push_back(0);  // a model without weights: a tensor needs an address
  int64_t size = static_cast<int64_t>(model.weights.size());
  runtime.call("ov_tensor_create_from_host_ptr", BYTES, Shape{1, &size},
               static_cast<void*>(model.weights.data()), &model.weights_tensor);
  runtime.call("ov_core_read_model_from_memory_buffer", runtime.core, given->file_bytes[xml],
               given->file_sizes[xml], model.weights_tensor, &model.model);
  const Json* arithmetic = options.find("arithmetic");
  const std::string threads = std::to_string(given->threads);
  std::vector<Property> settings = {
      {"INFERENCE_PRECISION_HINT", arithmetic && arithmetic->content == "bf16" ? "bf16" : "f32"},
      {"PERFORMANCE_HINT", "LATENCY"},
      {"NUM_STREAMS", "1"},
      {"ENABLE_CPU_PINNING", "NO"},
      // Otherwise inputs of layers whose weights are stored as integers are rounded to int8.
      {"DYNAMIC_QUANTIZATION_GROUP_SIZE", "0"}};
  if (given->threads > 0) settings.push_back({"INFERENCE_NUM_THREADS", threads.c_str()});
  const KeptSignalStack kept;
  runtime.call("ov_core_compile_model_props", runtime.core, model.model, "CPU", settings.size(),
               static_cast<const Property*>(settings.data()), &model.compiled);
  runtime.call("ov_compiled_model_create_infer_request", model.compiled, &model.request);
}

// Find the source model's inputs among the file's, and refuse those that the file reads in another form.
void find_inputs(Compiled& model, const edgekit_model* given) {
  const Runtime& runtime = model.runtime;
  size_t read = 0, known = 0;
  runtime.call("ov_compiled_model_inputs_size", model.compiled, &read);
  for (int i = 0; i < given->input_count; i++) {
    const edgekit_tensor& spec = given->inputs[i];
    Object& tensor = model.inputs.emplace_back(nullptr);
    if (runtime.status("ov_infer_request_get_tensor", model.request, spec.name, &tensor)) {
      tensor = nullptr;  // nothing reads it
      continue;
    }
    known++;
    int type = 0;
    size_t bytes = 0;
    runtime.call("ov_tensor_get_element_type", tensor, &type);
    runtime.call("ov_tensor_get_byte_size", tensor, &bytes);
    const char* dtype = "another type";
    for (const ElementName& one : ELEMENT_NAMES) dtype = one.type == type ? one.name : dtype;
    const std::vector<int64_t> shape(spec.shape, spec.shape + spec.rank);
    if (std::strcmp(dtype, spec.dtype) != 0 || bytes != element_count(shape) * element_bytes(spec.dtype))
      throw Refusal(std::string(spec.name) +
                    " has another form in model.xml, which libedgekit does not convert");
    for (const char* narrowed : NARROWED) {
      if (std::strcmp(dtype, narrowed) == 0)
        throw Refusal(std::string(spec.name) + " is " + dtype +
                      ", which OpenVINO narrows without a word; "
                      "libedgekit gives it no such input");
    }
  }
  if (known != read)
    throw Refusal("model.xml reads " + std::to_string(read) + " inputs, of which the source model has " +
                  std::to_string(known));
}

void* load(void* context, const edgekit_model* given, char* error, size_t error_size) {
  try {
    auto model = std::make_unique<Compiled>(*static_cast<Runtime*>(context));
    compile(*model, given);
    find_inputs(*model, given);
    for (int i = 0; i < given->output_count; i++) model->names.push_back(given->outputs[i].name);
    model->outputs.resize(model->names.size(), nullptr);
    return model.release();
  } catch (const std::exception& problem) {
    std::snprintf(error, error_size, "%s", problem.what());
    return nullptr;
  }
}

// Describe one output: its dtype, shape and bytes.
void describe(const Runtime& runtime, Object tensor, edgekit_tensor& output) {
  int type = 0;
  Shape shape{};
  runtime.call("ov_tensor_get_element_type", tensor, &type);
  runtime.call("ov_tensor_get_shape", tensor, &shape);
  const bool fits = shape.rank <= EDGEKIT_RANK_LIMIT;
  if (fits) std::memcpy(output.shape, shape.dims, shape.rank * sizeof(int64_t));
  output.rank = static_cast<int>(shape.rank);
  runtime.call("ov_shape_free", &shape);
  if (!fits) throw Refusal("an output has " + std::to_string(output.rank) + " dimensions; the limit is 16");
  output.dtype = "another type";
  for (const ElementName& one : ELEMENT_NAMES) output.dtype = one.type == type ? one.name : output.dtype;
  runtime.call("ov_tensor_data", tensor, &output.bytes);
  runtime.call("ov_tensor_get_byte_size", tensor, &output.size_bytes);
}

int run(void* loaded, const edgekit_tensor* inputs, int input_count, edgekit_tensor* outputs,
        int output_count, char* error, size_t error_size) {
  Compiled& model = *static_cast<Compiled*>(loaded);
  const Runtime& runtime = model.runtime;
  try {
    model.release(model.outputs);
    for (int i = 0; i < input_count; i++) {
      if (!model.inputs[i]) continue;
      void* memory = nullptr;
      size_t bytes = 0;
      runtime.call("ov_tensor_data", model.inputs[i], &memory);
      runtime.call("ov_tensor_get_byte_size", model.inputs[i], &bytes);
      if (inputs[i].size_bytes != bytes) throw Refusal("an input has another size");
      std::memcpy(memory, inputs[i].bytes, bytes);
    }
    runtime.call("ov_infer_request_infer", model.request);
    for (int i = 0; i < output_count; i++) {
      runtime.call("ov_infer_request_get_tensor", model.request, model.names[i].c_str(), &model.outputs[i]);
      describe(runtime, model.outputs[i], outputs[i]);
    }
    return 0;
  } catch (const std::exception& problem) {
    std::snprintf(error, error_size, "%s", problem.what());
    return 1;
  }
}

void unload(void* loaded) { delete static_cast<Compiled*>(loaded); }

std::unique_ptr<Runtime> open_runtime(const char* path) {
  auto runtime = std::make_unique<Runtime>(path);
  if (!runtime->library.why().empty())
    throw Refusal(std::string("OpenVINO cannot be loaded from ") + (path ? path : "the system's libraries") +
                  "\n  " + runtime->library.why() +
                  "\n  give the path of libopenvino_c; the wheel openvino has it in openvino/libs");
  if (!runtime->library.find(SINCE_2026))
    throw Refusal(
        "this OpenVINO is older than 2026, and its C interface another one\n  install OpenVINO 2026");
  Version version{};
  runtime->call("ov_get_openvino_version", &version);
  runtime->version = std::string(version.build).substr(0, std::string(version.build).find('-'));
  reinterpret_cast<void (*)(Version*)>(runtime->library.find("ov_version_free"))(&version);
  runtime->call(FIRST, &runtime->core);
  return runtime;
}

}  // namespace ov
}  // namespace

const edgekit_engine* openvino(const char* library) {
  return opened_engine(library, {"openvino", nullptr, ov::load, ov::run, ov::unload}, ov::open_runtime);
}

}  // namespace edgekit
