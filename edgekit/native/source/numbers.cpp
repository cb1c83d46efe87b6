#include "numbers.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "float16.h"

namespace edgekit {
namespace {

template <class Number, class Convert>
void write(const std::vector<double>& values, unsigned char* out, Convert convert) {
  for (double value : values) {
    Number number = static_cast<Number>(convert(value));
    std::memcpy(out, &number, sizeof number);
    out += sizeof number;
  }
}

// Return the float32 from which float16 rounds as from the float64: where it is inexact, the odd one.
float odd_float(double value) {
  float near = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &near, sizeof bits);
  if (static_cast<double>(near) == value || !std::isfinite(near) || (bits & 1)) return near;
  return std::nextafter(near, static_cast<float>(value > near ? INFINITY : -INFINITY));
}

}  // namespace

bool holds(std::string_view dtype, double value) {
  if (dtype[0] == 'f') return true;
  if (value != std::trunc(value)) return false;
  auto within = [&](double low, double high) { return value >= low && value <= high; };
  if (dtype == "bool") return within(0, 1);
  if (dtype == "int8") return within(-128, 127);
  if (dtype == "uint8") return within(0, 255);
  if (dtype == "int16") return within(-32768, 32767);
  if (dtype == "uint16") return within(0, 65535);
  if (dtype == "int32") return within(-2147483648.0, 2147483647.0);
  return value >= -9223372036854775808.0 && value < 9223372036854775808.0;
}

void write_numbers(std::string_view dtype, const std::vector<double>& values, unsigned char* out) {
  auto same = [](double value) { return value; };
  if (dtype == "float32") return write<float>(values, out, same);
  if (dtype == "float64") return write<double>(values, out, same);
  if (dtype == "float16")
    return write<uint16_t>(values, out, [](double v) { return float16_of(odd_float(v)); });
  if (dtype == "int16") return write<int16_t>(values, out, same);
  if (dtype == "uint16") return write<uint16_t>(values, out, same);
  if (dtype == "int32") return write<int32_t>(values, out, same);
  if (dtype == "int64") return write<int64_t>(values, out, same);
  if (dtype == "int8") return write<int8_t>(values, out, same);
  write<uint8_t>(values, out, same);  // uint8, bool
}

}  // namespace edgekit
