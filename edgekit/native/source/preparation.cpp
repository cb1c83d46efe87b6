#include "preparation.h"

#include <cstring>
#include <new>

#include "golden.h"
#include "image.h"
#include "numbers.h"
#include "refusal.h"

namespace edgekit {
namespace {

constexpr int SIDE_LIMIT = 1 << 16;

Picture checked_picture(const edgekit_input& input) {
  const int width = input.width, height = input.height;
  if (width < 1 || height < 1 || width > SIDE_LIMIT || height > SIDE_LIMIT) {
    throw Refusal("a picture of " + std::to_string(width) + "x" + std::to_string(height) +
                  "; its sides must be from 1 to " + std::to_string(SIDE_LIMIT));
  }
  memory_size(width, height, 3);
  if (input.order != EDGEKIT_RGB && input.order != EDGEKIT_BGR) {
    throw Refusal("order is " + std::to_string(input.order) + "; it must be EDGEKIT_RGB or EDGEKIT_BGR");
  }
  return {static_cast<const uint8_t*>(input.values), width, height, 3};
}

const ConstantInput* constant_of(const Card& card, const std::string& name) {
  for (const ConstantInput& constant : card.constants) {
    if (constant.name == name) return &constant;
  }
  return nullptr;
}

size_t bytes_of(const TensorSpec& spec) {
  const uint64_t count = element_count(spec.shape), size = element_bytes(spec.dtype);
  if (count > static_cast<uint64_t>(PTRDIFF_MAX) / size) throw std::bad_alloc();
  return static_cast<size_t>(count * size);
}

}  // namespace

Preparation::Preparation(const Bundle& bundle) : bundle_(bundle), card_(bundle.card()) {
  const auto& inputs = bundle.manifest().inputs;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (inputs[i].name == card_.source) {
      source_ = i;
    } else if (!constant_of(card_, inputs[i].name)) {
      throw Refusal(card_.title + ": the card has no value for input " + inputs[i].name +
                    "; prepare the inputs yourself and use edgekit_run");
    }
  }
}

void Preparation::begin() {
  const auto& inputs = bundle_.manifest().inputs;
  memory_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); i++) {
    memory_[i].resize(bytes_of(inputs[i]));
    if (i == source_) continue;
    std::vector<double> values = constant_of(card_, inputs[i].name)->values;
    if (values.size() == 1) values.assign(static_cast<size_t>(element_count(inputs[i].shape)), values[0]);
    write_numbers(inputs[i].dtype, values, memory_[i].data());
  }
  tensors_.clear();
  for (size_t i = 0; i < inputs.size(); i++)
    tensors_.push_back(tensor_of(inputs[i], memory_[i].data(), memory_[i].size()));
  listener_.reset();
}

void Preparation::place_picture(const edgekit_input& input) {
  const Picture picture = checked_picture(input);
  if (tensors_.empty() || input.begins) begin();
  prepare_image(card_.image, picture, input.order == EDGEKIT_BGR, memory_[source_].data());
  prepared_.placement = place_image(card_.image, input.width, input.height);
}

bool Preparation::next_window(const edgekit_input* input) {
  if (input) {
    if (!listener_ || input->begins) {
      auto listener = std::make_unique<Listener>(card_.sound, input->rate_hz);
      begin();
      listener_ = std::move(listener);
    }
    listener_->add(static_cast<const float*>(input->values), input->count, input->rate_hz, input->ends != 0);
  }
  if (!listener_ || !listener_->has_window()) return false;
  listener_->window(memory_[source_].data(), &prepared_.start_s, &prepared_.end_s);
  return true;
}

const edgekit_prepared& Preparation::prepare(const edgekit_input* input) {
  const int kind = card_.has_sound ? EDGEKIT_SOUND : EDGEKIT_PICTURE;
  if (input ? input->kind != kind : !card_.has_sound) {
    throw Refusal(card_.title + " takes a " + (card_.has_sound ? "sound" : "picture") + ": its input " +
                  card_.source + " is of kind " + (card_.has_sound ? "EDGEKIT_SOUND" : "EDGEKIT_PICTURE") +
                  ", not " + (input ? std::to_string(input->kind) : "NULL"));
  }
  if (input && !input->values && (!card_.has_sound || input->count))
    throw Refusal("values is NULL; pass the pixels or samples");
  prepared_ = {};
  if (card_.has_sound) {
    if (!next_window(input)) return prepared_;
  } else {
    place_picture(*input);
  }
  prepared_.count = static_cast<int>(tensors_.size());
  prepared_.inputs = tensors_.data();
  return prepared_;
}

void Preparation::carry(const edgekit_tensor* outputs, int count) {
  if (tensors_.empty()) throw Refusal("nothing was prepared; call edgekit_prepare before edgekit_carry");
  std::vector<const edgekit_tensor*> taken(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); i++) {
    const auto state = card_.states.find(tensors_[i].name);
    if (state == card_.states.end()) continue;
    for (int k = 0; k < count && !taken[i]; k++) {
      if (outputs[k].name && state->second == outputs[k].name) taken[i] = &outputs[k];
    }
    if (!taken[i])
      throw Refusal("output " + state->second + " is missing, which is the next " + state->first);
    check_tensor(*taken[i]);
    if (taken[i]->size_bytes != memory_[i].size() || std::strcmp(taken[i]->dtype, tensors_[i].dtype) != 0)
      throw Refusal("output " + state->second + " has another size or dtype than input " + state->first +
                    ", whose next value it is");
  }
  for (size_t i = 0; i < taken.size(); i++) {
    if (taken[i] && !memory_[i].empty()) std::memcpy(memory_[i].data(), taken[i]->bytes, memory_[i].size());
  }
}

}  // namespace edgekit
