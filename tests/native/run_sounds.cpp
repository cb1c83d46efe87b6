// Listens to the sounds 0.sound, 1.sound ... of a folder by the cards of 0.edgekit ... and writes the windows to
// 0.windows ..., or the refusal to 0.refused. tests/native/sounds.py writes and reads the files.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "edgekit.h"

static std::vector<char> content(const std::string& path) {
  std::vector<char> bytes;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  for (int c; file && (c = std::fgetc(file)) != EOF;) bytes.push_back(static_cast<char>(c));
  if (file) std::fclose(file);
  return bytes;
}

// Write all windows; false if one is refused.
static bool listen(edgekit_preparation* preparation, const std::vector<float>& samples, const int32_t head[3],
                   std::FILE* file) {
  edgekit_input input{};
  input.kind = EDGEKIT_SOUND, input.rate_hz = head[0], input.begins = 1;
  size_t at = 0;
  do {
    input.values = samples.data() + at;
    input.count = std::min<size_t>(head[1], samples.size() - at);
    at += input.count;
    input.ends = head[2] && at == samples.size();
    const edgekit_prepared* made = edgekit_prepare(preparation, &input);
    for (; made && made->count; made = edgekit_prepare(preparation, nullptr)) {
      std::fwrite(&made->start_s, sizeof(double), 1, file);
      std::fwrite(&made->end_s, sizeof(double), 1, file);
      std::fwrite(made->inputs[0].bytes, 1, made->inputs[0].size_bytes, file);
    }
    if (!made) return false;
    input.begins = 0;
  } while (at < samples.size());
  return true;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  for (int i = 0; i < std::atoi(argv[2]); i++) {
    const std::string stem = std::string(argv[1]) + "/" + std::to_string(i);
    const auto bytes = content(stem + ".sound");
    int32_t head[3];  // rate, samples of a piece, whether the sound ends
    if (bytes.size() < sizeof head) return 1;
    std::memcpy(head, bytes.data(), sizeof head);
    std::vector<float> samples((bytes.size() - sizeof head) / sizeof(float));
    std::memcpy(samples.data(), bytes.data() + sizeof head, samples.size() * sizeof(float));
    std::FILE* file = std::fopen((stem + ".windows").c_str(), "wb");
    edgekit_bundle* bundle = edgekit_open((stem + ".edgekit").c_str());
    if (!file || !bundle) return 1;
    edgekit_preparation* preparation = edgekit_begin(bundle);
    if (!preparation || !listen(preparation, samples, head, file)) {
      std::FILE* refused = std::fopen((stem + ".refused").c_str(), "wb");
      if (!refused) return 1;
      std::fputs(edgekit_error(), refused);
      std::fclose(refused);
    }
    std::fclose(file);
    edgekit_end(preparation);
    edgekit_close(bundle);
  }
}
