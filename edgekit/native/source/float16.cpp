#include "float16.h"

#include <cmath>
#include <cstring>

namespace edgekit {

uint16_t float16_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  bits &= 0x7FFFFFFF;
  if (bits > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);   // NaN
  if (bits >= 0x47800000) return static_cast<uint16_t>(sign | 0x7C00);  // 2^16 and above
  if (bits < 0x33000000) return sign;                                   // below half of the least float16
  if (bits < 0x38800000) {                                              // below 2^-14: without a leading one
    uint32_t mantissa = (bits & 0x7FFFFF) | 0x800000, shift = 126 - (bits >> 23);
    uint32_t half = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), middle = 1u << (shift - 1);
    return static_cast<uint16_t>(sign | (half + (rest > middle || (rest == middle && (half & 1)))));
  }
  uint32_t rounded = bits - 0x38000000 + 0xFFF + (bits >> 13 & 1);
  return static_cast<uint16_t>(sign | rounded >> 13);  // beyond 65504 it carries into infinity
}

float float_of(uint16_t half) {
  int exponent = half >> 10 & 31, mantissa = half & 1023;
  float value;
  if (exponent == 31)
    value = mantissa ? NAN : INFINITY;
  else
    value = exponent ? std::ldexp(1024.0f + mantissa, exponent - 25)
                     : std::ldexp(static_cast<float>(mantissa), -24);
  return half & 0x8000 ? -value : value;
}

}  // namespace edgekit
