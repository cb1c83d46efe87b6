#include "decimal.h"

#include <clocale>
#include <cmath>
#include <cstdlib>

namespace edgekit {

double parse_decimal(const std::string& text) {
  const char* point = std::localeconv()->decimal_point;
  if (point[0] == '.' && !point[1]) return std::strtod(text.c_str(), nullptr);
  std::string local = text;  // strtod rounds correctly, and from_chars of doubles is not in every libc++
  if (size_t at = local.find('.'); at != std::string::npos) local.replace(at, 1, point);
  return std::strtod(local.c_str(), nullptr);
}

}  // namespace edgekit
