#include "shared_library.h"

#if defined(_WIN32)
#include <windows.h>
#elif !defined(__wasm__)
#include <dlfcn.h>
#endif

namespace edgekit {

#if defined(_WIN32)
SharedLibrary::SharedLibrary(const char* path, const std::string& name, const std::string&, const char*) {
  handle_ = reinterpret_cast<void*>(LoadLibraryA(path ? path : (name + ".dll").c_str()));
  if (!handle_) why_ = "Windows error " + std::to_string(GetLastError());
}

void* SharedLibrary::find(const char* function) const {
  return reinterpret_cast<void*>(GetProcAddress(reinterpret_cast<HMODULE>(handle_), function));
}
#elif defined(__wasm__)
SharedLibrary::SharedLibrary(const char*, const std::string&, const std::string&, const char*)
    : why_("WebAssembly opens no libraries") {}

void* SharedLibrary::find(const char*) const { return nullptr; }
#else
SharedLibrary::SharedLibrary(const char* path, const std::string& name, const std::string& major,
                             const char* first) {
  // A program that is linked with it, as apps for iOS are, needs no file.
  if (!path && dlsym(RTLD_DEFAULT, first)) {
    handle_ = RTLD_DEFAULT;
    return;
  }
#if defined(__APPLE__)
  const std::string file = "lib" + name + ".dylib";
#elif defined(__ANDROID__)
  const std::string file = "lib" + name + ".so";
#else
  const std::string file = "lib" + name + ".so" + major;
#endif
  handle_ = dlopen(path ? path : file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_) {
    const char* error = dlerror();
    why_ = error ? error : "the system gave no reason";
  } else if (!dlsym(handle_, first)) {
    why_ = std::string("it has no ") + first;
  }
}

void* SharedLibrary::find(const char* function) const { return dlsym(handle_, function); }
#endif

}  // namespace edgekit
