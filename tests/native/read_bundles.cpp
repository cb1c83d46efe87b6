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
  std::string texts = edgekit_digest(bundle) + std::string(edgekit_manifest(bundle, &size));
  if (const char* card = edgekit_card(bundle, &size)) texts.append(card, size);
}

// Zeros for all outputs that are small, decoded by the card.
static bool decode(const edgekit_bundle* bundle, const edgekit_placement& placed) {
  std::vector<edgekit_tensor> outputs(edgekit_count(bundle, EDGEKIT_OUTPUTS));
  std::vector<std::vector<double>> zeros;
  for (size_t i = 0; i < outputs.size(); i++) {
    edgekit_tensor_at(bundle, EDGEKIT_OUTPUTS, static_cast<int>(i), &outputs[i]);
    double count = 1;
    for (int d = 0; d < outputs[i].rank; d++) {
      if (outputs[i].shape[d] < 0) outputs[i].shape[d] = 1;
      count *= static_cast<double>(outputs[i].shape[d]);
    }
    if (count > 1e6) return true;
    const std::string dtype = outputs[i].dtype;
    size_t bytes = dtype.find("64") != std::string::npos   ? 8
                   : dtype.find("32") != std::string::npos ? 4
                   : dtype.find("16") != std::string::npos ? 2
                                                           : 1;
    zeros.emplace_back(static_cast<size_t>(count) + 1);
    outputs[i].bytes = zeros.back().data(), outputs[i].size_bytes = static_cast<size_t>(count) * bytes;
  }
  edgekit_prediction* found =
      edgekit_decode(bundle, outputs.data(), static_cast<int>(outputs.size()), &placed);
  edgekit_free_prediction(found);
  return found != nullptr;
}

int main() {
  char path[4096];
  std::vector<uint8_t> pixels(40 * 30 * 3, 200);
  while (std::fgets(path, sizeof path, stdin)) {
    std::string name(path);
    name.pop_back();
    edgekit_bundle* bundle = edgekit_open(name.c_str());
    answer("open", bundle);
    if (bundle) {
      describe(bundle);
      answer("verify", edgekit_verify(bundle) == 0);
      edgekit_placement placed;
      int64_t size = edgekit_prepare(bundle, pixels.data(), 30, 40, EDGEKIT_RGB, nullptr, 0, &placed);
      answer("prepare", size >= 0);
      if (size >= 0 && size < 64 << 20) {
        std::vector<char> input(static_cast<size_t>(size));
        edgekit_prepare(bundle, pixels.data(), 30, 40, EDGEKIT_RGB, input.data(), input.size(), &placed);
        answer("decode", decode(bundle, placed));
      }
      if (edgekit_session* session = edgekit_start(bundle, nullptr, 0, nullptr)) edgekit_stop(session);
      edgekit_close(bundle);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}
