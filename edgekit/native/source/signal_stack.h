// The alternate signal stack of a thread, kept while an engine changes it.
#pragma once
#if !defined(_WIN32) && !defined(__wasm__)
#include <csignal>
#endif

namespace edgekit {

// OpenVINO 2026.4 sets one when it compiles, and frees it later: the next signal would end the process
// (edgekit/system/interrupts.py). This object restores the thread's own.
class KeptSignalStack {
#if !defined(_WIN32) && !defined(__wasm__)
 public:
  KeptSignalStack() : known_(sigaltstack(nullptr, &own_) == 0) {}
  ~KeptSignalStack() {
    if (known_) sigaltstack(&own_, nullptr);
  }
  KeptSignalStack(const KeptSignalStack&) = delete;
  KeptSignalStack& operator=(const KeptSignalStack&) = delete;

 private:
  stack_t own_{};
  const bool known_;
#endif
};

}  // namespace edgekit
