#include "sha256.h"

#include <algorithm>
#include <cstring>

namespace edgekit {
namespace {

constexpr uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

inline uint32_t turned(uint32_t x, int by) { return x >> by | x << (32 - by); }

}  // namespace

void Sha256::block(const uint8_t* bytes) {
  uint32_t w[64];
  for (int i = 0; i < 16; i++) {
    const uint8_t* b = bytes + 4 * i;
    w[i] = uint32_t(b[0]) << 24 | uint32_t(b[1]) << 16 | uint32_t(b[2]) << 8 | b[3];
  }
  for (int i = 16; i < 64; i++) {
    uint32_t s0 = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3;
    uint32_t s1 = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; i++) {
    uint32_t t1 = h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + ROUND[i] + w[i];
    uint32_t t2 = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; i++) state_[i] += sums[i];
}

void Sha256::update(const void* bytes, size_t size) {
  const uint8_t* at = static_cast<const uint8_t*>(bytes);
  total_ += size;
  while (size) {
    if (!held_size_ && size >= 64) {
      block(at);
      at += 64, size -= 64;
      continue;
    }
    size_t taken = std::min(size, 64 - held_size_);
    std::memcpy(held_ + held_size_, at, taken);
    held_size_ += taken, at += taken, size -= taken;
    if (held_size_ == 64) block(held_), held_size_ = 0;
  }
}

std::array<uint8_t, 32> Sha256::digest() {
  uint64_t bits = total_ * 8;
  uint8_t end[72] = {0x80};
  size_t zeros = (119 - total_ % 64) % 64;  // so that 1 + zeros + 8 bytes fill the last block
  for (int i = 0; i < 8; i++) end[1 + zeros + i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  update(end, 1 + zeros + 8);
  std::array<uint8_t, 32> out;
  for (int i = 0; i < 32; i++) out[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

std::string hexadecimal(const std::array<uint8_t, 32>& digest) {
  std::string out;
  for (uint8_t byte : digest) (out += "0123456789abcdef"[byte >> 4]) += "0123456789abcdef"[byte & 15];
  return out;
}

}  // namespace edgekit
