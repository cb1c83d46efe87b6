// Starts a session of each bundle whose path is on standard input, by the adapters of the engines in argv: pairs
// of a target and its library. Answers a line for each. For the sanitizers: a fault ends the process.
#include <cstdio>
#include <string>
#include <vector>

#include "edgekit.h"

// Describe the inputs with zeros, within a limit; false if one is large or has no size.
static bool zeros_of(const edgekit_bundle* bundle, std::vector<edgekit_tensor>& tensors,
                     std::vector<std::vector<double>>& zeros) {
  tensors.resize(edgekit_count(bundle, EDGEKIT_INPUTS));
  for (size_t i = 0; i < tensors.size(); i++) {
    edgekit_tensor_at(bundle, EDGEKIT_INPUTS, static_cast<int>(i), &tensors[i]);
    double count = 1;
    for (int d = 0; d < tensors[i].rank; d++) count *= static_cast<double>(tensors[i].shape[d]);
    if (count < 0 || count > 1e6) return false;
    const std::string dtype = tensors[i].dtype;
    size_t bytes = 1;
    if (dtype.find("16") != std::string::npos) bytes = 2;
    if (dtype.find("32") != std::string::npos) bytes = 4;
    if (dtype.find("64") != std::string::npos) bytes = 8;
    zeros.emplace_back(static_cast<size_t>(count) + 1);
    tensors[i].bytes = zeros.back().data(), tensors[i].size_bytes = static_cast<size_t>(count) * bytes;
  }
  return true;
}

static void run(const edgekit_bundle* bundle, const std::vector<const edgekit_engine*>& engines,
                const char* variant) {
  edgekit_options options{};
  options.variant = variant;
  edgekit_session* session = edgekit_start(bundle, engines.data(), static_cast<int>(engines.size()), &options);
  std::printf("%s\t", session ? "started" : "refused");
  if (!session) return;
  std::vector<edgekit_tensor> inputs;
  std::vector<std::vector<double>> zeros;
  const edgekit_tensor* outputs = nullptr;
  unsigned sum = 0;
  for (int round = 0; round < 2 && zeros_of(bundle, inputs, zeros); round++) {
    if (edgekit_run(session, inputs.data(), static_cast<int>(inputs.size()), &outputs)) break;
    for (int i = 0; i < edgekit_count(bundle, EDGEKIT_OUTPUTS); i++) {
      const auto* bytes = static_cast<const unsigned char*>(outputs[i].bytes);
      for (size_t k = 0; k < outputs[i].size_bytes; k++) sum += bytes[k];
    }
    std::printf("ran\t");
  }
  edgekit_stop(session);
}

int main(int argc, char** argv) {
  std::vector<const edgekit_engine*> engines;
  for (int i = 1; i + 1 < argc; i += 2) {
    engines.push_back(edgekit_adapter(argv[i], argv[i + 1]));
    if (!engines.back()) {
      std::fprintf(stderr, "%s\n", edgekit_error());
      return 2;
    }
  }
  char path[4096];
  while (std::fgets(path, sizeof path, stdin)) {
    std::string name(path);
    name.pop_back();
    if (edgekit_bundle* bundle = edgekit_open(name.c_str())) {
      std::vector<std::string> names;
      edgekit_variant variant;
      for (int v = 0; edgekit_variant_at(bundle, v, &variant) == 0; v++) names.push_back(variant.name);
      for (const std::string& one : names) run(bundle, engines, one.c_str());
      edgekit_close(bundle);
    } else {
      std::printf("closed\t");
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}
