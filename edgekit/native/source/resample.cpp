#include "resample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fourier.h"

namespace edgekit {
namespace {

constexpr double STOP_DB = 90.0, KAISER_BETA = 0.1102 * (STOP_DB - 8.7);
constexpr int CROSSINGS = 64, STEPS = 1024;
constexpr int64_t KEPT_PHASES = 1024;
constexpr double TRANSITION = (STOP_DB - 7.95) / (14.36 * 2 * CROSSINGS);

// The modified Bessel function of order 0.
double bessel(double x) {
  double sum = 1, term = 1;
  for (int k = 1; term > sum * 1e-18; k++) sum += term *= x / (2 * k) * (x / (2 * k));
  return sum;
}

// The right half of the filter at STEPS points for each sample of the lower rate.
std::vector<double> impulse_response() {
  std::vector<double> response(CROSSINGS * STEPS + 1);
  const double cutoff = 1.0 - TRANSITION, whole = bessel(KAISER_BETA);
  for (size_t i = 0; i + 1 < response.size(); i++) {  // the last one is zero: no step
    double time = static_cast<double>(i) / STEPS, part = time / CROSSINGS, angle = PI * (cutoff * time);
    double sinc = i ? std::sin(angle) / angle : 1;
    response[i] = cutoff * sinc * bessel(KAISER_BETA * std::sqrt(1.0 - part * part)) / whole;
  }
  return response;
}

}  // namespace

Resampler::Resampler(int rate, int new_rate) {
  int64_t divisor = std::gcd(rate, new_rate);
  scale_ = new_rate / divisor, down_ = rate / divisor;
  double longer = std::max(1.0, static_cast<double>(down_) / static_cast<double>(scale_));
  reach_ = static_cast<int64_t>(std::ceil(CROSSINGS * longer)) + 1;
  if (scale_ == down_) return;
  response_ = impulse_response();
  taps_.resize(static_cast<size_t>(std::min(scale_, KEPT_PHASES)));
  phases_.assign(taps_.size(), -1);
  first_ = -reach_;
  waiting_.assign(static_cast<size_t>(reach_), 0.0);
}

// Return the weights [2 reach + 1] of the samples around an output that lies phase / scale behind the middle.
const std::vector<double>& Resampler::taps_of(int64_t phase) {
  size_t kept = static_cast<size_t>(phase) % taps_.size();
  std::vector<double>& taps = taps_[kept];
  if (phases_[kept] == phase) return taps;
  phases_[kept] = phase;
  taps.clear();
  double lower = std::min(1.0, static_cast<double>(scale_) / static_cast<double>(down_));
  double shift = static_cast<double>(phase) / static_cast<double>(scale_);
  for (int64_t i = -reach_; i <= reach_; i++) {
    double at = std::fabs(static_cast<double>(i) - shift) * lower * STEPS;
    size_t index = static_cast<size_t>(at);
    double tap = 0;  // beyond the end
    if (index + 1 < response_.size())
      tap = response_[index] + (response_[index + 1] - response_[index]) * (at - static_cast<double>(index));
    taps.push_back(lower * tap);
  }
  return taps;
}

void Resampler::add(const float* samples, size_t count, std::vector<double>& out) {
  if (scale_ == down_) {
    out.insert(out.end(), samples, samples + count);
    return;
  }
  waiting_.insert(waiting_.end(), samples, samples + count);
  resample(INT64_MAX, out);
}

void Resampler::end(std::vector<double>& out) {
  if (scale_ == down_) return;
  const int64_t count = first_ + static_cast<int64_t>(waiting_.size());
  waiting_.resize(waiting_.size() + static_cast<size_t>(reach_) + 1);
  resample((count * scale_ + down_ - 1) / down_, out);
}

// Append samples up to a number, as far as no later one changes them.
void Resampler::resample(int64_t limit, std::vector<double>& out) {
  const int64_t end = first_ + static_cast<int64_t>(waiting_.size());
  for (; next_ < limit && next_ * down_ / scale_ + reach_ < end; next_++) {
    int64_t base = next_ * down_ / scale_;
    const auto& taps = taps_of(next_ * down_ % scale_);
    const double* from = waiting_.data() + (base - reach_ - first_);
    double sum = 0;
    for (size_t i = 0; i < taps.size(); i++) sum += from[i] * taps[i];
    out.push_back(sum);
  }
  const int64_t unused = std::min(next_ * down_ / scale_ - reach_ - first_, end - first_);
  if (unused > 0) {
    waiting_.erase(waiting_.begin(), waiting_.begin() + unused);
    first_ += unused;
  }
}

}  // namespace edgekit
