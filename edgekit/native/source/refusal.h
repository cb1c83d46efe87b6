// The one exception of the core: text for the user. The C interface turns it into edgekit_error().
#pragma once
#include <exception>
#include <string>
#include <utility>

namespace edgekit {

class Refusal : public std::exception {
 public:
  explicit Refusal(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace edgekit
