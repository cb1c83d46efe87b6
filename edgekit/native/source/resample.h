// A sound at another rate, piece by piece (edgekit/processing/resample.py).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace edgekit {

class Resampler {
 public:
  // Rates in Hz, from 1 to 768000.
  Resampler(int rate, int new_rate);

  // Take samples, and append to `out` those at the new rate that no later sample changes.
  void add(const float* samples, size_t count, std::vector<double>& out);

  // Append the samples at the new rate that are left, those of zeros after the last sample. Nothing may be
  // added after it.
  void end(std::vector<double>& out);

 private:
  void resample(int64_t limit, std::vector<double>& out);
  const std::vector<double>& taps_of(int64_t phase);

  int64_t scale_, down_, reach_;
  std::vector<double> waiting_;  // from sample number first_ on; zeros come before the first sample
  int64_t first_, next_ = 0;     // next_: number of the next sample at the new rate
  std::vector<double> response_;
  std::vector<std::vector<double>> taps_;  // by phase, modulo their number
  std::vector<int64_t> phases_;            // the phase of each
};

}  // namespace edgekit
