// The order in which a session loads variants (edgekit/runtime/fallback/policy.py).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "manifest.h"

namespace edgekit {

struct LoadOrder {
  std::vector<size_t> candidates;                            // variants, best first
  std::vector<std::pair<std::string, std::string>> skipped;  // variant -> why it may not run
};

// Rank the variants. named: the one to try first, or "". Raises Refusal: there is no such variant.
LoadOrder rank_variants(const Manifest& manifest, const std::string& bundle, const std::string& named);

}  // namespace edgekit
