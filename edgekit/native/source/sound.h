// From a live sound to the model's input, window by window (edgekit/processing/audio_preparation.py,
// edgekit/runtime/streaming/listening.py).
#pragma once
#include <vector>

#include "card.h"
#include "resample.h"

namespace edgekit {

// Write the input for one window to out, which has its size. samples: at the card's rate, at most a window
// less its context, and zeros follow them; context: the samples before them.
void prepare_sound(const AudioInput& sound, std::vector<double> samples, const std::vector<double>& context,
                   unsigned char* out);

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
  const AudioInput& sound_;
  int capacity_;  // samples that a window adds to its context
  int rate_;
  bool has_ended_ = false;
  size_t covered_ = 0;  // of the samples that wait, earlier windows held as many
  Resampler resampler_;
  std::vector<double> waiting_, context_;
  int64_t position_ = 0;
};

}  // namespace edgekit
