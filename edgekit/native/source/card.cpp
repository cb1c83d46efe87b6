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
};

const Decoder& decoder_of(const Table& table) {
  const std::string &kind = table.text("kind"), &decode = table.text("decode");
  for (const Decoder& one : DECODERS) {
    if (kind == one.kind && decode == one.name) return one;
  }
  table.refuse(
      ": libedgekit does not decode kind = " + ascii_text(kind) + ", decode = " + ascii_text(decode) +
      "; it decodes classify (logits, probabilities) and detect (yolox, yolov5, yolov8, end2end). Take the "
      "outputs of edgekit_run instead");
}

void set_defaults(Task& task) {
  if (task.kind == "classify") {
    task.top = 5;
  } else if (task.decode == "yolox") {
    task.score = 0.3, task.iou = 0.5, task.top = 100, task.strides = {8, 16, 32};
  } else {
    task.score = 0.25, task.iou = 0.7, task.top = 300;
  }
}

void check_options(const Task& task, const Table& table) {
  auto within = [&](const char* name, double value) {
    if (!(value >= 0 && value <= 1))
      table.refuse(std::string(".") + name + " is " + short_text(value) + "; it must be from 0 to 1");
  };
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

void check_model(const Card& card, const std::vector<int64_t>& shape, const Manifest& manifest) {
  const std::string& name = card.image.name;
  const TensorSpec* spec = find(manifest.inputs, name);
  if (!spec) {
    throw Refusal(card.title + ": the model has no input " + name + "; its inputs are " +
                  names_of(manifest.inputs));
  }
  if (spec->shape != shape) {
    throw Refusal(card.title + ": input " + name + " is " + by(shape) + " in the card but " +
                  by(spec->shape) + " in the model");
  }
  if (spec->dtype != card.image.dtype) {
    throw Refusal(card.title + ": input " + name + " is " + card.image.dtype + " in the card but " +
                  spec->dtype + " in the model");
  }
  if (card.has_task && !find(manifest.outputs, card.task.output)) {
    throw Refusal(card.title + ": task.outputs." + (card.task.kind == "classify" ? "scores" : "predictions") +
                  " is " + ascii_text(card.task.output) + ", but the model's outputs are " +
                  names_of(manifest.outputs));
  }
}

}  // namespace

std::string Task::label(int64_t index) const {
  bool named = index >= 0 && index < static_cast<int64_t>(labels.size()) && !labels[index].empty();
  return named ? labels[index] : std::to_string(index);
}

Task read_task(const Json& json, const std::string& where) {
  Table table(json, where);
  if (!json.is(Json::object)) table.only({});
  const Decoder& decoder = decoder_of(table);
  std::vector<std::string> allowed = {"kind", "decode", "outputs", "labels"};
  allowed.insert(allowed.end(), decoder.options.begin(), decoder.options.end());
  table.only(allowed);
  Task task;
  task.kind = decoder.kind, task.decode = decoder.name;
  Table outputs(table.get("outputs", Json::object), where + ".outputs");
  outputs.only({decoder.role});
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
  std::vector<int64_t> shape;
  for (const auto& [name, entry] : inputs.fields) {
    const std::string where = "card: inputs." + name;
    Table input(entry, where);
    if (!entry.is(Json::object)) input.only({});
    const std::string& kind = input.choice("kind", {"image", "tensor", "audio", "text"});
    if (kind != "image" || inputs.fields.size() > 1) {
      input.refuse(": libedgekit prepares a single image; this card has " +
                   std::to_string(inputs.fields.size()) + " inputs, this one of kind " + kind +
                   ". Prepare the inputs yourself and use edgekit_run");
    }
    card.image = read_image(name, entry, where, shape);
  }
  if (const Json* states = json.find("states"); states && !states->fields.empty()) {
    table.refuse(": libedgekit keeps no states between runs; pass them to edgekit_run yourself");
  }
  if ((card.has_task = table.has("task"))) card.task = read_task(json.at("task"), "card: task");
  check_model(card, shape, manifest);
  return card;
}

}  // namespace edgekit
