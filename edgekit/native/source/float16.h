// float16 in 16 bits, rounded to nearest, ties to even, as numpy and processors do.
#pragma once
#include <cstdint>

namespace edgekit {

uint16_t float16_of(float value);
float float_of(uint16_t half);

}  // namespace edgekit
