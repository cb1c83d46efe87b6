// Greedy non-maximum suppression within each class, in float32 (edgekit/processing/nms.py).
#include <algorithm>
#include <numeric>

#include "decode.h"

namespace edgekit {
namespace {

constexpr size_t CANDIDATES = 1024;

float area(const Candidates::Corners& b) { return std::max(b.x2 - b.x1, 0.0f) * std::max(b.y2 - b.y1, 0.0f); }

bool is_over(const Candidates::Corners& a, const Candidates::Corners& b, float iou) {
  float wide = std::min(a.x2, b.x2) - std::max(a.x1, b.x1),
        high = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  float shared = std::max(wide, 0.0f) * std::max(high, 0.0f);
  return shared > iou * (area(a) + area(b) - shared);
}

}  // namespace

std::vector<size_t> suppress(const Candidates& found, const Task& task) {
  std::vector<size_t> order(found.scores.size()), kept;
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return found.scores[a] > found.scores[b]; });
  order.resize(std::min(order.size(), CANDIDATES));
  std::vector<bool> dead(order.size());
  float iou = static_cast<float>(task.iou);
  for (size_t i = 0; i < order.size() && kept.size() < static_cast<uint64_t>(task.top); i++) {
    if (dead[i]) continue;
    kept.push_back(order[i]);
    for (size_t j = i + 1; j < order.size(); j++) {
      bool rivals = task.class_agnostic || found.classes[order[i]] == found.classes[order[j]];
      if (rivals && !dead[j]) dead[j] = is_over(found.boxes[order[i]], found.boxes[order[j]], iou);
    }
  }
  return kept;
}

}  // namespace edgekit
