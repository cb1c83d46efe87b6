// From a picture to the model's input (edgekit/processing/image_preparation.py).
#pragma once
#include <cstdint>

#include "card.h"
#include "edgekit.h"
#include "resize.h"

namespace edgekit {

// Compute where a picture of this size lies in the input.
edgekit_placement place_image(const ImageInput& image, int width, int height);

// Write the input for a picture, uint8 [height, width, 3], to out, which has its size.
void prepare_image(const ImageInput& image, const Picture& picture, bool is_bgr, unsigned char* out);

}  // namespace edgekit
