// This machine's processor (edgekit/system/cpu.py).
#pragma once
#include <string>
#include <vector>

#include "json.h"

namespace edgekit {

// Return the kind of processor that the library was built for, e.g. "x86_64".
const char* processor_kind();

// Return the uniform name of a kind of processor.
std::string uniform_kind(const std::string& machine);

// Return the instruction sets that decide which kernels an engine has, by Linux's names; empty elsewhere.
const std::vector<std::string>& instruction_sets();

// Return whether ONNX Runtime sums products of uint8 by int8 in 32 bits here (targets/edgekit_ort/run.py).
bool adds_widely();

// Return why a variant with these options does not compute as declared on this processor; "" if it does.
std::string lacking(const Json& options);

}  // namespace edgekit
