// From what an app has to all of the model's inputs, by the card (edgekit/processing/processing.py,
// edgekit/runtime/streaming/carried.py).
#pragma once
#include <memory>
#include <vector>

#include "bundle.h"
#include "edgekit.h"
#include "sound.h"

namespace edgekit {

class Preparation {
 public:
  // The bundle must outlive it. Raises Refusal: there is no card, it is malformed, or does not fit the model.
  explicit Preparation(const Bundle& bundle);

  // Prepare a picture, or the next window of a sound; NULL adds no samples. What it returns is valid until
  // the next call. Raises Refusal: it is not what the card takes.
  const edgekit_prepared& prepare(const edgekit_input* input);

  // Keep the states among a run's outputs for the next call. Raises Refusal: one is missing or has another
  // size.
  void carry(const edgekit_tensor* outputs, int count);

 private:
  void begin();  // constants, and states before the first run
  void place_picture(const edgekit_input& input);
  bool next_window(const edgekit_input* input);

  const Bundle& bundle_;
  const Card& card_;
  size_t source_ = 0;  // number of the picture's or the sound's input
  std::vector<std::vector<unsigned char>> memory_;
  std::vector<edgekit_tensor> tensors_;
  std::unique_ptr<Listener> listener_;
  edgekit_prepared prepared_{};
};

}  // namespace edgekit
