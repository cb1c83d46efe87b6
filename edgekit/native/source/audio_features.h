// Spectrograms, mel filter banks and MFCC of a window (edgekit/processing/audio_features.py).
#pragma once
#include <string>
#include <vector>

#include "fourier.h"

namespace edgekit {

// Settings of a card (edgekit/processing/inputs/audio_features.py).
struct Features {
  std::string kind, window = "hann", align = "left", center = "none", mel_scale = "htk", mel_norm = "none",
                    triangles = "hz", log = "none", dct = "ortho", cmvn = "none";
  int frame = 0, hop = 0, n_fft = 0, power = 2, mels = 0, coefficients = 0;
  double preemphasis = 0, fmin = 0, fmax = 0, offset = 0, floor = 0, range = 0;
  bool remove_dc = false;

  // Features of a frame.
  int count() const { return kind == "spectrogram" ? n_fft / 2 + 1 : kind == "mel" ? mels : coefficients; }

  // Samples that are cut out for a frame.
  int cut() const { return align == "left" ? frame : n_fft; }

  // Return the number of frames of this many samples.
  long long frames(long long samples) const;
};

// Computes the features of the windows of a sound by tables that are made once. The settings must outlive it.
class FeatureExtractor {
 public:
  FeatureExtractor(const Features& features, int rate);

  // Compute the features of a window in float64: [frames, features], row by row.
  std::vector<double> compute(const std::vector<double>& samples);

 private:
  // One triangle: its weights from a bin on.
  struct Band {
    size_t first = 0;
    std::vector<double> weights;
  };

  static std::vector<Band> filter_bank(const Features& features, int rate);

  const Features& features_;
  std::vector<double> taper_, cosines_;
  std::vector<Band> bands_;
  Fourier fourier_;
};

}  // namespace edgekit
