// Minimum time of a run through the session beside the engine's adapter alone, on the same input,
// interleaved.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "edgekit.h"

using Clock = std::chrono::steady_clock;

static double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

int main(int, char** argv) {
  edgekit_bundle* bundle = edgekit_open(argv[1]);
  const edgekit_engine* ort = edgekit_adapter("ort", argv[2]);
  const int rounds = std::stoi(argv[3]), width = 1280, height = 720;
  edgekit_options options{nullptr, 1, 1};
  edgekit_session* session = bundle && ort ? edgekit_start(bundle, &ort, 1, &options) : nullptr;
  if (!session) return std::fprintf(stderr, "%s\n", edgekit_error()), 1;
  edgekit_tensor input, output;
  edgekit_file file;
  edgekit_tensor_at(bundle, EDGEKIT_INPUTS, 0, &input);
  edgekit_tensor_at(bundle, EDGEKIT_OUTPUTS, 0, &output);
  edgekit_file_at(bundle, 0, 0, &file);
  std::vector<char> content(static_cast<size_t>(file.size_bytes));
  edgekit_read(bundle, file.entry, content.data(), content.size());
  std::vector<uint8_t> pixels(width * height * 3, 100);
  edgekit_preparation* preparation = edgekit_begin(bundle);
  edgekit_input picture{};
  picture.kind = EDGEKIT_PICTURE, picture.values = pixels.data();
  picture.width = width, picture.height = height, picture.order = EDGEKIT_RGB;
  const edgekit_prepared* prepared = edgekit_prepare(preparation, &picture);
  const void* bytes = content.data();
  size_t size = content.size();
  char error[1000];
  edgekit_model model{1, &file.name, &bytes, &size, 1, 1, &input, &output, "{}", 1};
  void* loaded = ort->load(ort->context, &model, error, sizeof error);
  if (!loaded) return std::fprintf(stderr, "%s\n", error), 1;
  double best[4] = {1e12, 1e12, 1e12, 1e12};
  input = prepared->inputs[0];
  for (int i = 0; i < rounds; i++) {
    auto start = Clock::now();
    edgekit_prepare(preparation, &picture);
    best[0] = std::min(best[0], us_since(start));
    start = Clock::now();
    ort->run(loaded, &input, 1, &output, 1, error, sizeof error);
    best[1] = std::min(best[1], us_since(start));
    const edgekit_tensor* outputs;
    start = Clock::now();
    edgekit_run(session, &input, 1, &outputs);
    best[2] = std::min(best[2], us_since(start));
    start = Clock::now();
    edgekit_free_prediction(edgekit_predict(session, &picture));
    best[3] = std::min(best[3], us_since(start));
  }
  std::printf("prepare %.1f us, engine %.1f us, edgekit_run %.1f us, edgekit_predict %.1f us\n", best[0],
              best[1], best[2], best[3]);
  ort->unload(loaded);
  edgekit_stop(session);
  edgekit_end(preparation);
  edgekit_close(bundle);
  return 0;
}
