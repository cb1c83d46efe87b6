// Classes of a whole picture (edgekit/processing/tasks/classify/decode.py).
#include <algorithm>
#include <numeric>

#include "decode.h"

namespace edgekit {
namespace {

// numpy's sum of float32: eight partial sums in blocks of 128, halves added.
float pairwise_sum(const float* values, size_t count) {
  if (count < 8) {
    float sum = 0;
    for (size_t i = 0; i < count; i++) sum += values[i];
    return sum;
  }
  if (count > 128) {
    size_t half = count / 2;
    half -= half % 8;
    return pairwise_sum(values, half) + pairwise_sum(values + half, count - half);
  }
  float r[8];
  std::copy_n(values, 8, r);
  size_t i = 8;
  for (; i < count - count % 8; i += 8) {
    for (size_t k = 0; k < 8; k++) r[k] += values[i + k];
  }
  float sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < count; i++) sum += values[i];
  return sum;
}

}  // namespace

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
