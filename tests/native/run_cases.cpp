// Prepares and decodes the cases 0.edgekit, 1.edgekit ... of a folder and
// writes 0.answer ...: for processors and systems that do not load the library
// into Python. tests/native/case_files.py writes and reads the files.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "edgekit.h"

static std::vector<unsigned char> content(const std::string& path) {
  std::vector<unsigned char> bytes;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) return bytes;
  for (int c; (c = std::fgetc(file)) != EOF;) bytes.push_back(static_cast<unsigned char>(c));
  std::fclose(file);
  return bytes;
}

template <class Number>
static void put(std::FILE* file, Number number) {
  std::fwrite(&number, sizeof number, 1, file);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  for (int i = 0; i < std::atoi(argv[2]); i++) {
    const std::string stem = std::string(argv[1]) + "/" + std::to_string(i);
    edgekit_bundle* bundle = edgekit_open((stem + ".edgekit").c_str());
    auto frame = content(stem + ".frame"), output = content(stem + ".output");
    int head[3];
    edgekit_tensor tensor;
    edgekit_preparation* preparation = edgekit_begin(bundle);
    if (!preparation || frame.size() < sizeof head || edgekit_tensor_at(bundle, EDGEKIT_OUTPUTS, 0, &tensor)) {
      std::fprintf(stderr, "%d: %s\n", i, edgekit_error());
      return 1;
    }
    std::memcpy(head, frame.data(), sizeof head);  // width, height, order
    const unsigned char* pixels = frame.data() + sizeof head;
    edgekit_input picture{};
    picture.kind = EDGEKIT_PICTURE, picture.values = pixels;
    picture.width = head[0], picture.height = head[1], picture.order = head[2];
    const edgekit_prepared* made = edgekit_prepare(preparation, &picture);
    tensor.bytes = output.data(), tensor.size_bytes = output.size();
    edgekit_prediction* found = made ? edgekit_decode(bundle, &tensor, 1, &made->placement) : nullptr;
    if (!found) {
      std::fprintf(stderr, "%d: %s\n", i, edgekit_error());
      return 1;
    }
    std::FILE* file = std::fopen((stem + ".answer").c_str(), "wb");
    const edgekit_placement& placed = made->placement;
    put(file, static_cast<int64_t>(made->inputs[0].size_bytes));
    std::fwrite(made->inputs[0].bytes, 1, made->inputs[0].size_bytes, file);
    for (int side : {placed.frame_width, placed.frame_height, placed.input_width, placed.input_height})
      put(file, side);
    for (double number : {placed.scale_x, placed.scale_y, placed.offset_x, placed.offset_y})
      put(file, number);
    put(file, static_cast<int64_t>(found->count));
    for (size_t k = 0; k < found->count; k++) {
      const edgekit_item& item = found->items[k];
      put(file, item.index);
      put(file, item.score);
      std::fwrite(item.box, sizeof item.box, 1, file);
      put(file, static_cast<int64_t>(std::strlen(item.label)));
      std::fwrite(item.label, 1, std::strlen(item.label), file);
    }
    std::fclose(file);
    edgekit_free_prediction(found);
    edgekit_end(preparation);
    edgekit_close(bundle);
  }
  return 0;
}
