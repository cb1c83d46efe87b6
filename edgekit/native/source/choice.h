// The choice of a variant: the best one that loads and is right here, and why earlier ones were left. It runs
// no engine: a session does, or a page.
#pragma once
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bundle.h"
#include "edgekit.h"
#include "golden.h"
#include "load_order.h"

namespace edgekit {

struct Fallback {
  std::string from, to, reason;
};

// Agreement of one output with a golden vector. limit_db is -1000 where the bundle has no limit.
struct Agreement {
  Snr snr;
  double limit_db;
};

class Choice {
 public:
  // named: the variant to try first, or "". whole_limits: no build has run variants on this engine, so each
  // output must have a limit, and its whole limit holds. Raises Refusal: there is no variant of that name.
  Choice(const Bundle& bundle, const std::string& named, bool strict, bool whole_limits);

  bool exhausted() const { return next_ == order_.candidates.size(); }
  // Return the index of the variant to load, or that runs; it must not be exhausted.
  size_t candidate() const { return order_.candidates[next_]; }
  const Variant& variant() const { return bundle_.manifest().variants[candidate()]; }
  // Note why the variant does not run and go on to the next one. Raises Refusal: strict.
  void fail(const std::string& reason);
  // The variant runs: list what was left for it.
  void settle();
  // Raise Refusal: no variant works, with each reason.
  [[noreturn]] void give_up() const;
  const std::vector<Fallback>& fallbacks() const { return fallbacks_; }

  // Return the inputs of a golden vector.
  std::vector<GoldenArray> golden_inputs(size_t golden) const;
  // Compare outputs with a golden vector. Appends to `found`, up to the first output beyond its limit. Raises
  // Refusal: outputs are not the model's, or an SNR is below its limit.
  void check_golden(size_t golden, const std::vector<edgekit_tensor>& outputs, std::vector<Agreement>& found);
  // Check dtypes, shapes and that values are finite. Raises Refusal.
  void check_outputs(const std::vector<edgekit_tensor>& outputs) const;
  // Check a run's inputs. Raises Refusal.
  void check_inputs(const edgekit_tensor* inputs, int count) const;

 private:
  const Bundle& bundle_;
  bool strict_, whole_limits_;
  LoadOrder order_;
  size_t next_ = 0;
  std::vector<std::pair<std::string, std::string>> failures_;  // variant -> reason, in order
  std::vector<Fallback> fallbacks_;
  std::set<std::string> may_be_infinite_;  // outputs of which a golden vector is not finite
};

// Return a golden array as a tensor, which is valid as long as the array.
edgekit_tensor tensor_of(GoldenArray& array);

}  // namespace edgekit
