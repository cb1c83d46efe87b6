#include "image.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "float16.h"
#include "manifest.h"
#include "rows.h"

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

// Writes rows of the resized picture, and the margins around them, to the input.
template <class Word>
class Writer {
 public:
  Writer(const ImageInput& image, const Box& target, const int* order, unsigned char* out)
      : image_(image), target_(target), order_(order), out_(reinterpret_cast<Word*>(out)) {
    if (image.layout == "NCHW") step_ = 1, plane_ = static_cast<size_t>(image.width) * image.height;
    const Numbers numbers(image);
    for (int c = 0; c < image.channels; c++) {
      for (int pixel = 0; pixel < 256; pixel++) tables_[c][pixel] = static_cast<Word>(numbers.of[c][pixel]);
    }
    channels_.resize(static_cast<size_t>(target.width) * 3);
    for (int y = 0; y < image.height; y++) {
      const bool is_inside = y >= target.top && y < target.top + target.height;
      fill_margin(y, 0, is_inside ? target.left : image.width);
      if (is_inside) fill_margin(y, target.left + target.width, image.width);
    }
  }

  void row(int y, const uint8_t* pixels) {
    const size_t count = target_.width;
    if (step_ == 1 && image_.channels == 3) {
      uint8_t* planes[3];
      for (int c = 0; c < 3; c++) planes[order_[c]] = channels_.data() + c * count;
      split_channels(pixels, count, planes);
      for (int c = 0; c < 3; c++) convert(channels_.data() + c * count, count, c, at(y, c));
    } else if (step_ == 1) {
      convert(pixels, count, 0, at(y, 0));
    } else if (order_[0] == 0 && sizeof(Word) == 1 && image_.plain()) {
      std::memcpy(at(y, 0), pixels, count * step_);
    } else {
      Word* to = at(y, 0);
      for (size_t x = 0; x < count; x++, pixels += step_) {
        for (size_t c = 0; c < step_; c++) *to++ = tables_[c][pixels[order_[c]]];
      }
    }
  }

 private:
  Word* at(int y, int c) const {
    return out_ + c * plane_ + (static_cast<size_t>(y) * image_.width + target_.left) * step_;
  }

  void fill_margin(int y, int from, int to) {
    for (int c = 0; c < image_.channels; c++) {
      Word* row = out_ + c * plane_ + static_cast<size_t>(y) * image_.width * step_;
      for (int x = from; x < to; x++) row[x * step_] = tables_[c][image_.pad];
    }
  }

  void convert(const uint8_t* values, size_t count, int c, Word* to) const {
    if (image_.dtype == "float32") {
      const bool plain = image_.plain();
      const float mean = plain ? 0 : static_cast<float>(image_.mean[c]),
                  std = plain ? 1 : static_cast<float>(image_.std[c]);
      return normalize_row(values, count, mean, std, reinterpret_cast<float*>(to));
    }
    for (size_t x = 0; x < count; x++) to[x] = tables_[c][values[x]];
  }

  const ImageInput& image_;
  Box target_;
  const int* order_;
  Word* out_;
  size_t step_ = static_cast<size_t>(image_.channels), plane_ = 1;
  Word tables_[3][256];
  std::vector<uint8_t> channels_;  // of one row
};

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
  const Layout layout = layout_of(image, given.width, given.height);
  const Box& used = layout.used;
  const Target& target = layout.target;
  Axis x{used.width, target.width, std::max<int64_t>(0, -target.left),
         static_cast<int>(std::min<int64_t>(target.width, image.width))};
  Axis y{used.height, target.height, std::max<int64_t>(0, -target.top),
         static_cast<int>(std::min<int64_t>(target.height, image.height))};
  Box place{static_cast<int>(std::max<int64_t>(0, target.left)),
            static_cast<int>(std::max<int64_t>(0, target.top)), x.length, y.length};
  auto write = [&](auto word) {
    Writer<decltype(word)> writer(image, place, order, out);
    resize_picture(picture, used.left, used.top, x, y, image.interpolation == "cubic", image.antialias,
                   [&](int row, const uint8_t* pixels) { writer.row(place.top + row, pixels); });
  };
  switch (element_bytes(image.dtype)) {
    case 1:
      return write(uint8_t{});
    case 2:
      return write(uint16_t{});
    case 4:
      return write(uint32_t{});
    default:
      return write(uint64_t{});
  }
}

}  // namespace edgekit
