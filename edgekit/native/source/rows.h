// Loops over the rows of a picture, which take most of the time of its preparation. On x86-64 they are
// compiled twice, also for AVX2; every result is the same bit for bit.
#pragma once
#include <cstddef>
#include <cstdint>

namespace edgekit {

constexpr int PILLOW_BITS = 22;
constexpr size_t ROW_PADDING = 8;  // readable bytes after a row of pixels, which the loops across load

// Two pixels of three channels beside each other, from a byte on, and their weights of 11 bits.
struct Pair {
  int32_t byte;
  int16_t left, right;
};

// Across, kept with 4 bits less than the weights have: out[x] = (pixel left + next right) >> 4. out: count *
// 3, and one value more may be written.
void blend_across(const uint8_t* row, const Pair* pairs, size_t count, uint16_t* out);

// Down: ((above b0 >> 16) + (below b1 >> 16) + 2) >> 2.
void blend_down(const uint16_t* above, const uint16_t* below, uint16_t b0, uint16_t b1, size_t count,
                uint8_t* out);

// Across with `taps` weights of 22 bits for each pixel of the result, from byte first[x] on, rounded. One
// byte more may be written.
void sum_across(const uint8_t* row, const int32_t* first, const int32_t* weights, int taps, size_t count,
                uint8_t* out);

// Down with `taps` rows, rounded.
void sum_down(const uint8_t* const* rows, const int32_t* weights, int taps, size_t count, uint8_t* out);

// Three channels of `count` pixels to a plane each.
void split_channels(const uint8_t* pixels, size_t count, uint8_t* const planes[3]);

// out = (value - mean) / std, in float32.
void normalize_row(const uint8_t* values, size_t count, float mean, float std, float* out);

// values = the exponential of (value - most), rounded to nearest but for one case in 10^7.
void exponentials(float* values, size_t count, float most);

}  // namespace edgekit
