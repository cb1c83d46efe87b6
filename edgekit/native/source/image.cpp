#include "image.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "float16.h"
#include "manifest.h"

namespace edgekit {
namespace {

// A side of a picture before a crop may be longer than an int.
struct Target {
  int64_t left, top, width, height;
};

struct Layout {
  Box used;
  Target target;
};

Layout layout_of(const ImageInput& image, int width, int height) {
  Box whole{0, 0, width, height};
  Target full{0, 0, image.width, image.height};
  int64_t w = width, h = height;
  if (image.resize == "stretch") return {whole, full};
  if (image.resize == "center-crop") {  // the largest part of the input's proportions, times crop
    double across = std::min<double>(width, static_cast<double>(h * image.width) / image.height);
    double down = std::min<double>(height, static_cast<double>(w * image.height) / image.width);
    int used_width = std::max(1, static_cast<int>(image.crop * across));
    int used_height = std::max(1, static_cast<int>(image.crop * down));
    return {{(width - used_width) / 2, (height - used_height) / 2, used_width, used_height}, full};
  }
  if (image.resize == "resize-crop") {  // the shorter side by crop, the longer one rounded down
    int64_t side = image.shorter_side(), shorter = std::min(w, h);
    int64_t whole_width = side * w / shorter, whole_height = side * h / shorter;
    int64_t left = whole_width - image.width, top = whole_height - image.height;
    if (image.rounding == "nearest") {
      left = static_cast<int64_t>(std::nearbyint(static_cast<double>(left) / 2));
      top = static_cast<int64_t>(std::nearbyint(static_cast<double>(top) / 2));
    } else {
      left /= 2, top /= 2;
    }
    return {whole, {-left, -top, whole_width, whole_height}};
  }
  if (image.resize == "fit-height") {
    int64_t fit = (w * image.height + height - 1) / height;
    return {whole, {0, 0, std::min<int64_t>(image.width, fit), image.height}};
  }
  int64_t fit_width, fit_height;
  if (image.rounding == "nearest") {
    double gain =
        std::min(static_cast<double>(image.height) / height, static_cast<double>(image.width) / width);
    fit_width = std::max<int64_t>(1, static_cast<int64_t>(std::nearbyint(width * gain)));
    fit_height = std::max<int64_t>(1, static_cast<int64_t>(std::nearbyint(height * gain)));
  } else if (image.width * h <= image.height * w) {
    fit_width = image.width, fit_height = std::max<int64_t>(1, h * image.width / width);
  } else {
    fit_width = std::max<int64_t>(1, w * image.height / height), fit_height = image.height;
  }
  bool centred = image.place == "center";
  int64_t left = centred ? (image.width - fit_width) / 2 : 0;
  int64_t top = centred ? (image.height - fit_height) / 2 : 0;
  return {whole, {left, top, fit_width, fit_height}};
}

float held(float value, float low, float high) {
  value = std::nearbyint(value);
  return value > low ? value < high ? value : high : low;
}

// One value of each channel and pixel, in the input's dtype, as its bytes.
struct Numbers {
  uint64_t of[3][256];

  explicit Numbers(const ImageInput& image) {
    for (int c = 0; c < image.channels; c++) {
      float mean = static_cast<float>(image.mean[c]), std = static_cast<float>(image.std[c]);
      for (int pixel = 0; pixel < 256; pixel++) {
        float value = static_cast<float>(pixel);
        if (!image.plain()) value = (value - mean) / std;
        of[c][pixel] = bits(image.dtype, value);
      }
    }
  }

  static uint64_t bits(const std::string& dtype, float value) {
    auto of = [](auto number) {
      uint64_t bits = 0;
      std::memcpy(&bits, &number, sizeof number);
      return bits;
    };
    if (dtype == "float32") return of(value);
    if (dtype == "float16") return of(float16_of(value));
    if (dtype == "uint8") return of(static_cast<uint8_t>(held(value, 0, 255)));
    if (dtype == "int8") return of(static_cast<int8_t>(held(value, -128, 127)));
    if (dtype == "uint16") return of(static_cast<uint16_t>(held(value, 0, 65535)));
    if (dtype == "int16") return of(static_cast<int16_t>(held(value, -32768, 32767)));
    if (dtype == "int32") return of(static_cast<int32_t>(held(value, -2147483648.0f, 2147483520.0f)));
    return of(static_cast<int64_t>(held(value, -9223372036854775808.0f, 9223371487098961920.0f)));
  }
};

template <class Word>
void fill(const ImageInput& image, const std::vector<uint8_t>& pixels, const Box& target, const int* order,
          Word* out) {
  const Numbers numbers(image);
  int channels = image.channels;
  size_t step = image.layout == "NCHW" ? 1 : channels;
  size_t plane = image.layout == "NCHW" ? static_cast<size_t>(image.width) * image.height : 1;
  for (int c = 0; c < channels; c++) {
    Word table[256];
    for (int pixel = 0; pixel < 256; pixel++) table[pixel] = static_cast<Word>(numbers.of[c][pixel]);
    Word margin = table[image.pad];
    for (int y = 0; y < image.height; y++) {
      Word* row = out + c * plane + static_cast<size_t>(y) * image.width * step;
      bool inside = y >= target.top && y < target.top + target.height;
      if (!inside) {
        for (int x = 0; x < image.width; x++) row[x * step] = margin;
        continue;
      }
      const uint8_t* source =
          pixels.data() + static_cast<size_t>(y - target.top) * target.width * channels + order[c];
      for (int x = 0; x < target.left; x++) row[x * step] = margin;
      for (int x = 0; x < target.width; x++)
        row[(target.left + x) * step] = table[source[static_cast<size_t>(x) * channels]];
      for (int x = target.left + target.width; x < image.width; x++) row[x * step] = margin;
    }
  }
}

}  // namespace

edgekit_placement place_image(const ImageInput& image, int width, int height) {
  auto [used, target] = layout_of(image, width, height);
  double scale_x = static_cast<double>(target.width) / used.width,
         scale_y = static_cast<double>(target.height) / used.height;
  double left = static_cast<double>(target.left), top = static_cast<double>(target.top);
  return {width,
          height,
          image.width,
          image.height,
          scale_x,
          scale_y,
          left - used.left * scale_x,
          top - used.top * scale_y};
}

void prepare_image(const ImageInput& image, const Picture& given, bool is_bgr, unsigned char* out) {
  Picture picture = given;
  std::vector<uint8_t> grey;
  int order[3] = {0, 1, 2};
  if (image.colour == "GREY") {
    grey = grey_picture(given, is_bgr);
    picture = {grey.data(), given.width, given.height, 1};
  } else if ((image.colour == "BGR") != is_bgr) {
    order[0] = 2, order[2] = 0;
  }
  auto [used, target] = layout_of(image, given.width, given.height);
  Axis x{used.width, target.width, std::max<int64_t>(0, -target.left),
         static_cast<int>(std::min<int64_t>(target.width, image.width))};
  Axis y{used.height, target.height, std::max<int64_t>(0, -target.top),
         static_cast<int>(std::min<int64_t>(target.height, image.height))};
  auto pixels =
      resize_picture(picture, used.left, used.top, x, y, image.interpolation == "cubic", image.antialias);
  Box place{static_cast<int>(std::max<int64_t>(0, target.left)),
            static_cast<int>(std::max<int64_t>(0, target.top)), x.length, y.length};
  switch (element_bytes(image.dtype)) {
    case 1:
      return fill(image, pixels, place, order, out);
    case 2:
      return fill(image, pixels, place, order, reinterpret_cast<uint16_t*>(out));
    case 4:
      return fill(image, pixels, place, order, reinterpret_cast<uint32_t*>(out));
    default:
      return fill(image, pixels, place, order, reinterpret_cast<uint64_t*>(out));
  }
}

}  // namespace edgekit
