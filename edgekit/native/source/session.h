// A session: the best variant that runs here, and the next one when it fails.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "bundle.h"
#include "edgekit.h"
#include "load_order.h"

namespace edgekit {

struct Fallback {
  std::string from, to, reason;
};

class Session {
 public:
  Session(const Bundle& bundle, std::vector<const edgekit_engine*> engines, const edgekit_options& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Bundle& bundle() const { return bundle_; }
  const std::string& active() const { return bundle_.manifest().variants[order_.candidates[next_]].name; }
  const std::vector<Fallback>& fallbacks() const { return fallbacks_; }
  // Run the model; outputs are valid until the next call. Raises Refusal: all variants have failed.
  const std::vector<edgekit_tensor>& run(const edgekit_tensor* inputs, int count);
  // Memory for a prepared input, kept between runs.
  std::vector<unsigned char>& input() { return input_; }

 private:
  void load_next();                   // the first candidate from next_ on that loads
  void load(const Variant& variant);  // raises Refusal with the reason
  void check_golden(const Variant& variant);
  void run_engine(const edgekit_tensor* inputs, int count);
  void check_outputs() const;
  void unload();
  void fail(const std::string& reason);  // note why next_ does not run, and go on
  [[noreturn]] void give_up() const;

  const Bundle& bundle_;
  std::vector<const edgekit_engine*> engines_;
  bool strict_;
  int threads_;
  LoadOrder order_;
  size_t next_ = 0;
  std::vector<std::pair<std::string, std::string>> failures_;  // variant -> reason, in order
  std::vector<Fallback> fallbacks_;
  std::map<std::string, bool> may_be_infinite_;  // output -> a golden vector of it is not finite
  const edgekit_engine* engine_ = nullptr;
  void* loaded_ = nullptr;
  std::vector<edgekit_tensor> outputs_;
  std::vector<unsigned char> input_;
};

}  // namespace edgekit
