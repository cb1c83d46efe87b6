// Run the model of a bundle on a picture, a binary PPM:
//
//     app model.edgekit libonnxruntime.so.1.32.0 street.ppm
#include <edgekit.h>

#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Free {
  void operator()(edgekit_bundle* bundle) const { edgekit_close(bundle); }
  void operator()(edgekit_session* session) const { edgekit_stop(session); }
  void operator()(edgekit_prediction* prediction) const { edgekit_free_prediction(prediction); }
};
template <class Type>
using Owned = std::unique_ptr<Type, Free>;

template <class Pointer>
Pointer checked(Pointer result) {
  if (!result) throw std::runtime_error(edgekit_error());
  return result;
}

struct Picture {
  int width = 0, height = 0;
  std::vector<uint8_t> pixels;  // height x width x 3, red, green, blue
};

Picture read_ppm(const char* path) {
  Picture picture;
  std::string magic;
  int largest = 0;
  std::ifstream file(path, std::ios::binary);
  file >> magic >> picture.width >> picture.height >> largest;
  file.get();
  if (!file || magic != "P6" || largest != 255 || picture.width < 1 || picture.height < 1 ||
      picture.width > 32768 || picture.height > 32768) {
    throw std::runtime_error(std::string(path) + " is not a binary PPM of 8 bits (magick a.jpg a.ppm makes one)");
  }
  picture.pixels.resize(size_t{3} * picture.width * picture.height);
  file.read(reinterpret_cast<char*>(picture.pixels.data()), static_cast<std::streamsize>(picture.pixels.size()));
  if (!file) throw std::runtime_error(std::string(path) + " is cut off");
  return picture;
}

void run(const char* path, const char* library, const char* photo) {
  Owned<edgekit_bundle> bundle(checked(edgekit_open(path)));
  const edgekit_engine* engine = checked(edgekit_adapter("ort", library));
  Owned<edgekit_session> session(checked(edgekit_start(bundle.get(), &engine, 1, nullptr)));

  const Picture picture = read_ppm(photo);
  edgekit_input input{};
  input.kind = EDGEKIT_PICTURE, input.values = picture.pixels.data();
  input.width = picture.width, input.height = picture.height, input.order = EDGEKIT_RGB;
  Owned<edgekit_prediction> prediction(
      checked(edgekit_predict(session.get(), &input)));
  std::cerr << "runs " << edgekit_active(session.get()) << '\n';
  edgekit_fallback fallback;
  for (int i = 0; edgekit_fallback_at(session.get(), i, &fallback) == 0; i++) {
    std::cerr << fallback.from << " -> " << fallback.to << ": " << fallback.reason << '\n';
  }
  for (size_t i = 0; i < prediction->count; i++) {
    const edgekit_item& item = prediction->items[i];
    std::cout << item.index << '\t' << item.label << '\t' << item.score;
    for (float corner : item.box) std::cout << '\t' << corner;
    std::cout << '\n';
  }
}

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: " << argv[0] << " MODEL.edgekit LIBONNXRUNTIME PICTURE.ppm\n";
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3]);
  } catch (const std::exception& problem) {
    std::cerr << problem.what() << '\n';
    return 1;
  }
  return 0;
}
