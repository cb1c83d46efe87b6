// numpy's sum of float32 or float64 (its order decides the rounding).
#pragma once
#include <algorithm>
#include <cstddef>

namespace edgekit {

// Add eight partial sums in blocks of 128, and halves of what is longer.
template <typename T>
T pairwise_sum(const T* values, size_t count) {
  if (count < 8) {
    T sum = 0;
    for (size_t i = 0; i < count; i++) sum += values[i];
    return sum;
  }
  if (count > 128) {
    size_t half = count / 2;
    half -= half % 8;
    return pairwise_sum(values, half) + pairwise_sum(values + half, count - half);
  }
  T r[8];
  std::copy_n(values, 8, r);
  size_t i = 8;
  for (; i < count - count % 8; i += 8) {
    for (size_t k = 0; k < 8; k++) r[k] += values[i + k];
  }
  T sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < count; i++) sum += values[i];
  return sum;
}

}  // namespace edgekit
