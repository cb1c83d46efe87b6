#include "rows.h"

#include <cmath>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

// A function f that calls f_loop, compiled for AVX2 too where the processor is asked at run time.
#if defined(__x86_64__)
#define FOR_ROWS(name, parameters, arguments)                                                   \
  __attribute__((target("avx2"))) static void name##_wide parameters { name##_loop arguments; } \
  void name parameters { has_avx2() ? name##_wide arguments : name##_loop arguments; }
#else
#define FOR_ROWS(name, parameters, arguments) \
  void name parameters { name##_loop arguments; }
#endif
#define LOOP static inline __attribute__((always_inline)) void

namespace edgekit {

#if defined(__x86_64__)
// Whether the processor has AVX2 and the system keeps its registers. zig's library has no working
// __builtin_cpu_supports.
static bool has_avx2() {
  static const bool has = [] {
    unsigned a, b, c, d, kept, unused;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
    __asm__("xgetbv" : "=a"(kept), "=d"(unused) : "c"(0));
    return (kept & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
  }();
  return has;
}
#endif

typedef int32_t Int4 __attribute__((vector_size(16)));

// Return the four channels from a pixel on; the last one is of the next pixel.
static inline __attribute__((always_inline)) Int4 channels_at(const uint8_t* pixel) {
#if defined(__SSE2__)
  int32_t bytes;
  std::memcpy(&bytes, pixel, sizeof bytes);
  const __m128i zero = _mm_setzero_si128(), words = _mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), zero);
  return (Int4)_mm_unpacklo_epi16(words, zero);
#else
  typedef uint8_t Byte4 __attribute__((vector_size(4)));
  Byte4 bytes;
  std::memcpy(&bytes, pixel, sizeof bytes);
  return __builtin_convertvector(bytes, Int4);
#endif
}

LOOP blend_across_loop(const uint8_t* row, const Pair* pairs, size_t count, uint16_t* out) {
  for (size_t x = 0; x < count; x++, out += 3) {
    const uint8_t* pixel = row + pairs[x].byte;
#if defined(__SSE2__)
    const __m128i wide =
        _mm_unpacklo_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(pixel)), _mm_setzero_si128());
    int32_t weights;
    std::memcpy(&weights, &pairs[x].left, sizeof weights);
    const __m128i both = _mm_unpacklo_epi16(wide, _mm_srli_si128(wide, 6));
    const __m128i sums = _mm_srli_epi32(_mm_madd_epi16(both, _mm_set1_epi32(weights)), 4);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm_packs_epi32(sums, sums));
#else
    const Int4 sums = (channels_at(pixel) * pairs[x].left + channels_at(pixel + 3) * pairs[x].right) >> 4;
    typedef uint16_t Short4 __attribute__((vector_size(8)));
    const Short4 narrow = __builtin_convertvector(sums, Short4);
    std::memcpy(out, &narrow, sizeof narrow);
#endif
  }
}

LOOP blend_down_loop(const uint16_t* above, const uint16_t* below, uint16_t b0, uint16_t b1, size_t count,
                     uint8_t* out) {
  for (size_t k = 0; k < count; k++) {
    const uint16_t first = static_cast<uint16_t>(uint32_t{above[k]} * b0 >> 16);
    const uint16_t second = static_cast<uint16_t>(uint32_t{below[k]} * b1 >> 16);
    out[k] = static_cast<uint8_t>(static_cast<uint16_t>(first + second + 2) >> 2);
  }
}

static inline __attribute__((always_inline)) int32_t rounded(int32_t sum) {
  sum = (sum + (1 << (PILLOW_BITS - 1))) >> PILLOW_BITS;
  return sum < 0 ? 0 : sum > 255 ? 255 : sum;
}

LOOP sum_across_loop(const uint8_t* row, const int32_t* first, const int32_t* weights, int taps, size_t count,
                     uint8_t* out) {
  for (size_t x = 0; x < count; x++, weights += taps, out += 3) {
    Int4 sums = {0, 0, 0, 0};
    for (int tap = 0; tap < taps; tap++) sums += channels_at(row + first[x] + 3 * tap) * weights[tap];
#if defined(__SSE2__)
    const Int4 whole = (sums + (1 << (PILLOW_BITS - 1))) >> PILLOW_BITS;
    const __m128i words = _mm_packs_epi32((__m128i)whole, (__m128i)whole);
    const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    std::memcpy(out, &bytes, sizeof bytes);
#else
    for (int c = 0; c < 3; c++) out[c] = static_cast<uint8_t>(rounded(sums[c]));
#endif
  }
}

// A part of a row of a constant length, whose sums stay in registers; the last one overlaps the one before.
constexpr size_t PART = 64;

template <size_t size>
static inline __attribute__((always_inline)) void sum_part(const uint8_t* const* rows, const int32_t* weights,
                                                           int taps, size_t at, uint8_t* out) {
  int32_t sums[size] = {};
  for (int tap = 0; tap < taps; tap++) {
    const uint8_t* row = rows[tap] + at;
    for (size_t k = 0; k < size; k++) sums[k] += row[k] * weights[tap];
  }
  for (size_t k = 0; k < size; k++) out[at + k] = static_cast<uint8_t>(rounded(sums[k]));
}

LOOP sum_down_loop(const uint8_t* const* rows, const int32_t* weights, int taps, size_t count, uint8_t* out) {
  if (count < PART) {
    for (size_t at = 0; at < count; at++) sum_part<1>(rows, weights, taps, at, out);
    return;
  }
  for (size_t at = 0; at < count; at += PART)
    sum_part<PART>(rows, weights, taps, at + PART <= count ? at : count - PART, out);
}

LOOP split_channels_loop(const uint8_t* pixels, size_t count, uint8_t* const planes[3]) {
  uint8_t *a = planes[0], *b = planes[1], *c = planes[2];
  for (size_t x = 0; x < count; x++) {
    a[x] = pixels[3 * x];
    b[x] = pixels[3 * x + 1];
    c[x] = pixels[3 * x + 2];
  }
}

LOOP normalize_row_loop(const uint8_t* values, size_t count, float mean, float std, float* out) {
  for (size_t k = 0; k < count; k++) out[k] = (static_cast<float>(values[k]) - mean) / std;
}

// exp(x) = 2^n exp(r), |r| <= ln 2 / 2, by a series to r^13, in float64.
LOOP exponentials_loop(float* values, size_t count, float most) {
  constexpr double ROUNDING = 6755399441055744.0;  // 1.5 * 2^52: its sum with n has n as an integer
  for (size_t k = 0; k < count; k++) {
    double x = static_cast<double>(values[k] - most);
    x = x < -150 ? -150 : x > 100 ? 100 : x;  // beyond them float32 is 0 or infinite
    const double shifted = x * 1.4426950408889634 + ROUNDING, n = shifted - ROUNDING;
    const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double sum = 1.0 / 6227020800;
    sum = sum * r + 1.0 / 479001600;
    sum = sum * r + 1.0 / 39916800;
    sum = sum * r + 1.0 / 3628800;
    sum = sum * r + 1.0 / 362880;
    sum = sum * r + 1.0 / 40320;
    sum = sum * r + 1.0 / 5040;
    sum = sum * r + 1.0 / 720;
    sum = sum * r + 1.0 / 120;
    sum = sum * r + 1.0 / 24;
    sum = sum * r + 1.0 / 6;
    sum = sum * r + 0.5;
    sum = sum * r + 1.0;
    sum = sum * r + 1.0;
    uint64_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;  // 2^n
    double power;
    std::memcpy(&power, &bits, sizeof power);
    values[k] = static_cast<float>(sum * power);
  }
}

FOR_ROWS(blend_across, (const uint8_t* row, const Pair* pairs, size_t count, uint16_t* out),
         (row, pairs, count, out))
FOR_ROWS(blend_down,
         (const uint16_t* above, const uint16_t* below, uint16_t b0, uint16_t b1, size_t count, uint8_t* out),
         (above, below, b0, b1, count, out))
FOR_ROWS(sum_across,
         (const uint8_t* row, const int32_t* first, const int32_t* weights, int taps, size_t count,
          uint8_t* out),
         (row, first, weights, taps, count, out))
FOR_ROWS(sum_down, (const uint8_t* const* rows, const int32_t* weights, int taps, size_t count, uint8_t* out),
         (rows, weights, taps, count, out))
FOR_ROWS(split_channels, (const uint8_t* pixels, size_t count, uint8_t* const planes[3]),
         (pixels, count, planes))
FOR_ROWS(normalize_row, (const uint8_t* values, size_t count, float mean, float std, float* out),
         (values, count, mean, std, out))
FOR_ROWS(exponentials, (float* values, size_t count, float most), (values, count, most))
}  // namespace edgekit
