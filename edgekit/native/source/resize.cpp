#include "resize.h"

#include <algorithm>
#include <cmath>
#include <new>

namespace edgekit {
namespace {

constexpr int CV_BITS = 11, PILLOW_BITS = 22;

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
  double scale = static_cast<double>(axis.source) / static_cast<double>(axis.size), wide = std::max(scale, 1.0),
         support = (cubic ? 2.0 : 1.0) * wide;
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

// One row across, kept with 4 bits less than its weights have: ((s0 a0 + s1 a1) >> 4).
void linear_across(const uint8_t* row, const Taps<uint32_t>& taps, int width, int channels, uint32_t* out) {
  for (int x = 0; x < width; x++) {
    const uint8_t *left = row + taps.index[2 * x] * channels, *right = row + taps.index[2 * x + 1] * channels;
    uint32_t a0 = taps.weights[2 * x], a1 = taps.weights[2 * x + 1];
    for (int c = 0; c < channels; c++) *out++ = (left[c] * a0 + right[c] * a1) >> 4;
  }
}

// (((h0 >> 4) b0 >> 16) + ((h1 >> 4) b1 >> 16) + 2) >> 2
void resize_linear(const Picture& picture, int left, int top, const Axis& across, const Axis& down,
                   uint8_t* out) {
  auto x = linear_taps(across, true), y = linear_taps(down, false);
  size_t columns = static_cast<size_t>(across.length) * picture.channels;
  std::vector<uint32_t> rows[2] = {std::vector<uint32_t>(columns), std::vector<uint32_t>(columns)};
  int have[2] = {-1, -1};
  for (int i = 0; i < down.length; i++) {
    uint32_t* taken[2];
    for (int tap = 0; tap < 2; tap++) {
      int wanted = y.index[2 * i + tap],
          slot = wanted & 1;  // two rows that follow each other never share a slot
      if (have[slot] != wanted) {
        linear_across(row_of(picture, left, top + wanted), x, across.length, picture.channels, rows[slot].data());
        have[slot] = wanted;
      }
      taken[tap] = rows[slot].data();
    }
    uint32_t b0 = y.weights[2 * i], b1 = y.weights[2 * i + 1];
    const uint32_t *above = taken[0], *below = taken[1];
    for (size_t k = 0; k < columns; k++)
      *out++ = static_cast<uint8_t>(((above[k] * b0 >> 16) + (below[k] * b1 >> 16) + 2) >> 2);
  }
}

int32_t pillow_rounded(int32_t sum) {
  return std::clamp((sum + (1 << (PILLOW_BITS - 1))) >> PILLOW_BITS, 0, 255);
}

// Any number of taps along both axes: the horizontal sums of all rows that are needed, then down.
void resize_taps(const Picture& picture, int left, int top, const Axis& x_axis, const Axis& y_axis, bool cubic,
                 bool pillow, uint8_t* out) {
  auto x = pillow ? pillow_taps(x_axis, cubic) : cubic_taps(x_axis);
  auto y = pillow ? pillow_taps(y_axis, cubic) : cubic_taps(y_axis);
  auto [low, high] = std::minmax_element(y.index.begin(), y.index.end());
  int first = *low, rows = *high - *low + 1, width = x_axis.length, height = y_axis.length;
  int channels = picture.channels;
  size_t columns = static_cast<size_t>(width) * channels;
  std::vector<int32_t> across(memory_size(rows, columns, sizeof(int32_t)) / sizeof(int32_t));
  for (int row = 0; row < rows; row++) {
    const uint8_t* source = row_of(picture, left, top + first + row);
    int32_t* sums = across.data() + row * columns;
    for (int i = 0; i < width; i++) {
      for (int c = 0; c < channels; c++, sums++) {
        int32_t sum = 0;
        for (int tap = 0; tap < x.count; tap++)
          sum += source[x.index[i * x.count + tap] * channels + c] * x.weights[i * x.count + tap];
        *sums = pillow ? pillow_rounded(sum) : sum;
      }
    }
  }
  std::vector<int32_t> sums(columns);
  std::vector<double> reals(columns);
  for (int i = 0; i < height; i++) {
    std::fill(sums.begin(), sums.end(), 0);
    std::fill(reals.begin(), reals.end(), 0.0);
    for (int tap = 0; tap < y.count; tap++) {
      const int32_t* row = across.data() + (y.index[i * y.count + tap] - first) * columns;
      int32_t weight = y.weights[i * y.count + tap];
      if (pillow) {
        for (size_t k = 0; k < columns; k++) sums[k] += row[k] * weight;
      } else {  // numpy multiplies int32 by float32 in float64: every product is exact
        double real = weight * (1.0 / (1 << 2 * CV_BITS));
        for (size_t k = 0; k < columns; k++) reals[k] += row[k] * real;
      }
    }
    for (size_t k = 0; k < columns; k++) {
      *out++ = static_cast<uint8_t>(pillow ? pillow_rounded(sums[k])
                                           : std::clamp(std::nearbyint(reals[k]), 0.0, 255.0));
    }
  }
}

}  // namespace

size_t memory_size(uint64_t rows, uint64_t columns, uint64_t bytes) {
  uint64_t count = rows * columns * bytes;  // sides of at most 2^16
  if (count > static_cast<uint64_t>(PTRDIFF_MAX)) throw std::bad_alloc();
  return static_cast<size_t>(count);
}

std::vector<uint8_t> resize_picture(const Picture& picture, int left, int top, const Axis& x, const Axis& y,
                                    bool cubic, bool antialias) {
  std::vector<uint8_t> result(memory_size(y.length, x.length, picture.channels));
  if (x.source == x.size && y.source == y.size) {
    size_t columns = static_cast<size_t>(x.length) * picture.channels;
    int first_column = left + static_cast<int>(x.start), first_row = top + static_cast<int>(y.start);
    for (int row = 0; row < y.length; row++)
      std::copy_n(row_of(picture, first_column, first_row + row), columns, result.data() + row * columns);
  } else if (cubic || antialias) {
    resize_taps(picture, left, top, x, y, cubic, antialias, result.data());
  } else {
    resize_linear(picture, left, top, x, y, result.data());
  }
  return result;
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
