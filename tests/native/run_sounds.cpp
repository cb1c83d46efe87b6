// Listens to the sounds 0.sound, 1.sound ... of a folder by the cards of 0.edgekit ... and writes the windows to
// 0.windows ..., or the refusal to 0.refused. tests/native/sounds.py writes and reads the files.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bundle.h"
#include "refusal.h"
#include "sound.h"

static std::vector<char> content(const std::string& path) {
  std::vector<char> bytes;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  for (int c; file && (c = std::fgetc(file)) != EOF;) bytes.push_back(static_cast<char>(c));
  if (file) std::fclose(file);
  return bytes;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  for (int i = 0; i < std::atoi(argv[2]); i++) {
    const std::string stem = std::string(argv[1]) + "/" + std::to_string(i);
    const auto bytes = content(stem + ".sound");
    int32_t head[2];  // rate, samples of a piece
    if (bytes.size() < sizeof head) return 1;
    std::memcpy(head, bytes.data(), sizeof head);
    std::vector<float> samples((bytes.size() - sizeof head) / sizeof(float));
    std::memcpy(samples.data(), bytes.data() + sizeof head, samples.size() * sizeof(float));
    try {
      const edgekit::Bundle bundle(stem + ".edgekit");
      edgekit::Listener listener(bundle.card(), head[0]);
      std::vector<unsigned char> input(listener.bytes());
      std::FILE* file = std::fopen((stem + ".windows").c_str(), "wb");
      if (!file) return 1;
      for (size_t at = 0; at < samples.size(); at += head[1]) {
        listener.add(samples.data() + at, std::min<size_t>(head[1], samples.size() - at));
        while (listener.has_window()) {
          double span_s[2];
          listener.window(input.data(), span_s, span_s + 1);
          std::fwrite(span_s, sizeof span_s, 1, file);
          std::fwrite(input.data(), 1, input.size(), file);
        }
      }
      std::fclose(file);
    } catch (const edgekit::Refusal& problem) {
      std::FILE* file = std::fopen((stem + ".refused").c_str(), "wb");
      if (!file) return 1;
      std::fputs(problem.what(), file);
      std::fclose(file);
    }
  }
}
