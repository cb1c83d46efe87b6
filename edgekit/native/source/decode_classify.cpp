// Classes of a whole picture (edgekit/tasks/classify/decode.py).
#include <algorithm>
#include <numeric>

#include "decode.h"
#include "pairwise_sum.h"
#include "rows.h"

namespace edgekit {

std::vector<Found> decode_classes(const Task& task, const float* given, size_t count) {
  float zero_point = static_cast<float>(task.zero_point), scale = static_cast<float>(task.scale);
  std::vector<float> scores(count);
  for (size_t i = 0; i < count; i++) scores[i] = (given[i] - zero_point) * scale;
  if (task.decode == "logits") {
    float most = *std::max_element(scores.begin(), scores.end());
    exponentials(scores.data(), scores.size(), most);
    float sum = pairwise_sum(scores.data(), scores.size());
    for (float& score : scores) score /= sum;
  }
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto best = order.begin() + std::min<uint64_t>(order.size(), task.top);
  std::partial_sort(order.begin(), best, order.end(), [&](size_t a, size_t b) {
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
  });
  std::vector<Found> found;
  for (auto at = order.begin(); at != best; at++)
    found.push_back({static_cast<int64_t>(*at), scores[*at], {}});
  return found;
}

}  // namespace edgekit
