// The discrete Fourier transform of any length: mixed radices, and Bluestein's algorithm if a prime factor is
// large, so that every length takes n log n operations.
#pragma once
#include <memory>
#include <vector>

namespace edgekit {

constexpr double PI = 3.14159265358979323846;

class Fourier {
 public:
  struct Complex {
    double re, im;
  };

  explicit Fourier(int size);

  // Return sum_j values[j] exp(-2 pi i j k / size) for each k; valid until the next call.
  const std::vector<Complex>& transform(const std::vector<double>& values);

 private:
  template <typename Value>
  void run(const Value* values, size_t step, size_t size, size_t factor, Complex* out);
  void prepare_convolution(size_t size);
  void convolve(const std::vector<double>& values);

  std::vector<size_t> factors_;
  std::vector<Complex> roots_, out_, scratch_;  // roots_[k] = exp(-2 pi i k / size)
  std::unique_ptr<Fourier> convolution_;        // a power of two, or NULL if no prime factor is large
  std::vector<Complex> chirp_, filter_, padded_;
};

}  // namespace edgekit
