// Resizing of 8-bit pictures, bit for bit as edgekit/processing/resize.py.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace edgekit {

struct Box {
  int left, top, width, height;
};

// uint8 [rows, columns, channels].
struct Picture {
  const uint8_t* pixels;
  int width, height, channels;
};

// Return a product of sides and bytes. Raises std::bad_alloc where a 32-bit machine cannot hold as many.
size_t memory_size(uint64_t rows, uint64_t columns, uint64_t bytes);

// Resize a box of a picture to uint8 [height, width, channels].
std::vector<uint8_t> resize_picture(const Picture& picture, const Box& box, int width, int height, bool cubic,
                                    bool antialias);

// Luma of ITU-R BT.601 as OpenCV computes it: uint8 [rows, columns, 1].
std::vector<uint8_t> grey_picture(const Picture& picture, bool is_bgr);

}  // namespace edgekit
