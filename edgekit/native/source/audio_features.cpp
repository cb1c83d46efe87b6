#include "audio_features.h"

#include <algorithm>
#include <cmath>

#include "resize.h"

namespace edgekit {
namespace {

constexpr double DEVIATION_LEAST = 1e-8, POVEY_EXPONENT = 0.85;
constexpr double SLANEY_HERTZ = 1000, SLANEY_MEL = 15;  // linear up to here, then 27 mel for a factor of 6.4

double mel_of(double hertz, const Features& f) {
  if (f.mel_scale == "htk") return 2595.0 * std::log10(1.0 + hertz / 700.0);
  if (hertz < SLANEY_HERTZ) return hertz * (SLANEY_MEL / SLANEY_HERTZ);
  return SLANEY_MEL + std::log(hertz / SLANEY_HERTZ) / (std::log(6.4) / 27.0);
}

double hertz_of(double mel, const Features& f) {
  if (f.mel_scale == "htk") return 700.0 * (std::pow(10.0, mel / 2595.0) - 1.0);
  if (mel < SLANEY_MEL) return mel * (SLANEY_HERTZ / SLANEY_MEL);
  return SLANEY_HERTZ * std::exp(std::log(6.4) / 27.0 * (mel - SLANEY_MEL));
}

// The window function [cut]; align = "center" puts it into the middle of n_fft samples.
std::vector<double> taper_of(const Features& f) {
  bool symmetric = f.window == "hann-symmetric" || f.window == "hamming-symmetric" || f.window == "povey";
  bool hamming = f.window.compare(0, 7, "hamming") == 0;
  std::vector<double> taper(f.cut());
  int before = (f.cut() - f.frame) / 2;
  for (int i = 0; i < f.frame; i++) {
    double angle = 2 * PI * i / (symmetric ? f.frame - 1 : f.frame);
    double value = hamming ? 0.54 - 0.46 * std::cos(angle) : 0.5 - 0.5 * std::cos(angle);
    if (f.window == "rectangular") value = 1;
    if (f.window == "povey") value = std::pow(value, POVEY_EXPONENT);
    taper[before + i] = value;
  }
  return taper;
}

// The discrete cosine transform (DCT-II): [coefficients, mels].
std::vector<double> cosines_of(const Features& f) {
  std::vector<double> cosines(memory_size(f.mels, f.coefficients, sizeof(double)) / sizeof(double));
  for (int k = 0; k < f.coefficients; k++) {
    double gain = std::sqrt(2.0 / f.mels) * (k == 0 && f.dct == "ortho" ? std::sqrt(0.5) : 1);
    for (int n = 0; n < f.mels; n++)
      cosines[static_cast<size_t>(k) * f.mels + n] = gain * std::cos(PI / f.mels * (n + 0.5) * k);
  }
  return cosines;
}

// Return the samples between half a frame before the first and half a frame behind the last one.
std::vector<double> padded(const std::vector<double>& samples, const Features& f) {
  int64_t half = f.n_fft / 2, size = static_cast<int64_t>(samples.size()), period = 2 * (size - 1);
  std::vector<double> out(samples.size() + 2 * static_cast<size_t>(half));
  for (int64_t i = -half; i < size + half; i++) {
    int64_t at = i;
    if (f.center == "reflect") {  // as often as it takes, without the ends themselves
      at = period ? (i % period + period) % period : 0;
      if (at >= size) at = period - at;
    }
    if (at >= 0 && at < size) out[i + half] = samples[at];
  }
  return out;
}

void normalize_features(std::vector<double>& values, size_t count, bool by_deviation) {
  size_t frames = values.size() / count;
  for (size_t k = 0; k < count; k++) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < frames; i++) sum += values[i * count + k];
    double mean = sum / static_cast<double>(frames);
    for (size_t i = 0; i < frames; i++) {
      double& value = values[i * count + k];
      value -= mean;
      squares += value * value;
    }
    if (!by_deviation) continue;
    double deviation = std::max(std::sqrt(squares / static_cast<double>(frames)), DEVIATION_LEAST);
    for (size_t i = 0; i < frames; i++) values[i * count + k] /= deviation;
  }
}

}  // namespace

long long Features::frames(long long samples) const {
  long long all = samples + (center != "none" ? 2 * (n_fft / 2) : 0);
  return all < cut() ? 0 : 1 + (all - cut()) / hop;
}

// Triangles that rise from the centre of the band below, and fall to that of the band above.
std::vector<FeatureExtractor::Band> FeatureExtractor::filter_bank(const Features& f, int rate) {
  double low_end = mel_of(f.fmin, f), high_end = mel_of(f.fmax != 0 ? f.fmax : rate / 2.0, f);
  std::vector<double> corners(f.mels + 2), hertz(f.mels + 2), bins(f.n_fft / 2 + 1);
  double step = (high_end - low_end) / (f.mels + 1);
  for (int i = 0; i < f.mels + 2; i++) {
    corners[i] = i == f.mels + 1 ? high_end : low_end + i * step;
    hertz[i] = hertz_of(corners[i], f);
  }
  if (f.triangles == "hz") corners = hertz;
  for (size_t bin = 0; bin < bins.size(); bin++) {
    bins[bin] = static_cast<double>(bin) * (static_cast<double>(rate) / f.n_fft);
    if (f.triangles != "hz") bins[bin] = mel_of(bins[bin], f);
  }
  std::vector<Band> bands(f.mels);
  for (int m = 0; m < f.mels; m++) {
    double low = corners[m], middle = corners[m + 1], high = corners[m + 2];
    double gain = f.mel_norm == "slaney" ? 2.0 / (hertz[m + 2] - hertz[m]) : 1.0;
    size_t bin = std::upper_bound(bins.begin(), bins.end(), low) - bins.begin();
    for (; bin < bins.size() && bins[bin] < high; bin++) {
      double weight = std::min((bins[bin] - low) / (middle - low), (high - bins[bin]) / (high - middle));
      if (!(weight > 0)) continue;
      if (bands[m].weights.empty()) bands[m].first = bin;
      bands[m].weights.push_back(weight * gain);
    }
  }
  return bands;
}

FeatureExtractor::FeatureExtractor(const Features& features, int rate)
    : features_(features),
      taper_(taper_of(features)),
      cosines_(features.kind == "mfcc" ? cosines_of(features) : std::vector<double>()),
      bands_(features.kind == "spectrogram" ? std::vector<Band>() : filter_bank(features, rate)),
      fourier_(features.n_fft) {}

std::vector<double> FeatureExtractor::compute(const std::vector<double>& given) {
  const Features& f = features_;
  std::vector<double> samples = f.center == "none" ? given : padded(given, f);
  const size_t frames = static_cast<size_t>(f.frames(static_cast<long long>(given.size())));
  const size_t bins = f.n_fft / 2 + 1, rows = f.kind == "spectrogram" ? bins : f.mels;
  std::vector<double> values(memory_size(frames, rows, sizeof(double)) / sizeof(double)), spectrum(bins);
  std::vector<double> piece(f.n_fft);
  for (size_t i = 0; i < frames; i++) {
    const double* from = samples.data() + i * f.hop;
    double mean = 0;
    if (f.remove_dc) {
      for (int j = 0; j < f.cut(); j++) mean += from[j];
      mean /= f.cut();
    }
    for (int j = 0; j < f.cut(); j++) {  // the first one is its own predecessor
      double value = from[j] - mean;
      if (f.preemphasis != 0) value -= f.preemphasis * (from[j ? j - 1 : 0] - mean);
      piece[j] = value * taper_[j];
    }
    const auto& transformed = fourier_.transform(piece);
    for (size_t k = 0; k < bins; k++) {
      double power = transformed[k].re * transformed[k].re + transformed[k].im * transformed[k].im;
      spectrum[k] = f.power == 2 ? power : std::sqrt(power);
    }
    double* out = values.data() + i * rows;
    if (bands_.empty()) std::copy(spectrum.begin(), spectrum.end(), out);
    for (size_t m = 0; m < bands_.size(); m++) {
      double sum = 0;
      for (size_t k = 0; k < bands_[m].weights.size(); k++)
        sum += spectrum[bands_[m].first + k] * bands_[m].weights[k];
      out[m] = sum;
    }
  }
  if (f.log != "none") {
    for (double& value : values) {
      value = std::max(value + f.offset, f.floor);
      value = f.log == "ln" ? std::log(value) : (f.log == "db" ? 10 : 1) * std::log10(value);
    }
    if (f.range != 0 && !values.empty()) {
      double least = *std::max_element(values.begin(), values.end()) - f.range;
      for (double& value : values) value = std::max(value, least);
    }
  }
  size_t count = rows;
  if (f.kind == "mfcc") {
    std::vector<double> coefficients(memory_size(frames, f.coefficients, sizeof(double)) / sizeof(double));
    count = f.coefficients;
    for (size_t i = 0; i < frames; i++) {
      for (size_t k = 0; k < count; k++) {
        double sum = 0;
        for (int n = 0; n < f.mels; n++) sum += values[i * rows + n] * cosines_[k * f.mels + n];
        coefficients[i * count + k] = sum;
      }
    }
    values.swap(coefficients);
  }
  if (f.cmvn != "none") normalize_features(values, count, f.cmvn == "mean-std");
  return values;
}

}  // namespace edgekit
