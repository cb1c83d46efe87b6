// A shared library that is opened at run time, and stays.
#pragma once
#include <string>

namespace edgekit {

class SharedLibrary {
 public:
  // path: NULL looks for `first`, a function, in the program itself, and then for the system's library of
  // this name; major is the number behind its name on Linux, e.g. ".1".
  SharedLibrary(const char* path, const std::string& name, const std::string& major, const char* first);

  // Return a function's address, or NULL.
  void* find(const char* function) const;

  // Return why the library was not opened; "" if it was.
  const std::string& why() const { return why_; }

 private:
  void* handle_ = nullptr;
  std::string why_;
};

}  // namespace edgekit
