#include "sound.h"

#include <algorithm>
#include <cmath>

#include "manifest.h"
#include "numbers.h"
#include "pairwise_sum.h"
#include "refusal.h"
#include "resize.h"

namespace edgekit {
namespace {

constexpr double VARIANCE_LEAST = 1e-7;

void normalize_samples(std::vector<double>& samples, const AudioInput& sound) {
  if (sound.normalize == "none") {
    for (double& sample : samples) sample *= sound.full_scale;
    return;
  }
  const double count = static_cast<double>(samples.size());
  if (sound.normalize == "mean-std") {
    double mean = pairwise_sum(samples.data(), samples.size()) / count;
    std::vector<double> squares;
    for (double& sample : samples) {
      sample -= mean;
      squares.push_back(sample * sample);
    }
    double deviation = std::sqrt(pairwise_sum(squares.data(), squares.size()) / count + VARIANCE_LEAST);
    for (double& sample : samples) sample /= deviation;
    return;
  }
  double greatest = sound.normalize == "max" ? samples[0] : 0;
  for (double sample : samples)
    greatest = std::max(greatest, sound.normalize == "max" ? sample : std::fabs(sample));
  if (greatest > 0) {
    for (double& sample : samples) sample /= greatest;
  }
}

int checked_rate(int rate) {
  if (rate < 1 || rate > RATE_LIMIT_HZ) {
    throw Refusal("rate is " + std::to_string(rate) + "; it must be a whole number of Hz from 1 to " +
                  std::to_string(RATE_LIMIT_HZ));
  }
  return rate;
}

}  // namespace

Listener::Listener(const AudioInput& sound, int rate)
    : sound_(sound),
      capacity_(sound_.window - sound_.context),
      rate_(rate),
      resampler_(checked_rate(rate), sound_.rate),
      context_(sound_.context) {
  if (sound_.has_features) features_ = std::make_unique<FeatureExtractor>(sound_.features, sound_.rate);
}

void Listener::add(const float* samples, size_t count, int rate, bool ends) {
  if (rate != rate_) {
    throw Refusal("rate is " + std::to_string(rate) + " Hz, but this sound began with " +
                  std::to_string(rate_) + "; a sound has one rate, and another sound begins with begins = 1");
  }
  if (has_ended_ && count)
    throw Refusal("the sound has ended; its samples cannot go on. Another sound begins with begins = 1");
  for (size_t i = 0; i < count; i++) {
    if (!std::isfinite(samples[i])) throw Refusal("a sound has samples that are NaN or infinite");
  }
  if (has_ended_) return;
  resampler_.add(samples, count, waiting_);
  if (ends) resampler_.end(waiting_);
  has_ended_ = ends;
}

// Write the input for one window to out, which has its size. samples: at the card's rate, at most a window
// less its context, and zeros follow them.
void Listener::prepare(std::vector<double> samples, unsigned char* out) {
  const AudioInput& sound = sound_;
  normalize_samples(samples, sound);
  std::vector<double> values(context_);
  for (double& value : values) value *= sound.full_scale;
  values.insert(values.end(), samples.begin(), samples.end());
  values.resize(sound.window);
  if (features_) {
    const size_t count = sound.features.count();
    values = features_->compute(values);
    values.resize(sound.elements);  // without the last frame, if the input has one less
    if (sound.layout == "FT") {
      const size_t frames = values.size() / count;
      std::vector<double> turned(values.size());
      for (size_t i = 0; i < values.size(); i++) turned[i % count * frames + i / count] = values[i];
      values.swap(turned);
    }
  }
  const bool whole = sound.dtype[0] != 'f';
  const double low = sound.dtype == "int16"  ? -32768
                     : sound.dtype == "int8" ? -128
                                             : 0,
               high = sound.dtype == "int16"  ? 32767
                      : sound.dtype == "int8" ? 127
                                              : 255;
  for (double& value : values) {
    value = (value - sound.mean) / sound.std;
    if (whole) value = value > low ? std::nearbyint(std::min(value, high)) : low;  // low for NaN
  }
  write_numbers(sound.dtype, values, out);
}

void Listener::window(unsigned char* out, double* start_s, double* end_s) {
  const size_t count = std::min(waiting_.size(), static_cast<size_t>(capacity_));
  std::vector<double> samples(waiting_.begin(), waiting_.begin() + count);
  prepare(samples, out);
  *start_s = static_cast<double>(position_) / sound_.rate;
  *end_s = *start_s + static_cast<double>(count) / sound_.rate;
  position_ += sound_.hop;
  context_.insert(context_.end(), samples.begin(), samples.end());
  context_.erase(context_.begin(), context_.end() - sound_.context);
  waiting_.erase(waiting_.begin(),
                 waiting_.begin() + std::min(waiting_.size(), static_cast<size_t>(sound_.hop)));
  covered_ = static_cast<size_t>(capacity_ - sound_.hop);
  if (count < static_cast<size_t>(capacity_)) waiting_.clear();  // it was the last one
}

}  // namespace edgekit
