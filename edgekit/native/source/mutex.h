// A lock between threads; WebAssembly has one thread, and zig's C++ library for it has no std::mutex.
#pragma once
#if !defined(__wasm__)
#include <mutex>
#endif

namespace edgekit {

#if defined(__wasm__)
struct Mutex {};
struct Lock {
  explicit Lock(Mutex&) {}
};
#else
using Mutex = std::mutex;
using Lock = std::lock_guard<std::mutex>;
#endif

}  // namespace edgekit
