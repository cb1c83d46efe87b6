// Opens the bundles whose paths are on standard input and does all that needs no engine; answers a line for
// each. For the sanitizers: a fault ends the process.
#include <cstdio>
#include <string>
#include <vector>

#include "edgekit.h"

static std::string escaped(const char* text) {
  std::string out;
  for (; *text; text++)
    out += *text == '\n' ? std::string("\\n") : *text == '\\' ? "\\\\" : std::string(1, *text);
  return out;
}

static void answer(const char* step, bool done) {
  std::printf("%s\t%s\t", step, done ? "" : escaped(edgekit_error()).c_str());
}

static void describe(const edgekit_bundle* bundle) {
  edgekit_tensor tensor;
  for (int side : {EDGEKIT_INPUTS, EDGEKIT_OUTPUTS}) {
    for (int i = 0; i <= edgekit_count(bundle, side); i++) edgekit_tensor_at(bundle, side, i, &tensor);
  }
  edgekit_variant variant;
  edgekit_file file;
  for (int v = 0; edgekit_variant_at(bundle, v, &variant) == 0; v++) {
    for (int f = 0; edgekit_file_at(bundle, v, f, &file) == 0; f++) {
      std::vector<char> content(static_cast<size_t>(file.size_bytes));
      edgekit_read(bundle, file.entry, content.data(), content.size());
    }
  }
  size_t size;
  std::string texts;
  for (int what = EDGEKIT_DIGEST; what <= EDGEKIT_CARD + 1; what++) {
    if (const char* text = edgekit_text(bundle, what, &size)) texts.append(text, size);
  }
}

// Describe one side of the model; false if a tensor is not small.
static bool tensors_of(const edgekit_bundle* bundle, int side, std::vector<edgekit_tensor>& tensors,
                       std::vector<std::vector<double>>& zeros) {
  tensors.resize(edgekit_count(bundle, side));
  for (size_t i = 0; i < tensors.size(); i++) {
    edgekit_tensor_at(bundle, side, static_cast<int>(i), &tensors[i]);
    double count = 1;
    for (int d = 0; d < tensors[i].rank; d++) {
      if (tensors[i].shape[d] < 0) tensors[i].shape[d] = 1;
      count *= static_cast<double>(tensors[i].shape[d]);
    }
    if (count > 1e6) return false;
    const std::string dtype = tensors[i].dtype;
    size_t bytes = dtype.find("64") != std::string::npos   ? 8
                   : dtype.find("32") != std::string::npos ? 4
                   : dtype.find("16") != std::string::npos ? 2
                                                           : 1;
    zeros.emplace_back(static_cast<size_t>(count) + 1);
    tensors[i].bytes = zeros.back().data(), tensors[i].size_bytes = static_cast<size_t>(count) * bytes;
  }
  return true;
}

// Prepare pictures or pieces of a sound, and decode zeros for each.
static void answer_inputs(const edgekit_bundle* bundle, edgekit_preparation* preparation) {
  std::vector<edgekit_tensor> inputs, outputs;
  std::vector<std::vector<double>> zeros;
  if (!tensors_of(bundle, EDGEKIT_INPUTS, inputs, zeros) || !tensors_of(bundle, EDGEKIT_OUTPUTS, outputs, zeros))
    return;
  const std::vector<uint8_t> pixels(40 * 30 * 3, 200);
  const std::vector<float> samples(3000, 0.25f);
  edgekit_input given{};
  given.width = 30, given.height = 40, given.rate_hz = 11025, given.count = samples.size();
  bool is_decoded = true;
  for (int round = 0; round < 3; round++) {
    given.begins = round == 0, given.ends = round == 2;
    const edgekit_prepared* made = nullptr;
    for (int kind = EDGEKIT_PICTURE; !made && kind <= EDGEKIT_SOUND; kind++) {
      given.kind = kind;
      given.values = kind == EDGEKIT_PICTURE ? static_cast<const void*>(pixels.data()) : samples.data();
      made = edgekit_prepare(preparation, &given);
    }
    if (!made) return answer("prepared", false);
    for (int windows = 0; made && made->count && windows < 20; windows++) {
      edgekit_prediction* found =
          edgekit_decode(bundle, outputs.data(), static_cast<int>(outputs.size()), &made->placement);
      is_decoded = is_decoded && found;
      edgekit_free_prediction(found);
      edgekit_carry(preparation, outputs.data(), static_cast<int>(outputs.size()));
      made = edgekit_prepare(preparation, nullptr);
    }
  }
  answer("decode", is_decoded);
}

int main() {
  char path[4096];
  while (std::fgets(path, sizeof path, stdin)) {
    std::string name(path);
    name.pop_back();
    edgekit_bundle* bundle = edgekit_open(name.c_str());
    answer("open", bundle);
    if (bundle) {
      describe(bundle);
      answer("verify", edgekit_verify(bundle) == 0);
      edgekit_preparation* preparation = edgekit_begin(bundle);
      answer("prepare", preparation);
      if (preparation) answer_inputs(bundle, preparation);
      edgekit_end(preparation);
      if (edgekit_session* session = edgekit_start(bundle, nullptr, 0, nullptr)) edgekit_stop(session);
      edgekit_close(bundle);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}
