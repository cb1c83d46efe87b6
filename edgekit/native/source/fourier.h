// The discrete Fourier transform of any length, by mixed radices.
#pragma once
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
  void run(const double* values, size_t step, size_t size, size_t factor, Complex* out);

  std::vector<size_t> factors_;
  std::vector<Complex> roots_, out_, scratch_;  // roots_[k] = exp(-2 pi i k / size)
};

}  // namespace edgekit
