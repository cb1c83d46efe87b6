#include "fourier.h"

#include <cmath>
#include <cstddef>

namespace edgekit {
namespace {

using Complex = Fourier::Complex;

constexpr size_t RADIX_LIMIT = 64;  // a larger prime factor takes longer than three transforms of 4 n

Complex complex_of(double value) { return {value, 0}; }
Complex complex_of(Complex value) { return value; }
Complex swapped(Complex value) { return {value.im, value.re}; }
Complex product(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

}  // namespace

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
  if (!factors_.empty() && factors_.back() > RADIX_LIMIT) prepare_convolution(size);
}

// Bluestein: jk = (j^2 + k^2 - (k - j)^2) / 2, so the transform is a convolution with exp(pi i j^2 / n), for
// which any length from 2 n - 1 on serves.
void Fourier::prepare_convolution(size_t size) {
  size_t padded = 1;
  while (padded < 2 * size - 1) padded *= 2;
  convolution_ = std::make_unique<Fourier>(static_cast<int>(padded));
  chirp_.resize(size);
  for (size_t j = 0; j < size; j++) {
    // The square is reduced before it is a double: a large angle would lose digits.
    double angle = PI * static_cast<double>(static_cast<unsigned long long>(j) * j % (2 * size)) / size;
    chirp_[j] = {std::cos(angle), -std::sin(angle)};
  }
  padded_.assign(padded, {0, 0});
  for (size_t j = 0; j < size; j++) {
    padded_[j] = padded_[(padded - j) % padded] = {chirp_[j].re, -chirp_[j].im};
  }
  convolution_->run(padded_.data(), 1, padded, 0, convolution_->out_.data());
  filter_ = convolution_->out_;
}

const std::vector<Fourier::Complex>& Fourier::transform(const std::vector<double>& values) {
  if (convolution_) {
    convolve(values);
  } else {
    run(values.data(), 1, out_.size(), 0, out_.data());
  }
  return out_;
}

void Fourier::convolve(const std::vector<double>& values) {
  padded_.assign(padded_.size(), {0, 0});
  for (size_t j = 0; j < chirp_.size(); j++) padded_[j] = product({values[j], 0}, chirp_[j]);
  auto& sums = convolution_->out_;
  convolution_->run(padded_.data(), 1, padded_.size(), 0, sums.data());
  // Real and imaginary parts are swapped before and after it: the inverse transform.
  for (size_t k = 0; k < sums.size(); k++) padded_[k] = swapped(product(sums[k], filter_[k]));
  convolution_->run(padded_.data(), 1, padded_.size(), 0, sums.data());
  const double count = static_cast<double>(sums.size());
  for (size_t k = 0; k < chirp_.size(); k++) {
    const Complex sum = product(swapped(sums[k]), chirp_[k]);
    out_[k] = {sum.re / count, sum.im / count};
  }
}

// Transform `size` values, `step` apart: as many parts as the factor, each of every factor-th value.
template <typename Value>
void Fourier::run(const Value* values, size_t step, size_t size, size_t factor, Complex* out) {
  if (size == 1) {
    *out = complex_of(*values);
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
