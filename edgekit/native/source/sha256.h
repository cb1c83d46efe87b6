// SHA-256 of FIPS 180-4.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace edgekit {

class Sha256 {
 public:
  void update(const void* bytes, size_t size);
  // Return the digest; the object must not be used after it.
  std::array<uint8_t, 32> digest();

 private:
  void block(const uint8_t* bytes);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t held_[64] = {};
  size_t held_size_ = 0;
  uint64_t total_ = 0;
};

// Return bytes as lower-case hexadecimal digits.
std::string hexadecimal(const std::array<uint8_t, 32>& digest);

}  // namespace edgekit
