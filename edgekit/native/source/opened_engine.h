// An engine of each library, opened once.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "edgekit.h"
#include "mutex.h"

namespace edgekit {

// Return the engine of a library; open makes its context of the path and may raise Refusal. It is never
// freed: no engine survives its library's end.
template <class Context>
const edgekit_engine* opened_engine(const char* library, const edgekit_engine& functions,
                                    std::unique_ptr<Context> (*open)(const char*)) {
  static Mutex mutex;
  static auto& engines = *new std::map<std::string, edgekit_engine>;
  Lock held(mutex);
  auto [at, is_new] = engines.try_emplace(library ? library : "", functions);
  if (is_new) {
    try {
      at->second.context = open(library).release();
    } catch (...) {
      engines.erase(at);
      throw;
    }
  }
  return &at->second;
}

}  // namespace edgekit
