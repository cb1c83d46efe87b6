// LiteRT's CompiledModel on the CPU, which computes what the interpreter of targets/edgekit_tflite/run.py
// does.
//
// The wheel holds no header, and the library has no function for its version. Arguments are those of
// LiteRT 2.3: older ones create a model without an environment.
// https://github.com/google-ai-edge/LiteRT/tree/main/litert/c
#include "litert.h"

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

namespace edgekit {
namespace {

constexpr const char* FIRST = "LiteRtCreateEnvironment";
constexpr const char* SINCE_2_3 = "LiteRtCompiledModelIsNonCpuFullyAccelerated";
constexpr int CPU = 1, FOR_READING = 0, FOR_WRITING = 1;
constexpr size_t MAX_RANK = 8;

using LiteRtObject = void*;

// LiteRtRankedTensorType: 72 bytes.
struct TensorType {
  int32_t element;
  uint32_t rank;  // 7 bits; the next one tells whether there are strides
  int32_t shape[MAX_RANK];
  uint32_t strides[MAX_RANK];
};

struct ElementName {
  const char* name;
  int32_t element;
};
const ElementName ELEMENT_NAMES[] = {{"float32", 1},  {"int32", 2},   {"uint8", 3},   {"int64", 4},
                                     {"bool", 6},     {"int16", 7},   {"int8", 9},    {"float16", 10},
                                     {"float64", 11}, {"uint32", 16}, {"uint16", 17}, {"uint64", 13}};

// The loaded library, with one environment for all models.
struct Runtime {
  SharedLibrary library;
  LiteRtObject environment = nullptr;

  explicit Runtime(const char* path) : library(path, "LiteRt", "", FIRST) {}

  // Call a function that returns a status. Raises Refusal: it is not 0.
  template <class... Arguments>
  void call(const char* function, Arguments... arguments) const {
    void* address = library.find(function);
    if (!address) throw Refusal(std::string("LiteRT has no ") + function);
    if (int status = reinterpret_cast<int (*)(Arguments...)>(address)(arguments...))
      throw Refusal(std::string("LiteRT failed in ") + function + ": status " + std::to_string(status));
  }

  // Free an object. NULL is ignored.
  void destroy(const char* function, LiteRtObject object) const {
    if (object) reinterpret_cast<void (*)(LiteRtObject)>(library.find(function))(object);
  }
};

// One input or output of a model, with LiteRT's memory for it.
struct Slot {
  LiteRtObject buffer = nullptr;
  size_t size_bytes = 0;
  std::vector<unsigned char> copy;  // of an output
};

// A loaded model.tflite.
struct Compiled {
  const Runtime& runtime;
  std::vector<unsigned char> file;  // LiteRT reads it while the model lives
  LiteRtObject model = nullptr, options = nullptr, compiled = nullptr;
  size_t signature = 0;
  std::vector<Slot> inputs, outputs;        // in the signature's order
  std::vector<size_t> input_at, output_at;  // places of the source model's inputs and outputs

  explicit Compiled(const Runtime& of) : runtime(of) {}
  ~Compiled() {
    for (auto* slots : {&inputs, &outputs}) {
      for (Slot& slot : *slots) runtime.destroy("LiteRtDestroyTensorBuffer", slot.buffer);
    }
    runtime.destroy("LiteRtDestroyCompiledModel", compiled);
    runtime.destroy("LiteRtDestroyOptions", options);
    runtime.destroy("LiteRtDestroyModel", model);
  }
};

// Return the entry of options.inputs or options.outputs with a source name.
const Json& entry_of(const Json& options, const char* side, const char* name) {
  if (const Json* entries = options.find(side)) {
    for (const Json& entry : entries->items) {
      const Json* own = entry.find("name");
      if (own && own->content == name) return entry;
    }
  }
  throw Refusal(std::string("the options of the variant name no ") + name + " in " + side);
}

// Open the inputs or outputs of a signature, and find those of the source model among them.
void open_slots(Compiled& model, LiteRtObject signature, const std::string& side, const edgekit_tensor* specs,
                int count, const Json& entries_of, const char* key, std::vector<Slot>& slots,
                std::vector<size_t>& places) {
  const Runtime& runtime = model.runtime;
  size_t number = 0;
  runtime.call(("LiteRtGetNumSignature" + side + "s").c_str(), signature, &number);
  if (number != static_cast<size_t>(count))
    throw Refusal("model.tflite has " + std::to_string(number) + " " + key + ", and the source model " +
                  std::to_string(count));
  slots.resize(number), places.assign(number, number);
  for (size_t i = 0; i < number; i++) {
    const char* name = "";
    LiteRtObject tensor = nullptr, requirements = nullptr;
    TensorType type{};
    runtime.call(("LiteRtGetSignature" + side + "Name").c_str(), signature, i, &name);
    runtime.call(("LiteRtGetSignature" + side + "TensorByIndex").c_str(), signature, i, &tensor);
    runtime.call("LiteRtGetRankedTensorType", tensor, &type);
    for (int k = 0; k < count; k++) {
      const Json& entry = entry_of(entries_of, key, specs[k].name);
      const Json* own = entry.find("signature_name");
      if (!own || own->content != name) continue;
      const char* dtype = "another type";
      for (const ElementName& one : ELEMENT_NAMES) dtype = one.element == type.element ? one.name : dtype;
      const std::vector<int64_t> shape(specs[k].shape, specs[k].shape + specs[k].rank);
      uint64_t elements = 1;
      for (size_t d = 0; d < std::min<size_t>(type.rank & 127, MAX_RANK); d++)
        elements *= type.shape[d] > 0 ? static_cast<uint64_t>(type.shape[d]) : 0;
      if (std::strcmp(dtype, specs[k].dtype) != 0 || elements != element_count(shape) || entry.find("order"))
        throw Refusal(std::string(specs[k].name) + " is " + dtype +
                      " in another form in model.tflite, which " + "libedgekit does not convert");
      places[k] = i;
    }
    runtime.call(("LiteRtGetCompiledModel" + side + "BufferRequirements").c_str(), model.compiled,
                 model.signature, i, &requirements);
    runtime.call("LiteRtCreateManagedTensorBufferFromRequirements", runtime.environment, &type, requirements,
                 &slots[i].buffer);
    runtime.call("LiteRtGetTensorBufferPackedSize", slots[i].buffer, &slots[i].size_bytes);
  }
  for (int k = 0; k < count; k++) {
    if (places[k] == number)
      throw Refusal(std::string("the signature of model.tflite has no ") + specs[k].name);
  }
}

LiteRtObject signature_of(Compiled& model, const std::string& wanted) {
  const Runtime& runtime = model.runtime;
  size_t number = 0;
  runtime.call("LiteRtGetNumModelSignatures", model.model, &number);
  for (size_t i = 0; i < number; i++) {
    LiteRtObject signature = nullptr;
    const char* key = "";
    runtime.call("LiteRtGetModelSignature", model.model, i, &signature);
    runtime.call("LiteRtGetSignatureKey", signature, &key);
    model.signature = i;
    if (wanted == key) return signature;
  }
  throw Refusal("model.tflite has no signature " + wanted);
}

void* load_tflite(void* context, const edgekit_model* given, char* error, size_t error_size) {
  try {
    const Runtime& runtime = *static_cast<Runtime*>(context);
    if (given->file_count != 1 || std::strcmp(given->file_names[0], "model.tflite") != 0)
      throw Refusal("libedgekit runs variants of tflite with one file, model.tflite; this one has " +
                    std::to_string(given->file_count));
    if (given->threads > 1)
      throw Refusal("libedgekit runs LiteRT on one thread, not " + std::to_string(given->threads));
    const Json options = parse_json(given->options_json, "options", MANIFEST_LIMIT_BYTES);
    auto model = std::make_unique<Compiled>(runtime);
    const auto* bytes = static_cast<const unsigned char*>(given->file_bytes[0]);
    model->file.assign(bytes, bytes + given->file_sizes[0]);
    runtime.call("LiteRtCreateModelFromBuffer", runtime.environment,
                 static_cast<const void*>(model->file.data()), model->file.size(), &model->model);
    runtime.call("LiteRtCreateOptions", &model->options);
    runtime.call("LiteRtSetOptionsHardwareAccelerators", model->options, CPU);
    runtime.call("LiteRtCreateCompiledModel", runtime.environment, model->model, model->options,
                 &model->compiled);
    const Json* name = options.find("signature");
    LiteRtObject signature = signature_of(*model, name ? name->content : "");
    open_slots(*model, signature, "Input", given->inputs, given->input_count, options, "inputs",
               model->inputs, model->input_at);
    open_slots(*model, signature, "Output", given->outputs, given->output_count, options, "outputs",
               model->outputs, model->output_at);
    return model.release();
  } catch (const std::exception& problem) {
    std::snprintf(error, error_size, "%s", problem.what());
    return nullptr;
  }
}

int run_tflite(void* loaded, const edgekit_tensor* inputs, int input_count, edgekit_tensor* outputs,
               int output_count, char* error, size_t error_size) {
  Compiled& model = *static_cast<Compiled*>(loaded);
  const Runtime& runtime = model.runtime;
  try {
    void* memory = nullptr;
    for (int i = 0; i < input_count; i++) {
      Slot& slot = model.inputs[model.input_at[i]];
      if (inputs[i].size_bytes != slot.size_bytes) throw Refusal("an input has another size");
      runtime.call("LiteRtLockTensorBuffer", slot.buffer, &memory, FOR_WRITING);
      std::memcpy(memory, inputs[i].bytes, slot.size_bytes);
      runtime.call("LiteRtUnlockTensorBuffer", slot.buffer);
    }
    std::vector<LiteRtObject> in, out;
    for (const Slot& slot : model.inputs) in.push_back(slot.buffer);
    for (const Slot& slot : model.outputs) out.push_back(slot.buffer);
    runtime.call("LiteRtRunCompiledModel", model.compiled, model.signature, in.size(), in.data(), out.size(),
                 out.data());
    for (int i = 0; i < output_count; i++) {  // the caller has set name, dtype and shape
      Slot& slot = model.outputs[model.output_at[i]];
      runtime.call("LiteRtLockTensorBuffer", slot.buffer, &memory, FOR_READING);
      const auto* values = static_cast<const unsigned char*>(memory);
      slot.copy.assign(values, values + slot.size_bytes);
      runtime.call("LiteRtUnlockTensorBuffer", slot.buffer);
      outputs[i].bytes = slot.copy.data(), outputs[i].size_bytes = slot.size_bytes;
    }
    return 0;
  } catch (const std::exception& problem) {
    std::snprintf(error, error_size, "%s", problem.what());
    return 1;
  }
}

void unload_tflite(void* loaded) { delete static_cast<Compiled*>(loaded); }

std::unique_ptr<Runtime> open_runtime(const char* path) {
  auto runtime = std::make_unique<Runtime>(path);
  if (!runtime->library.why().empty())
    throw Refusal(std::string("LiteRT cannot be loaded from ") + (path ? path : "the system's libraries") +
                  "\n  " + runtime->library.why() +
                  "\n  give the path of libLiteRt; the wheel ai-edge-litert has it");
  if (!runtime->library.find(SINCE_2_3))
    throw Refusal("this LiteRT is older than 2.3, and its C interface another one\n  install LiteRT 2.3");
  runtime->call(FIRST, 0, static_cast<const void*>(nullptr), &runtime->environment);
  return runtime;
}

}  // namespace

const edgekit_engine* litert(const char* library) {
  return opened_engine(library, {"tflite", nullptr, load_tflite, run_tflite, unload_tflite}, open_runtime);
}

}  // namespace edgekit
