#include "card.h"

#include <algorithm>
#include <cmath>

#include "manifest.h"
#include "refusal.h"
#include "text.h"

namespace edgekit {
namespace {

struct Decoder {
  const char *kind, *name, *role;
  std::vector<std::string> options;
};

// What this library decodes; the options are in Python's order.
const Decoder DECODERS[] = {
    {"classify", "logits", "scores", {"top", "scale", "zero_point"}},
    {"classify", "probabilities", "scores", {"top", "scale", "zero_point"}},
    {"detect", "yolox", "predictions", {"score", "iou", "top", "class_agnostic", "strides"}},
    {"detect", "yolov5", "predictions", {"score", "iou", "top", "class_agnostic", "normalized"}},
    {"detect", "yolov8", "predictions", {"score", "iou", "top", "class_agnostic", "normalized"}},
    {"detect", "end2end", "predictions", {"score", "top", "normalized", "boxes"}},
    {"voice-activity",
     "probability",
     "probability",
     {"threshold", "hysteresis", "min_speech_s", "min_silence_s", "pad_s"}},
};

const Decoder& decoder_of(const Table& table) {
  const std::string &kind = table.text("kind"), &decode = table.text("decode");
  for (const Decoder& one : DECODERS) {
    if (kind == one.kind && decode == one.name) return one;
  }
  table.refuse(": libedgekit does not decode kind = " + ascii_text(kind) +
               ", decode = " + ascii_text(decode) +
               "; it decodes classify (logits, probabilities), detect (yolox, yolov5, yolov8, end2end) and "
               "voice-activity (probability). Take the outputs of edgekit_run instead");
}

void set_defaults(Task& task) {
  if (task.kind == "classify") {
    task.top = 5;
  } else if (task.kind == "voice-activity") {
    task.top = 1, task.threshold = 0.5;
  } else if (task.decode == "yolox") {
    task.score = 0.3, task.iou = 0.5, task.top = 100, task.strides = {8, 16, 32};
  } else {
    task.score = 0.25, task.iou = 0.7, task.top = 300;
  }
}

void check_options(const Task& task, const Table& table) {
  auto within = [&](const char* name, double value, double most = 1) {
    if (!(value >= 0 && value <= most))
      table.refuse(std::string(".") + name + " is " + short_text(value) + "; it must be from 0 to " +
                   short_text(most));
  };
  if (task.kind == "voice-activity") {
    for (const char* key : {"threshold", "hysteresis"}) {
      if (table.has(key)) within(key, table.real(key));
    }
    for (const char* key :
         {"min_speech_s", "min_silence_s", "pad_s"}) {  // of segments, which the page has not
      if (table.has(key)) within(key, table.real(key), 3600);
    }
    return;
  }
  if (task.top < 1)
    table.refuse(".top is " + table.get("top", Json::whole).content + "; it must be at least 1");
  if (task.kind == "classify") {
    if (!(task.scale > 0 && std::isfinite(task.scale)))
      table.refuse(".scale is " + short_text(task.scale) + "; it must be above 0");
    return;
  }
  within("score", task.score);
  within("iou", task.iou);
  if (task.decode == "yolox") {
    if (task.strides.empty()) table.refuse(".strides is empty; it must name the grids, e.g. [8, 16, 32]");
    int64_t least = *std::min_element(task.strides.begin(), task.strides.end());
    if (least < 1) table.refuse(".strides is " + std::to_string(least) + "; it must be at least 1");
  }
  if (task.boxes != "x1y1x2y2" && task.boxes != "y1x1y2x2" && task.boxes != "xywh") {
    table.refuse(".boxes is " + ascii_text(task.boxes) + "; it must be one of x1y1x2y2, y1x1y2x2, xywh");
  }
}

const std::string ONE_SOURCE =
    ": libedgekit prepares one image or one sound, beside constants and states; this card has ";

std::string by(const std::vector<int64_t>& shape) {
  std::vector<std::string> parts;
  for (int64_t d : shape) parts.push_back(std::to_string(d));
  return parts.empty() ? "scalar" : joined(parts, "x");
}

std::string names_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  return joined(names);
}

const TensorSpec* find(const std::vector<TensorSpec>& specs, const std::string& name) {
  for (const TensorSpec& spec : specs) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

void check_model(const Card& card, const std::vector<Declared>& inputs, const char* role,
                 const Manifest& manifest) {
  for (const Declared& input : inputs) {
    const TensorSpec* spec = find(manifest.inputs, input.name);
    if (!spec) {
      throw Refusal(card.title + ": the model has no input " + input.name + "; its inputs are " +
                    names_of(manifest.inputs));
    }
    if (spec->shape != input.shape) {
      throw Refusal(card.title + ": input " + input.name + " is " + by(input.shape) + " in the card but " +
                    by(spec->shape) + " in the model");
    }
    if (!input.dtype.empty() && spec->dtype != input.dtype) {
      throw Refusal(card.title + ": input " + input.name + " is " + input.dtype + " in the card but " +
                    spec->dtype + " in the model");
    }
  }
  for (const auto& [name, output] : card.states) {
    const TensorSpec *from = find(manifest.outputs, output), *to = find(manifest.inputs, name);
    if (!from || from->shape != to->shape || from->dtype != to->dtype) {
      throw Refusal(card.title + ": states." + name + " is " + ascii_text(output) +
                    ", which is not an output with the shape and dtype of " + name);
    }
  }
  if (card.has_task && !find(manifest.outputs, card.task.output)) {
    throw Refusal(card.title + ": task.outputs." + role + " is " + ascii_text(card.task.output) +
                  ", but the model's outputs are " + names_of(manifest.outputs));
  }
}

}  // namespace

std::string Task::label(int64_t index) const {
  if (kind == "voice-activity") return index ? "speech" : "no speech";
  bool named = index >= 0 && index < static_cast<int64_t>(labels.size()) && !labels[index].empty();
  return named ? labels[index] : std::to_string(index);
}

Task read_task(const Json& json, const std::string& where) {
  Table table(json, where);
  if (!json.is(Json::object)) table.only(Words());
  const Decoder& decoder = decoder_of(table);
  std::vector<std::string> allowed = {"kind", "decode", "outputs", "labels"};
  allowed.insert(allowed.end(), decoder.options.begin(), decoder.options.end());
  table.only(allowed);
  Task task;
  task.kind = decoder.kind, task.decode = decoder.name;
  Table outputs(table.get("outputs", Json::object), where + ".outputs");
  outputs.only(Words{decoder.role});
  task.output = outputs.text(decoder.role);
  if (table.has("labels")) {
    const auto& labels = table.get("labels", Json::list).items;
    for (size_t i = 0; i < labels.size(); i++) {
      if (!labels[i].is(Json::text)) table.refuse(".labels[" + std::to_string(i) + "] must be a text");
      task.labels.push_back(labels[i].content);
    }
  }
  set_defaults(task);
  for (const std::string& option : decoder.options) {
    const char* key = option.c_str();
    if (!table.has(key)) continue;
    if (option == "top") task.top = table.whole(key);
    if (option == "zero_point") task.zero_point = table.whole(key);
    if (option == "score") task.score = table.real(key);
    if (option == "iou") task.iou = table.real(key);
    if (option == "scale") task.scale = table.real(key);
    if (option == "class_agnostic") task.class_agnostic = table.truth(key);
    if (option == "normalized") task.normalized = table.truth(key);
    if (option == "threshold") task.threshold = table.real(key);
    if (option == "boxes") task.boxes = table.text(key);
    if (option == "strides") task.strides = table.wholes(key);
  }
  check_options(task, table);
  return task;
}

Card read_card(const Json& json, const Manifest& manifest) {
  Table table(json, "card");
  table.only({"title", "inputs", "task", "latency", "schedule", "about", "states"});
  Card card;
  card.title = table.text("title");
  const Json& inputs = table.get("inputs", Json::object);
  if (inputs.fields.empty()) table.refuse(": inputs is empty; a card must describe at least one input");
  std::vector<Declared> declared;
  std::vector<std::string> not_fed;  // tensors without a value
  for (const auto& [name, entry] : inputs.fields) {
    const std::string where = "card: inputs." + name;
    Table input(entry, where);
    if (!entry.is(Json::object)) input.only(Words());
    const std::string& kind = input.choice("kind", {"image", "tensor", "audio", "text"});
    Declared one{name, "", {}};
    if (kind == "image" && card.source.empty()) {
      card.source = name;
      card.image = read_image(name, entry, where, one.shape);
      one.dtype = card.image.dtype;
    } else if (kind == "audio" && card.source.empty()) {
      card.source = name, card.has_sound = true;
      card.sound = read_audio(name, entry, where, one.shape);
      one.dtype = card.sound.dtype;
    } else if (kind == "tensor") {
      ConstantInput constant = read_tensor(name, entry, where, one);
      if (constant.values.empty())
        not_fed.push_back(name);
      else
        card.constants.push_back(std::move(constant));
    } else {
      input.refuse(ONE_SOURCE + std::to_string(inputs.fields.size()) + " inputs, this one of kind " + kind +
                   ". Prepare the inputs yourself and use edgekit_run");
    }
    declared.push_back(std::move(one));
  }
  if ((card.has_task = table.has("task"))) card.task = read_task(json.at("task"), "card: task");
  const Json* states = table.has("states") ? &table.get("states", Json::object) : nullptr;
  if (states) {
    Table named(*states, "card: states");
    std::vector<std::string> names;
    for (const auto& [name, _] : inputs.fields) names.push_back(name);
    named.only(names);
    for (const auto& [name, _] : states->fields) card.states[name] = named.text(name.c_str());
  }
  for (const std::string& name : not_fed) {
    if (!card.states.count(name))
      table.refuse(": inputs." + name +
                   " is an array without a value; pass it to edgekit_run of libedgekit yourself");
    card.constants.push_back({name, {0}});
  }
  if (card.source.empty() || card.states.count(card.source))
    table.refuse(ONE_SOURCE + "none. Prepare the inputs yourself and use edgekit_run");
  if (card.has_sound && card.task.kind == "detect")
    table.refuse(": libedgekit decodes detect of pictures only; take the outputs of edgekit_run instead");
  const char* role = card.task.kind == "classify" ? "scores"
                     : card.task.kind == "detect" ? "predictions"
                                                  : "probability";
  check_model(card, declared, role, manifest);
  return card;
}

}  // namespace edgekit
