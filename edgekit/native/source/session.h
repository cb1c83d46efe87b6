// A session: the best variant that runs here, and the next one when it fails.
#pragma once
#include <string>
#include <vector>

#include "choice.h"
#include "preparation.h"

namespace edgekit {

class Session {
 public:
  Session(const Bundle& bundle, std::vector<const edgekit_engine*> engines, const edgekit_options& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Bundle& bundle() const { return bundle_; }
  // Return the variant that runs. Raises Refusal: all have failed.
  const std::string& active() const {
    if (choice_.exhausted()) choice_.give_up();
    return choice_.variant().name;
  }
  const std::vector<Fallback>& fallbacks() const { return choice_.fallbacks(); }
  // Run the model; outputs are valid until the next call. Raises Refusal: all variants have failed.
  const std::vector<edgekit_tensor>& run(const edgekit_tensor* inputs, int count);
  // Prepare an input, run on it and keep its states; outputs are valid until the next call. NULL: samples are
  // missing for the next window.
  const std::vector<edgekit_tensor>* run(const edgekit_input* input, edgekit_prepared& prepared);

 private:
  void load_next();                   // the first candidate from the choice's on that loads
  void load(const Variant& variant);  // raises Refusal with the reason
  void check_golden();
  void run_engine(const edgekit_tensor* inputs, int count);
  void unload();
  void fail(const std::string& reason);  // unload the variant, and go on to the next one

  const Bundle& bundle_;
  std::vector<const edgekit_engine*> engines_;
  int threads_;
  Choice choice_;
  const edgekit_engine* engine_ = nullptr;
  void* loaded_ = nullptr;
  std::vector<edgekit_tensor> outputs_;
  std::unique_ptr<Preparation> preparation_;  // made when it is first needed: a bundle may have no card
};

}  // namespace edgekit
