// Numbers in a tensor's element type.
#pragma once
#include <string_view>
#include <vector>

namespace edgekit {

// Whether an integer type or bool holds a value; true of floats, which round.
bool holds(std::string_view dtype, double value);

// Write values to out, as numpy's astype does; those of an integer type are ones that it holds.
void write_numbers(std::string_view dtype, const std::vector<double>& values, unsigned char* out);

}  // namespace edgekit
