#include "resize.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "rows.h"

namespace edgekit {
namespace {

constexpr int CV_BITS = 11;

// Taps along one axis: for each pixel of the result `count` source pixels and their weights.
template <class Weight>
struct Taps {
  int count;
  std::vector<int> index;
  std::vector<Weight> weights;
};

int within(int64_t value, int high) { return static_cast<int>(std::clamp<int64_t>(value, 0, high)); }

float position_of(int i, const Axis& axis) {
  double scale = static_cast<double>(axis.source) / static_cast<double>(axis.size);
  return static_cast<float>((static_cast<double>(axis.start + i) + 0.5) * scale - 0.5);
}

// OpenCV's INTER_LINEAR, 11-bit weights. Across, the far tap outside of the picture weighs nothing; down,
// both taps are held at the edge.
Taps<uint32_t> linear_taps(const Axis& axis, bool zero_outside) {
  Taps<uint32_t> taps{2, {}, {}};
  const float one = 1 << CV_BITS;
  for (int i = 0; i < axis.length; i++) {
    float position = position_of(i, axis);
    int64_t first = static_cast<int64_t>(std::floor(position));
    float fraction = position - static_cast<float>(first);
    if (zero_outside && (first < 0 || first >= axis.source - 1)) fraction = 0;
    for (int tap = 0; tap < 2; tap++) {
      taps.index.push_back(within(first + tap, axis.source - 1));
      taps.weights.push_back(static_cast<uint32_t>(std::nearbyint((tap ? fraction : 1 - fraction) * one)));
    }
  }
  return taps;
}

// OpenCV's INTER_CUBIC: Keys' kernel with a = -0.75, in float32, weights of 11 bits.
Taps<int32_t> cubic_taps(const Axis& axis) {
  Taps<int32_t> taps{4, {}, {}};
  const float a = -0.75f;
  for (int i = 0; i < axis.length; i++) {
    float position = position_of(i, axis);
    int64_t first = static_cast<int64_t>(std::floor(position));
    float x = position - static_cast<float>(first), y = 1 - x;
    float before = ((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a;
    float left = ((a + 2) * x - (a + 3)) * x * x + 1;
    float right = ((a + 2) * y - (a + 3)) * y * y + 1;
    const float weights[4] = {before, left, right, 1 - before - left - right};
    for (int tap = 0; tap < 4; tap++) {
      taps.index.push_back(within(first + tap - 1, axis.source - 1));
      taps.weights.push_back(
          static_cast<int32_t>(std::nearbyint(weights[tap] * static_cast<float>(1 << CV_BITS))));
    }
  }
  return taps;
}

// Pillow's resampling, weights of 22 bits; the kernel is as wide as a pixel of the result.
Taps<int32_t> pillow_taps(const Axis& axis, bool cubic) {
  double scale = static_cast<double>(axis.source) / static_cast<double>(axis.size),
         wide = std::max(scale, 1.0), support = (cubic ? 2.0 : 1.0) * wide;
  Taps<int32_t> taps{static_cast<int>(std::ceil(support)) * 2 + 1, {}, {}};
  std::vector<double> weights(taps.count);
  for (int i = 0; i < axis.length; i++) {
    double centre = (static_cast<double>(axis.start + i) + 0.5) * scale, sum = 0;
    int64_t first = std::max<int64_t>(static_cast<int64_t>(centre - support + 0.5), 0);
    int64_t last = std::min<int64_t>(static_cast<int64_t>(centre + support + 0.5), axis.source);
    for (int tap = 0; tap < taps.count; tap++) {
      double x = std::fabs((static_cast<double>(first + tap) - centre + 0.5) * (1.0 / wide)), weight;
      if (!cubic) {
        weight = std::max(1.0 - x, 0.0);
      } else if (x < 1.0) {
        weight = ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1;
      } else {
        weight = x < 2.0 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0.0;
      }
      weights[tap] = first + tap < last ? weight : 0.0;
      sum += weights[tap];
    }
    for (int tap = 0; tap < taps.count; tap++) {
      double fixed = weights[tap] * (1.0 / sum) * (1 << PILLOW_BITS);
      taps.index.push_back(within(first + tap, axis.source - 1));
      taps.weights.push_back(static_cast<int32_t>(std::trunc(fixed + (fixed < 0 ? -0.5 : 0.5))));
    }
  }
  return taps;
}

const uint8_t* row_of(const Picture& picture, int left, int row) {
  return picture.pixels + (static_cast<size_t>(row) * picture.width + left) * picture.channels;
}

// The rows of a part of a picture. Loops across read bytes after a row, so that the last one is copied.
class Rows {
 public:
  Rows(const Picture& picture, int left, int top) : picture_(picture), left_(left), top_(top) {}

  const uint8_t* at(int row) {
    const uint8_t* pixels = row_of(picture_, left_, top_ + row);
    if (top_ + row + 1 < picture_.height) return pixels;
    if (last_.empty()) {
      const size_t size = static_cast<size_t>(picture_.width - left_) * picture_.channels;
      last_.assign(size + ROW_PADDING, 0);
      std::copy_n(pixels, size, last_.data());
    }
    return last_.data();
  }

 private:
  const Picture& picture_;
  int left_, top_;
  std::vector<uint8_t> last_;
};

// One row of any number of channels across: ((s0 a0 + s1 a1) >> 4).
void linear_across(const uint8_t* row, const Taps<uint32_t>& taps, int width, int channels, uint16_t* out) {
  for (int x = 0; x < width; x++) {
    const uint8_t *left = row + taps.index[2 * x] * channels, *right = row + taps.index[2 * x + 1] * channels;
    uint32_t a0 = taps.weights[2 * x], a1 = taps.weights[2 * x + 1];
    for (int c = 0; c < channels; c++) *out++ = static_cast<uint16_t>((left[c] * a0 + right[c] * a1) >> 4);
  }
}

// The same taps as pairs of pixels beside each other; a tap of weight 0 may be another pixel.
std::vector<Pair> pairs_of(const Taps<uint32_t>& taps, int source) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < taps.index.size(); i += 2) {
    const int first = std::min(taps.index[i], source - 2);
    const auto a0 = static_cast<int16_t>(taps.weights[i]), a1 = static_cast<int16_t>(taps.weights[i + 1]);
    const bool is_last = taps.index[i] != first;  // then both taps are the last pixel, and a1 is 0
    pairs.push_back({3 * first, is_last ? int16_t{0} : a0, is_last ? a0 : a1});
  }
  return pairs;
}

// (((h0 >> 4) b0 >> 16) + ((h1 >> 4) b1 >> 16) + 2) >> 2
void resize_linear(const Picture& picture, int left, int top, const Axis& across, const Axis& down,
                   const TakeRow& take) {
  auto x = linear_taps(across, true), y = linear_taps(down, false);
  const size_t columns = static_cast<size_t>(across.length) * picture.channels;
  const bool is_paired = picture.channels == 3 && across.source > 1;
  const std::vector<Pair> pairs = is_paired ? pairs_of(x, across.source) : std::vector<Pair>();
  std::vector<uint16_t> rows[2] = {std::vector<uint16_t>(columns + 1), std::vector<uint16_t>(columns + 1)};
  std::vector<uint8_t> out(columns + ROW_PADDING);
  Rows source(picture, left, top);
  int have[2] = {-1, -1};
  for (int i = 0; i < down.length; i++) {
    uint16_t* taken[2];
    for (int tap = 0; tap < 2; tap++) {
      int wanted = y.index[2 * i + tap],
          slot = wanted & 1;  // two rows that follow each other never share a slot
      taken[tap] = rows[slot].data();
      if (have[slot] == wanted) continue;
      have[slot] = wanted;
      if (is_paired)
        blend_across(source.at(wanted), pairs.data(), pairs.size(), taken[tap]);
      else
        linear_across(source.at(wanted), x, across.length, picture.channels, taken[tap]);
    }
    blend_down(taken[0], taken[1], static_cast<uint16_t>(y.weights[2 * i]),
               static_cast<uint16_t>(y.weights[2 * i + 1]), columns, out.data());
    take(i, out.data());
  }
}

// Rows of a resize with any number of taps: across, one after the other, for all rows that are needed.
template <class Number, class Across>
std::vector<Number> all_across(const Taps<int32_t>& y, size_t columns, int first, Across across) {
  const size_t rows = static_cast<size_t>(*std::max_element(y.index.begin(), y.index.end()) - first) + 1;
  std::vector<Number> made(memory_size(rows, columns, sizeof(Number)) / sizeof(Number) + 1);
  for (size_t row = 0; row < rows; row++) across(first + static_cast<int>(row), made.data() + row * columns);
  return made;
}

// One row across with any number of taps and channels.
template <class Store>
void taps_across(const uint8_t* row, const Taps<int32_t>& x, int width, int channels, Store store) {
  for (int i = 0; i < width; i++) {
    for (int c = 0; c < channels; c++) {
      int32_t sum = 0;
      for (int tap = 0; tap < x.count; tap++)
        sum += row[x.index[i * x.count + tap] * channels + c] * x.weights[i * x.count + tap];
      store(sum);
    }
  }
}

// Let the taps of each pixel lie beside each other within the row: those outside of it weigh nothing. Returns
// the first byte of each.
std::vector<int32_t> follow_each_other(Taps<int32_t>& x, int source) {
  std::vector<int32_t> bytes;
  for (size_t i = 0; i < x.index.size(); i += x.count) {
    const int first = std::min(x.index[i], source - x.count), shift = x.index[i] - first;
    std::rotate(&x.weights[i], &x.weights[i] + x.count - shift, &x.weights[i] + x.count);
    bytes.push_back(3 * first);
  }
  return bytes;
}

void resize_pillow(const Picture& picture, int left, int top, const Axis& x_axis, const Axis& y_axis,
                   bool cubic, const TakeRow& take) {
  auto x = pillow_taps(x_axis, cubic), y = pillow_taps(y_axis, cubic);
  const size_t columns = static_cast<size_t>(x_axis.length) * picture.channels;
  const int first_row = *std::min_element(y.index.begin(), y.index.end());
  const bool is_wide = picture.channels == 3 && x_axis.source >= x.count;
  const auto bytes = is_wide ? follow_each_other(x, x_axis.source) : std::vector<int32_t>();
  Rows source(picture, left, top);
  const auto across = all_across<uint8_t>(y, columns, first_row, [&](int row, uint8_t* out) {
    if (is_wide)
      return sum_across(source.at(row), bytes.data(), x.weights.data(), x.count, bytes.size(), out);
    taps_across(source.at(row), x, x_axis.length, picture.channels, [&](int32_t sum) {
      sum = (sum + (1 << (PILLOW_BITS - 1))) >> PILLOW_BITS;
      *out++ = static_cast<uint8_t>(std::clamp(sum, 0, 255));
    });
  });
  std::vector<const uint8_t*> rows(y.count);
  std::vector<uint8_t> out(columns);
  for (int i = 0; i < y_axis.length; i++) {
    for (int tap = 0; tap < y.count; tap++)
      rows[tap] = across.data() + (y.index[i * y.count + tap] - first_row) * columns;
    sum_down(rows.data(), &y.weights[i * y.count], y.count, columns, out.data());
    take(i, out.data());
  }
}

void resize_cubic(const Picture& picture, int left, int top, const Axis& x_axis, const Axis& y_axis,
                  const TakeRow& take) {
  const auto x = cubic_taps(x_axis), y = cubic_taps(y_axis);
  const size_t columns = static_cast<size_t>(x_axis.length) * picture.channels;
  const int first_row = *std::min_element(y.index.begin(), y.index.end());
  const auto across = all_across<int32_t>(y, columns, first_row, [&](int row, int32_t* out) {
    taps_across(row_of(picture, left, top + row), x, x_axis.length, picture.channels,
                [&](int32_t sum) { *out++ = sum; });
  });
  std::vector<double> reals(columns);
  std::vector<uint8_t> out(columns);
  for (int i = 0; i < y_axis.length; i++) {
    std::fill(reals.begin(), reals.end(), 0.0);
    for (int tap = 0; tap < y.count; tap++) {
      const int32_t* row = across.data() + (y.index[i * y.count + tap] - first_row) * columns;
      // numpy multiplies int32 by float32 in float64: every product is exact
      const double real = y.weights[i * y.count + tap] * (1.0 / (1 << 2 * CV_BITS));
      for (size_t k = 0; k < columns; k++) reals[k] += row[k] * real;
    }
    for (size_t k = 0; k < columns; k++)
      out[k] = static_cast<uint8_t>(std::clamp(std::nearbyint(reals[k]), 0.0, 255.0));
    take(i, out.data());
  }
}

}  // namespace

size_t memory_size(uint64_t rows, uint64_t columns, uint64_t bytes) {
  uint64_t count = rows * columns * bytes;  // sides of at most 2^16
  if (count > static_cast<uint64_t>(PTRDIFF_MAX)) throw std::bad_alloc();
  return static_cast<size_t>(count);
}

void resize_picture(const Picture& picture, int left, int top, const Axis& x, const Axis& y, bool cubic,
                    bool antialias, const TakeRow& take) {
  if (x.source == x.size && y.source == y.size) {
    const int first_column = left + static_cast<int>(x.start), first_row = top + static_cast<int>(y.start);
    for (int row = 0; row < y.length; row++) take(row, row_of(picture, first_column, first_row + row));
  } else if (antialias) {
    resize_pillow(picture, left, top, x, y, cubic, take);
  } else if (cubic) {
    resize_cubic(picture, left, top, x, y, take);
  } else {
    resize_linear(picture, left, top, x, y, take);
  }
}

std::vector<uint8_t> grey_picture(const Picture& picture, bool is_bgr) {
  size_t count = static_cast<size_t>(picture.width) * picture.height;
  std::vector<uint8_t> grey(count);
  int first = is_bgr ? 3735 : 9798, last = is_bgr ? 9798 : 3735;
  for (size_t i = 0; i < count; i++) {
    const uint8_t* pixel = picture.pixels + 3 * i;
    grey[i] = static_cast<uint8_t>((pixel[0] * first + pixel[1] * 19235 + pixel[2] * last + (1 << 14)) >> 15);
  }
  return grey;
}

}  // namespace edgekit
