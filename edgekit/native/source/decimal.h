// Numbers from text, whatever the program's locale is: strtod would read "0.5" as 0 where a comma is the
// point.
#pragma once
#include <string>

namespace edgekit {

// Return the double nearest to a JSON number; infinite where it is beyond.
double parse_decimal(const std::string& text);

}  // namespace edgekit
