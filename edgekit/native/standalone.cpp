// Only in the shared library, because it replaces a function of the whole program: leaves a part of libc++ out.
// libc++'s handler of uncaught exceptions prints the type's name readably, which takes 110 kB of the library.
// No exception leaves the library (guarded.h), so the handler may print the compiler's name of the type.
#include <cstddef>

#if defined(_LIBCPP_VERSION)
extern "C" __attribute__((visibility("hidden"))) char* __cxa_demangle(const char*, char*, size_t*, int* status) {
  if (status) *status = -2;  // not a valid name: the handler prints it as it is
  return nullptr;
}
#endif
