// Run the model of a bundle on a picture, a binary PPM, with the libraries of one engine or several:
//
//     app model.edgekit libonnxruntime.so.1.32.0 street.ppm
//     app model.edgekit libLiteRt.so libonnxruntime.so.1.32.0 street.ppm
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

// Return the target of the variants that an engine's library runs, by the name of its file.
const char* target_of(const std::string& library) {
  const std::string name = library.substr(library.find_last_of("/\\") + 1);
  if (name.find("LiteRt") != std::string::npos) return "tflite";
  return name.find("openvino") != std::string::npos ? "openvino" : "ort";
}

void run(const char* path, const std::vector<const char*>& libraries, const char* photo) {
  Owned<edgekit_bundle> bundle(checked(edgekit_open(path)));
  std::vector<const edgekit_engine*> engines;
  for (const char* library : libraries) engines.push_back(checked(edgekit_adapter(target_of(library), library)));
  Owned<edgekit_session> session(
      checked(edgekit_start(bundle.get(), engines.data(), static_cast<int>(engines.size()), nullptr)));

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
  if (argc < 4) {
    std::cerr << "usage: " << argv[0] << " MODEL.edgekit LIBRARY... PICTURE.ppm\n";
    return 2;
  }
  try {
    run(argv[1], {argv + 2, argv + argc - 1}, argv[argc - 1]);
  } catch (const std::exception& problem) {
    std::cerr << problem.what() << '\n';
    return 1;
  }
  return 0;
}
