// The border to C: no exception leaves it, and every argument is checked.
#pragma once
#include <exception>
#include <new>
#include <string>

#include "bundle.h"
#include "refusal.h"
#include "text.h"

struct edgekit_bundle {
  edgekit::Bundle bundle;
  explicit edgekit_bundle(const char* path) : bundle(path) {}
};

namespace edgekit {

#if defined(__wasm__)
inline std::string error_text;
#else
inline thread_local std::string error_text;
#endif

// Run a function; where it fails, keep the reason and return `failed`.
template <class Result, class Function>
Result guarded(Result failed, Function function) noexcept {
  try {
    return function();
  } catch (const Refusal& problem) {
    error_text = printable(problem.what());
  } catch (const std::bad_alloc&) {
    error_text = "out of memory";
  } catch (const std::exception& problem) {
    error_text = std::string("internal error: ") + problem.what();
  }
  return failed;
}

template <class... Pointers>
void given(Pointers... pointers) {
  for (const void* pointer : {static_cast<const void*>(pointers)...}) {
    if (!pointer) throw Refusal("an argument is NULL; pass an object");
  }
}

inline size_t checked_index(int index, size_t count, const char* what) {
  if (index < 0 || static_cast<size_t>(index) >= count) {
    throw Refusal(std::string(what) + " " + std::to_string(index) + " does not exist; there are " +
                  std::to_string(count));
  }
  return static_cast<size_t>(index);
}

}  // namespace edgekit
