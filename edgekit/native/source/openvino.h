// OpenVINO as an engine, opened at run time.
#pragma once
#include "edgekit.h"

namespace edgekit {

// Return the engine; raises Refusal. library: path of the shared library, or NULL for the system's name.
const edgekit_engine* openvino(const char* library);

}  // namespace edgekit
