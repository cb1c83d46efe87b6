// Things in a picture with their boxes (edgekit/tasks/detect/).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "decode.h"
#include "manifest.h"
#include "refusal.h"
#include "rows.h"

namespace edgekit {
namespace {

using Corners = Candidates::Corners;

// Position of the largest value; the first of equal ones. values[i * step], i < count.
size_t best_of(const float* values, size_t count, size_t step) {
  size_t best = 0;
  for (size_t i = 1; i < count; i++) best = values[i * step] > values[best * step] ? i : best;
  return best;
}

Corners corners(float x, float y, float width, float height) {
  return {x - width / 2, y - height / 2, x + width / 2, y + height / 2};
}

// Centre, width and height, from 0 to 1 of the input where the card says so, to corners in its pixels.
Corners yolo_corners(const Task& task, const float* values, size_t step, const edgekit_placement& placed) {
  float v[4];
  for (size_t k = 0; k < 4; k++) {
    v[k] = values[k * step];
    if (task.normalized) v[k] *= static_cast<float>(k % 2 ? placed.input_height : placed.input_width);
  }
  return corners(v[0], v[1], v[2], v[3]);
}

void add(Candidates& found, const Corners& box, float score, size_t index) {
  found.boxes.push_back(box);
  found.scores.push_back(score);
  found.classes.push_back(static_cast<int64_t>(index));
}

// Boxes to the picture's pixels, within the picture.
Found placed_box(const Corners& box, float score, int64_t index, const edgekit_placement& placed) {
  float offset_x = static_cast<float>(placed.offset_x), offset_y = static_cast<float>(placed.offset_y);
  float scale_x = static_cast<float>(placed.scale_x), scale_y = static_cast<float>(placed.scale_y);
  float width = static_cast<float>(placed.frame_width), height = static_cast<float>(placed.frame_height);
  auto across = [&](float x) { return std::min(std::max((x - offset_x) / scale_x, 0.0f), width); };
  auto down = [&](float y) { return std::min(std::max((y - offset_y) / scale_y, 0.0f), height); };
  return {index, score, {across(box.x1), down(box.y1), across(box.x2), down(box.y2)}};
}

void misfit(const std::vector<int64_t>& shape, const std::string& wanted) {
  throw Refusal("the output is " + list_text(shape) + "; " + wanted);
}

Candidates yolox(const Task& task, const float* values, const std::vector<int64_t>& shape,
                 const edgekit_placement& placed) {
  int64_t columns = shape.empty() ? 0 : shape.back();
  if (columns < 1) throw Refusal("predictions is " + list_text(shape) + "; it must be [1, n, columns]");
  if (columns < 6)
    throw Refusal("the output has " + std::to_string(columns) +
                  " columns; yolox decodes [1, cells, 5 + classes]");
  uint64_t rows = element_count(std::vector<int64_t>(shape.begin(), shape.end() - 1)), cells = 0;
  auto steps = [](int64_t side, int64_t stride) { return side / stride + (side % stride != 0); };
  for (int64_t stride : task.strides)
    cells += steps(placed.input_height, stride) * steps(placed.input_width, stride);
  if (rows != cells) {
    throw Refusal("the output has " + std::to_string(rows) + " rows, but strides " + list_text(task.strides) +
                  " on an input of " + std::to_string(placed.input_width) + "x" +
                  std::to_string(placed.input_height) + " make " + std::to_string(cells) +
                  "; set strides in the card");
  }
  Candidates found;
  if (!rows) return found;  // the other sizes are then those of nothing, and may be huge
  float least = static_cast<float>(task.score);
  std::vector<float> scores(columns - 5);
  const float* row = values;
  for (int64_t stride : task.strides) {
    int64_t wide = steps(placed.input_width, stride), high = steps(placed.input_height, stride);
    float step = static_cast<float>(stride);
    for (int64_t y = 0; y < high; y++) {
      for (int64_t x = 0; x < wide; x++, row += columns) {
        if (!(row[4] > least)) continue;
        for (size_t c = 0; c < scores.size(); c++) scores[c] = row[5 + c] * row[4];
        size_t best = best_of(scores.data(), scores.size(), 1);
        if (!(scores[best] > least)) continue;
        float centre_x = (row[0] + static_cast<float>(x)) * step,
              centre_y = (row[1] + static_cast<float>(y)) * step;
        float sizes[2] = {std::min(row[2], 20.0f), std::min(row[3], 20.0f)};
        exponentials(sizes, 2, 0);
        float half_x = sizes[0] * step / 2, half_y = sizes[1] * step / 2;
        add(found, {centre_x - half_x, centre_y - half_y, centre_x + half_x, centre_y + half_y}, scores[best],
            best);
      }
    }
  }
  return found;
}

Candidates yolov5(const Task& task, const float* values, const std::vector<int64_t>& shape,
                  const edgekit_placement& placed) {
  if (shape.size() != 3 || shape[0] != 1 || shape[2] < 6)
    misfit(shape, "yolov5 decodes [1, boxes, 5 + classes]");
  Candidates found;
  if (!shape[1]) return found;
  float least = static_cast<float>(task.score);
  std::vector<float> scores(shape[2] - 5);
  for (const float* row = values; row < values + shape[1] * shape[2]; row += shape[2]) {
    if (!(row[4] > least)) continue;
    for (size_t c = 0; c < scores.size(); c++) scores[c] = row[5 + c] * row[4];
    size_t best = best_of(scores.data(), scores.size(), 1);
    if (scores[best] > least) add(found, yolo_corners(task, row, 1, placed), scores[best], best);
  }
  return found;
}

Candidates yolov8(const Task& task, const float* values, const std::vector<int64_t>& shape,
                  const edgekit_placement& placed) {
  if (shape.size() != 3 || shape[0] != 1 || shape[1] < 5)
    misfit(shape, "yolov8 decodes [1, 4 + classes, boxes]");
  Candidates found;
  float least = static_cast<float>(task.score);
  size_t boxes = shape[2], classes = shape[1] - 4;
  for (size_t i = 0; i < boxes; i++) {
    size_t best = best_of(values + 4 * boxes + i, classes, boxes);
    float score = values[(4 + best) * boxes + i];
    if (score > least) add(found, yolo_corners(task, values + i, boxes, placed), score, best);
  }
  return found;
}

std::vector<Found> end2end(const Task& task, const float* values, const std::vector<int64_t>& shape,
                           const edgekit_placement& placed) {
  if (shape.size() != 3 || shape[0] != 1 || shape[2] != 6)
    misfit(shape, "end2end decodes [1, boxes, 6] here");
  std::vector<const float*> rows;
  for (int64_t i = 0; i < shape[1]; i++) {
    if (values[6 * i + 4] > static_cast<float>(task.score)) rows.push_back(values + 6 * i);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const float* a, const float* b) { return a[4] > b[4]; });
  rows.resize(std::min<uint64_t>(rows.size(), task.top));
  std::vector<Found> found;
  for (const float* row : rows) {
    bool turned = task.boxes == "y1x1y2x2";
    Corners box{row[turned], row[!turned], row[2 + turned], row[2 + !turned]};
    if (task.boxes == "xywh") box = corners(row[0], row[1], row[2], row[3]);
    if (task.normalized) {
      float width = static_cast<float>(placed.input_width), height = static_cast<float>(placed.input_height);
      box = {box.x1 * width, box.y1 * height, box.x2 * width, box.y2 * height};
    }
    bool fits = std::fabs(row[5]) < 9.2e18f;  // numpy gives the least integer for others
    found.push_back(placed_box(box, row[4], fits ? static_cast<int64_t>(row[5]) : INT64_MIN, placed));
  }
  return found;
}

}  // namespace

std::vector<Found> decode_boxes(const Task& task, const float* values, const std::vector<int64_t>& shape,
                                const edgekit_placement& placed) {
  if (task.decode == "end2end") return end2end(task, values, shape, placed);
  Candidates candidates = task.decode == "yolox"    ? yolox(task, values, shape, placed)
                          : task.decode == "yolov5" ? yolov5(task, values, shape, placed)
                                                    : yolov8(task, values, shape, placed);
  std::vector<Found> found;
  for (size_t i : suppress(candidates, task)) {
    found.push_back(placed_box(candidates.boxes[i], candidates.scores[i], candidates.classes[i], placed));
  }
  return found;
}

}  // namespace edgekit
