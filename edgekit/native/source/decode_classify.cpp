// Classes of a whole picture (edgekit/processing/tasks/classify/decode.py).
#include <algorithm>
#include <numeric>

#include "decode.h"
#include "pairwise_sum.h"

namespace edgekit {

std::vector<Found> decode_classes(const Task& task, const std::vector<float>& given) {
  float zero_point = static_cast<float>(task.zero_point), scale = static_cast<float>(task.scale);
  std::vector<float> scores(given.size());
  for (size_t i = 0; i < given.size(); i++) scores[i] = (given[i] - zero_point) * scale;
  if (task.decode == "logits") {
    float most = *std::max_element(scores.begin(), scores.end());
    for (float& score : scores) score = exponential(score - most);
    float sum = pairwise_sum(scores.data(), scores.size());
    for (float& score : scores) score /= sum;
  }
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  std::vector<Found> found;
  for (size_t i = 0; i < order.size() && i < static_cast<uint64_t>(task.top); i++) {
    found.push_back({static_cast<int64_t>(order[i]), scores[order[i]], {}});
  }
  return found;
}

}  // namespace edgekit
