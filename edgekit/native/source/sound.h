// From a live sound to the model's input, window by window (edgekit/processing/audio_preparation.py,
// edgekit/runtime/streaming/listening.py).
#pragma once
#include <memory>
#include <vector>

#include "audio_features.h"
#include "card.h"
#include "resample.h"

namespace edgekit {

// One sound that arrives in pieces. The input must outlive it.
class Listener {
 public:
  // Raises Refusal: the rate in Hz is not one of a sound.
  Listener(const AudioInput& sound, int rate);

  // Take one channel, full scale is 1. ends: they are the last ones. Raises Refusal: a sample is not finite,
  // the rate in Hz is another than before, or the sound has ended.
  void add(const float* samples, size_t count, int rate, bool ends);

  // Whether the next window is complete, or the last one of a sound that has ended.
  bool has_window() const {
    return waiting_.size() >= static_cast<size_t>(capacity_) || (has_ended_ && waiting_.size() > covered_);
  }

  // Write the input for the next window to out, and its start and end in seconds, without zeros at its end.
  void window(unsigned char* out, double* start_s, double* end_s);

 private:
  void prepare(std::vector<double> samples, unsigned char* out);

  const AudioInput& sound_;
  int capacity_;  // samples that a window adds to its context
  int rate_;
  bool has_ended_ = false;
  size_t covered_ = 0;  // of the samples that wait, earlier windows held as many
  Resampler resampler_;
  std::vector<double> waiting_, context_;
  std::unique_ptr<FeatureExtractor> features_;  // NULL if the model takes samples
  int64_t position_ = 0;
};

}  // namespace edgekit
