// The card: how a picture becomes the model's input, and its outputs an answer (edgekit/processing/card.py).
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "audio_features.h"
#include "json.h"

namespace edgekit {

struct Manifest;

struct ImageInput {
  std::string name, layout, colour, resize, place = "top-left", rounding = "down", interpolation = "linear",
                                            dtype = "float32";
  int height = 0, width = 0, channels = 0, pad = 0;
  double crop = 1;
  bool antialias = false;
  std::vector<double> mean, std;

  // Whether pixel values are passed unchanged.
  bool plain() const;

  // Length of a picture's shorter side before the crop of resize-crop.
  int64_t shorter_side() const;
};

constexpr int RATE_LIMIT_HZ = 768000;

// A window of a sound, or its features (edgekit/processing/inputs/audio.py).
struct AudioInput {
  std::string name, normalize = "none", layout = "TF", dtype = "float32";
  int rate = 0, window = 0, hop = 0, context = 0;
  size_t elements = 0;  // of the input
  double full_scale = 1, mean = 0, std = 1;
  bool has_features = false;
  Features features;
};

// An array: a constant, or a state with its value before the first run (edgekit/processing/inputs/tensor.py).
struct ConstantInput {
  std::string name;
  std::vector<double> values;  // one for all elements, or one for each
};

struct Task {
  std::string kind, decode, output;  // output: the one that is decoded, by the model's name
  std::vector<std::string> labels;
  int64_t top = 0, zero_point = 0;
  double score = 0, iou = 0, scale = 1, threshold = 0;
  bool class_agnostic = false, normalized = false;
  std::string boxes = "x1y1x2y2";
  std::vector<int64_t> strides;

  // Return the label of a class, or its number where it has no label.
  std::string label(int64_t index) const;
};

struct Card {
  std::string title, source;  // source: the input that is a picture or a sound
  bool has_sound = false;     // it is a sound
  ImageInput image;
  AudioInput sound;
  std::vector<ConstantInput> constants;       // besides it; of a state the value before the first run
  std::map<std::string, std::string> states;  // input -> the output that is fed to it at the next run
  bool has_task = false;
  Task task;
};

// Read and check a card; its other tables (latency, schedule, about) are not read. Raises Refusal: it is
// malformed, does not fit the model, or needs what this library does not compute.
Card read_card(const Json& table, const Manifest& manifest);

// Literals: vectors of strings would take 1 kB of code for each list.
using Words = std::initializer_list<const char*>;

// One table of a card, read strictly; the texts are those of strict_tables.py.
class Table {
 public:
  Table(const Json& table, std::string where) : table_(table), where_(std::move(where)) {}
  void only(const std::vector<std::string>& allowed) const;
  void only(Words allowed) const;
  bool has(const char* key) const { return table_.find(key) != nullptr; }
  const Json& get(const char* key, Json::Kind kind) const;
  double real(const char* key) const;
  int64_t whole(const char* key) const;  // held within int64
  bool truth(const char* key) const { return get(key, Json::boolean).truth; }
  const std::string& text(const char* key) const { return get(key, Json::text).content; }
  const std::string& choice(const char* key, Words allowed) const;
  std::vector<double> reals(const char* key) const;
  std::vector<int64_t> wholes(const char* key) const;
  std::vector<int64_t> shape() const;
  int64_t count(const char* key, int64_t least, int64_t most) const;
  [[noreturn]] void refuse(const std::string& why) const;  // where + why
  const std::string& where() const { return where_; }

 private:
  const Json& table_;
  std::string where_;
};

// An input of a card, to compare with the model's. dtype: "" takes the model's.
struct Declared {
  std::string name, dtype;
  std::vector<int64_t> shape;
};

// Read an input, or a task.
ImageInput read_image(const std::string& name, const Json& table, const std::string& where,
                      std::vector<int64_t>& shape);
AudioInput read_audio(const std::string& name, const Json& table, const std::string& where,
                      std::vector<int64_t>& shape);
ConstantInput read_tensor(const std::string& name, const Json& table, const std::string& where,
                          Declared& declared);
Task read_task(const Json& table, const std::string& where);

// Return a list of numbers as Python prints it.
std::string list_text(const std::vector<double>& values);
std::string list_text(const std::vector<int64_t>& values);

// Return a number as Python's format "g" prints it.
std::string short_text(double value);

}  // namespace edgekit
