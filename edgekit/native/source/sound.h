// From a live sound to the model's input, window by window (edgekit/processing/audio_preparation.py,
// edgekit/runtime/streaming/listening.py).
#pragma once
#include <vector>

#include "card.h"
#include "resample.h"

namespace edgekit {

// Write the input for one window to out, which has sound_bytes. samples: at the card's rate, a window less
// its context; context: the samples before them.
void prepare_sound(const AudioInput& sound, std::vector<double> samples, const std::vector<double>& context,
                   unsigned char* out);

// Return the bytes of the input.
size_t sound_bytes(const AudioInput& sound);

// One sound that arrives in pieces. The card must outlive it.
class Listener {
 public:
  // Raises Refusal: the card takes no sound, or the rate in Hz is not one of a sound.
  Listener(const Card& card, int rate);

  // Take one channel, full scale is 1. Raises Refusal: a sample is not finite.
  void add(const float* samples, size_t count);

  // Return the bytes of a window's input.
  size_t bytes() const { return sound_bytes(sound_); }

  // Whether the next window is complete.
  bool has_window() const { return waiting_.size() >= static_cast<size_t>(capacity_); }

  // Write the input for the next window to out, and its start and end in seconds.
  void window(unsigned char* out, double* start_s, double* end_s);

 private:
  const AudioInput& sound_;
  int capacity_;  // samples that a window adds to its context
  Resampler resampler_;
  std::vector<double> waiting_, context_;
  int64_t position_ = 0;
};

}  // namespace edgekit
