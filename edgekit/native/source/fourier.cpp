#include "fourier.h"

#include <cmath>
#include <cstddef>

namespace edgekit {

Fourier::Fourier(int size) : roots_(size), out_(size), scratch_(size) {
  for (int k = 0; k < size; k++) {
    double angle = 2 * PI * k / size;
    roots_[k] = {std::cos(angle), -std::sin(angle)};
  }
  size_t rest = size;
  for (size_t factor = 2; rest > 1; factor++) {
    if (factor * factor > rest) factor = rest;
    for (; rest % factor == 0; rest /= factor) factors_.push_back(factor);
  }
}

const std::vector<Fourier::Complex>& Fourier::transform(const std::vector<double>& values) {
  run(values.data(), 1, out_.size(), 0, out_.data());
  return out_;
}

// Transform `size` values, `step` apart: as many parts as the factor, each of every factor-th value.
void Fourier::run(const double* values, size_t step, size_t size, size_t factor, Complex* out) {
  if (size == 1) {
    *out = {*values, 0};
    return;
  }
  const size_t parts = factors_[factor], part = size / parts;
  for (size_t p = 0; p < parts; p++) run(values + p * step, step * parts, part, factor + 1, out + p * part);
  if (parts == 2) {
    for (size_t k = 0; k < part; k++) {
      const Complex root = roots_[k * step], first = out[k], second = out[part + k];
      const double re = second.re * root.re - second.im * root.im,
                   im = second.re * root.im + second.im * root.re;
      out[k] = {first.re + re, first.im + im};
      out[part + k] = {first.re - re, first.im - im};
    }
    return;
  }
  Complex* sums = scratch_.data();
  for (size_t k = 0; k < size; k++) {
    Complex sum = out[k % part];
    for (size_t p = 1, at = 0; p < parts; p++) {
      at = (at + k) % size;  // p k
      const Complex root = roots_[at * step], value = out[p * part + k % part];
      sum.re += value.re * root.re - value.im * root.im;
      sum.im += value.re * root.im + value.im * root.re;
    }
    sums[k] = sum;
  }
  for (size_t k = 0; k < size; k++) out[k] = sums[k];
}

}  // namespace edgekit
