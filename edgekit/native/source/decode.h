// From the model's outputs to the task's answer (edgekit/tasks/).
#pragma once
#include <string>
#include <vector>

#include "card.h"
#include "edgekit.h"

namespace edgekit {

struct Found {
  int64_t index;
  float score;
  float box[4];
};

// Decode an output by the card's task. Raises Refusal: it does not fit, or is not finite.
std::vector<Found> decode_output(const Task& task, const edgekit_tensor& output,
                                 const edgekit_placement& placed);

// The same for the tasks; values are finite.
std::vector<Found> decode_classes(const Task& task, const float* scores, size_t count);
std::vector<Found> decode_boxes(const Task& task, const float* values, const std::vector<int64_t>& shape,
                                const edgekit_placement& placed);

// Boxes before non-maximum suppression, in the input's pixels.
struct Candidates {
  struct Corners {
    float x1, y1, x2, y2;
  };
  std::vector<Corners> boxes;
  std::vector<float> scores;
  std::vector<int64_t> classes;
};

// Return the indices of the kept boxes, best first (edgekit/processing/nms.py).
std::vector<size_t> suppress(const Candidates& found, const Task& task);

// Values of a tensor: its own where they are float32, or a copy.
struct Floats {
  std::vector<float> copy;
  const float* values;
  size_t count;
};

// Return the floats of a tensor of any number type. Raises Refusal: another type, or a value is not finite.
Floats floats_of(const edgekit_tensor& tensor);

// Return [1, 2, 3].
std::string shape_text(const edgekit_tensor& tensor);

}  // namespace edgekit
