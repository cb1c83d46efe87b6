// Resizing of 8-bit pictures, bit for bit as edgekit/processing/resize.py.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace edgekit {

struct Box {
  int left, top, width, height;
};

// Axis of a resize: `source` pixels become `size`; `length` of them from `start` on are computed.
struct Axis {
  int source;
  int64_t size, start;
  int length;
};

// uint8 [rows, columns, channels].
struct Picture {
  const uint8_t* pixels;
  int width, height, channels;
};

// Return a product of sides and bytes. Raises std::bad_alloc where a 32-bit machine cannot hold as many.
size_t memory_size(uint64_t rows, uint64_t columns, uint64_t bytes);

// Takes a row of the result, uint8 [x.length, channels].
using TakeRow = std::function<void(int row, const uint8_t* pixels)>;

// Resize a part of a picture, from `left` and `top` on, row by row.
void resize_picture(const Picture& picture, int left, int top, const Axis& x, const Axis& y, bool cubic,
                    bool antialias, const TakeRow& take);

// Luma of ITU-R BT.601 as OpenCV computes it: uint8 [rows, columns, 1].
std::vector<uint8_t> grey_picture(const Picture& picture, bool is_bgr);

}  // namespace edgekit
