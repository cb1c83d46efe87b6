// An input that is a sound (edgekit/processing/inputs/audio.py, audio_features.py), and the arrays beside it.
#include <algorithm>
#include <cmath>

#include "card.h"
#include "manifest.h"
#include "numbers.h"
#include "text.h"

namespace edgekit {
namespace {

constexpr int64_t WINDOW_LIMIT = 1 << 24;
constexpr size_t VALUE_LIMIT = 4096;

using Names = std::vector<std::string>;

// Read the features. Raises Refusal.
Features read_features(const Json& json, int64_t rate, const std::string& where) {
  Table table(json, where);
  table.only({"kind",   "frame",     "hop",          "n_fft",     "window", "align",
              "center", "power",     "preemphasis",  "remove_dc", "mels",   "fmin",
              "fmax",   "mel_scale", "mel_norm",     "triangles", "log",    "offset",
              "floor",  "range",     "coefficients", "dct",       "cmvn"});
  Features f;
  f.kind = table.choice("kind", {"spectrogram", "mel", "mfcc"});
  auto only_with = [&](Words keys, Words kinds) {
    for (const char* key : keys) {
      if (!table.has(key) || std::find(kinds.begin(), kinds.end(), f.kind) != kinds.end()) continue;
      Names quoted;
      for (const char* kind : kinds) quoted.push_back(ascii_text(kind));
      table.refuse(std::string(".") + key + " needs kind = " + joined(quoted, " or "));
    }
  };
  only_with({"mels", "fmin", "fmax", "mel_scale", "mel_norm", "triangles"}, {"mel", "mfcc"});
  only_with({"coefficients", "dct"}, {"mfcc"});
  auto whole = [&](const char* key, int least, int most, int& value, bool needed = false) {
    if (needed || table.has(key)) value = static_cast<int>(table.count(key, least, most));
  };
  auto real = [&](const char* key, double& value) {
    if (table.has(key)) value = table.real(key);
  };
  auto chosen = [&](const char* key, Words allowed, std::string& value) {
    if (table.has(key)) value = table.choice(key, allowed);
  };
  whole("frame", 2, 16384, f.frame, true);
  whole("hop", 1, 16384, f.hop, true);
  f.n_fft = 2;
  while (f.n_fft < f.frame) f.n_fft *= 2;
  whole("n_fft", 2, 16384, f.n_fft);
  chosen("window", {"hann", "hann-symmetric", "hamming", "hamming-symmetric", "povey", "rectangular"},
         f.window);
  chosen("align", {"left", "center"}, f.align);
  chosen("center", {"none", "reflect", "constant"}, f.center);
  whole("power", 1, 2, f.power);
  real("preemphasis", f.preemphasis);
  if (table.has("remove_dc")) f.remove_dc = table.truth("remove_dc");
  whole("mels", 1, 1024, f.mels, f.kind != "spectrogram");
  real("fmin", f.fmin);
  real("fmax", f.fmax);
  chosen("mel_scale", {"htk", "slaney"}, f.mel_scale);
  chosen("mel_norm", {"none", "slaney"}, f.mel_norm);
  chosen("triangles", {"hz", "mel"}, f.triangles);
  chosen("log", {"none", "ln", "log10", "db"}, f.log);
  real("offset", f.offset);
  real("floor", f.floor);
  real("range", f.range);
  whole("coefficients", 1, 1024, f.coefficients, f.kind == "mfcc");
  chosen("dct", {"ortho", "htk"}, f.dct);
  chosen("cmvn", {"none", "mean", "mean-std"}, f.cmvn);
  if (f.n_fft < f.frame) {
    table.refuse(".n_fft is " + std::to_string(f.n_fft) + "; it must hold a frame, " +
                 std::to_string(f.frame) + " samples");
  }
  for (const char* key : {"offset", "floor", "range", "fmin", "fmax"}) {
    if (table.has(key) && table.real(key) < 0)
      table.refuse(std::string(".") + key + " is " + short_text(table.real(key)) +
                   "; it must not be below 0");
  }
  if (!(f.preemphasis >= 0 && f.preemphasis < 1)) {
    table.refuse(".preemphasis is " + short_text(f.preemphasis) + "; it must be from 0 to below 1");
  }
  double half = static_cast<double>(rate) / 2, high = f.fmax != 0 ? f.fmax : half;
  if (!(f.fmin < high && high <= half)) {
    table.refuse(": the bands go from " + short_text(f.fmin) + " to " + short_text(high) +
                 " Hz; fmin must be below fmax, and that at most half of the rate, " + short_text(half));
  }
  if (f.kind == "mfcc" && f.coefficients > f.mels) {
    table.refuse(".coefficients is " + std::to_string(f.coefficients) + "; the maximum for " +
                 std::to_string(f.mels) + " bands");
  }
  bool logarithmic = f.log != "none";
  if (f.kind == "mfcc" && !logarithmic) table.refuse(".log is 'none'; MFCC need logarithms: ln, log10 or db");
  if (logarithmic && f.offset == 0 && f.floor == 0)
    table.refuse(".log needs an offset or a floor, since silence has no logarithm; e.g. 1e-6");
  for (const char* key : {"offset", "floor", "range"}) {
    if (table.has(key) && !logarithmic)
      table.refuse(std::string(".") + key + " needs log, but log is 'none'");
  }
  return f;
}

// Return the samples that give exactly the frames of the input, held to what is refused anyway.
int64_t samples_of(uint64_t elements, const Features& f) {
  if (elements > static_cast<uint64_t>(INT64_MAX) / (1 << 15)) return INT64_MAX;
  int64_t frames = std::max<int64_t>(1, static_cast<int64_t>(elements) / f.count());
  return f.center != "none" ? std::max<int64_t>(1, (frames - 1) * f.hop) : (frames - 1) * f.hop + f.cut();
}

std::vector<int64_t> without_ones(std::vector<int64_t> sizes) {
  sizes.erase(std::remove(sizes.begin(), sizes.end(), 1), sizes.end());
  return sizes;
}

void check_shape(const AudioInput& sound, const std::vector<int64_t>& shape, const Table& table) {
  const std::string window = std::to_string(sound.window) + " samples";
  if (!sound.has_features) {
    if (element_count(shape) != static_cast<uint64_t>(sound.window))
      table.refuse(".shape is " + list_text(shape) + ", but a window has " + window);
    return;
  }
  const int64_t frames = sound.features.frames(sound.window), count = sound.features.count();
  bool frames_first = sound.layout == "TF";
  // The last frame, whose middle is the window's end, may be left out.
  bool may_lack_one = sound.features.center != "none" && frames > 1;
  for (int64_t lacking = 0; lacking <= may_lack_one; lacking++) {
    std::vector<int64_t> pair = {frames - lacking, count};
    if (!frames_first) std::swap(pair[0], pair[1]);
    if (without_ones(shape) == without_ones(pair)) return;
  }
  const std::string some_frames = std::to_string(frames) + " frames",
                    some_features = std::to_string(count) + " features";
  table.refuse(".shape is " + list_text(shape) + "; a window of " + window + " gives " +
               (frames_first ? some_frames + " of " + some_features : some_features + " of " + some_frames) +
               " (layout " + sound.layout + ")");
}

}  // namespace

AudioInput read_audio(const std::string& name, const Json& json, const std::string& where,
                      std::vector<int64_t>& shape) {
  Table table(json, where);
  table.only({"kind", "shape", "rate", "window", "hop", "context", "normalize", "full_scale", "features",
              "layout", "mean", "std", "dtype"});
  AudioInput sound;
  sound.name = name;
  shape = table.shape();
  sound.rate = static_cast<int>(table.count("rate", 1, RATE_LIMIT_HZ));
  if (table.has("normalize"))
    sound.normalize = table.choice("normalize", {"none", "max", "peak", "mean-std"});
  if (table.has("layout")) sound.layout = table.choice("layout", {"TF", "FT"});
  if (table.has("dtype"))
    sound.dtype = table.choice("dtype", {"float32", "float16", "int16", "int8", "uint8"});
  if (table.has("full_scale")) sound.full_scale = table.real("full_scale");
  if (table.has("mean")) sound.mean = table.real("mean");
  if (table.has("std")) sound.std = table.real("std");
  for (const char* key : {"full_scale", "std"}) {
    if (table.has(key) && table.real(key) <= 0)
      table.refuse(std::string(".") + key + " is " + short_text(table.real(key)) + "; it must be above 0");
  }
  if ((sound.has_features = table.has("features"))) {
    sound.features = read_features(json.at("features"), sound.rate, where + ".features");
  } else if (table.has("layout")) {
    table.refuse(".layout needs features; samples have no frames");
  }
  uint64_t elements = element_count(shape);
  int64_t window = sound.has_features ? samples_of(elements, sound.features)
                                      : static_cast<int64_t>(std::min<uint64_t>(elements, INT64_MAX));
  if (table.has("window")) window = table.count("window", 1, WINDOW_LIMIT);
  int64_t context = table.has("context") ? table.count("context", 0, WINDOW_LIMIT) : 0;
  if (window > WINDOW_LIMIT || context >= window) {
    table.refuse(": a window has " + std::to_string(window) + " samples and a context of " +
                 std::to_string(context) + "; it must be at most " + std::to_string(WINDOW_LIMIT) +
                 ", and its context shorter");
  }
  int64_t hop = table.has("hop") ? table.count("hop", 1, WINDOW_LIMIT) : window - context;
  if (hop > window) {
    table.refuse(".hop is " + std::to_string(hop) + "; it must be at most a window, " +
                 std::to_string(window) + " samples");
  }
  if (context && hop != window - context) {
    table.refuse(".hop is " + std::to_string(hop) + "; with a context it must be window - context, " +
                 std::to_string(window - context));
  }
  if (context && sound.normalize != "none") table.refuse(".normalize cannot be combined with a context");
  sound.window = static_cast<int>(window), sound.hop = static_cast<int>(hop);
  sound.context = static_cast<int>(context);
  check_shape(sound, shape, table);
  sound.elements = static_cast<size_t>(elements);
  return sound;
}

ConstantInput read_tensor(const std::string& name, const Json& json, const std::string& where,
                          Declared& declared) {
  Table table(json, where);
  table.only({"kind", "shape", "range", "value", "dtype"});
  ConstantInput constant{name, {}};
  declared.shape = table.shape();
  if (table.has("range")) {
    auto ends = table.reals("range");
    if (ends.size() != 2 || ends[0] > ends[1])
      table.refuse(".range is " + list_text(ends) + "; it must be [least, greatest]");
  }
  if (!table.has("value")) {
    if (table.has("dtype")) table.refuse(".dtype needs value; without it, the model's dtype is used");
    return constant;
  }
  if (table.has("range")) table.refuse(" has both value and range; a constant has no range");
  declared.dtype = table.choice("dtype", {"float32", "float16", "float64", "int8", "uint8", "int16", "uint16",
                                          "int32", "int64", "bool"});
  const Json& value = json.at("value");
  if (value.is(Json::list)) {
    constant.values = table.reals("value");
  } else {
    if (!value.is_number()) table.refuse(".value must be a list of finite numbers");
    constant.values = {value.decimal};
  }
  size_t count = constant.values.size();
  if (count != 1 && (count > VALUE_LIMIT || count != element_count(declared.shape))) {
    table.refuse(".value has " + std::to_string(count) +
                 " numbers; it must be one, or one for each element of " + list_text(declared.shape) +
                 ", at most " + std::to_string(VALUE_LIMIT));
  }
  for (double number : constant.values) {
    if (!holds(declared.dtype, number))
      table.refuse(".value is " + list_text(constant.values) + "; it is outside of " + declared.dtype);
  }
  return constant;
}

}  // namespace edgekit
