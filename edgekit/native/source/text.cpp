#include "text.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace edgekit {

int32_t next_code_point(std::string_view text, size_t& at, bool surrogates) {
  auto byte = [&](size_t i) -> uint32_t { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0u; };
  uint32_t first = byte(at);
  if (first < 0x80) return ++at, static_cast<int32_t>(first);
  int more = first >= 0xC2 && first < 0xE0   ? 1
             : first >= 0xE0 && first < 0xF0 ? 2
             : first >= 0xF0 && first < 0xF5 ? 3
                                             : 0;
  if (!more) return -1;
  uint32_t code = first & (0x3Fu >> more);
  for (int i = 1; i <= more; i++) {
    if ((byte(at + i) & 0xC0) != 0x80) return -1;
    code = code << 6 | (byte(at + i) & 0x3F);
  }
  if ((more == 2 && code < 0x800) || (more == 3 && (code < 0x10000 || code > 0x10FFFF))) return -1;
  if (!surrogates && code >= 0xD800 && code < 0xE000) return -1;
  at += 1 + more;
  return static_cast<int32_t>(code);
}

void append_code_point(std::string& text, uint32_t code) {
  auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F)), put(0x80 | (code >> 6 & 0x3F)),
        put(0x80 | (code & 0x3F));
  }
}

size_t first_bad_byte(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    if (next_code_point(text, at, false) < 0) return start;
  }
  return std::string_view::npos;
}

size_t characters(std::string_view text) {
  size_t count = 0;
  for (char byte : text) count += (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  return count;
}

std::string_view first_characters(std::string_view text, size_t count) {
  size_t at = 0;
  while (at < text.size() && count--) {
    if (next_code_point(text, at, true) < 0) at++;
  }
  return text.substr(0, at);
}

static std::string escaped(uint32_t code) {
  char out[16];
  std::snprintf(out, sizeof out, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
  return out;
}

std::string ascii_text(std::string_view text) {
  bool single = text.find('\'') != std::string_view::npos, twice = text.find('"') != std::string_view::npos;
  char quote = single && !twice ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    int32_t code = next_code_point(text, at, true);
    if (code < 0) {
      out += escaped(static_cast<uint8_t>(text[at++]));
    } else if (code == quote || code == '\\') {
      (out += '\\') += static_cast<char>(code);
    } else if (code == '\n' || code == '\t' || code == '\r') {
      out += code == '\n' ? "\\n" : code == '\t' ? "\\t" : "\\r";
    } else if (code < 0x20 || code >= 0x7F) {
      out += escaped(static_cast<uint32_t>(code));
    } else {
      out += static_cast<char>(code);
    }
  }
  return out += quote;
}

std::string ascii_bytes(std::string_view bytes) {
  std::string latin;
  for (char byte : bytes) append_code_point(latin, static_cast<uint8_t>(byte));
  return "b" + ascii_text(latin);
}

namespace {

struct Decimal {
  std::string digits;  // the point follows the first one
  int power;
};

// Return the next larger decimal of as many digits, or of one digit where all are 9.
Decimal next_larger(Decimal decimal) {
  std::string& digits = decimal.digits;
  while (!digits.empty() && digits.back() == '9') digits.pop_back();
  if (digits.empty()) return {"1", decimal.power + 1};
  digits.back()++;
  return decimal;
}

// Return the fewest digits that read back as a finite value above 0, the nearest ones of as many. Not by
// std::to_chars: its tables take 110 kB. The nearest decimal may lie too far below a power of two, where
// values are half as far apart as above it, and the next larger one within reach.
Decimal shortest_decimal(double value) {
  Decimal nearest;
  auto reads_back = [&](const Decimal& decimal) {  // without a point, which is the locale's
    int exponent = decimal.power - static_cast<int>(decimal.digits.size()) + 1;
    return std::strtod((decimal.digits + "e" + std::to_string(exponent)).c_str(), nullptr) == value;
  };
  for (int count = 1; count <= 17; count++) {
    char text[40];
    std::snprintf(text, sizeof text, "%.*e", count - 1, value);
    const char* e = std::strchr(text, 'e');
    nearest = {text[0] + std::string(count > 1 ? e - count + 1 : e, e), std::atoi(e + 1)};
    if (reads_back(nearest)) break;
    if (Decimal larger = next_larger(nearest); reads_back(larger)) return larger;
  }
  return nearest;
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string sign = std::signbit(value) ? "-" : "";
  auto [mantissa, power] = value == 0 ? Decimal{"0", 0} : shortest_decimal(std::fabs(value));
  if (power >= -4 && power < 16) {
    if (power < 0) return sign + "0." + std::string(-power - 1, '0') + mantissa;
    if (mantissa.size() <= static_cast<size_t>(power) + 1) mantissa.append(power + 2 - mantissa.size(), '0');
    return sign + mantissa.insert(power + 1, ".");
  }
  if (mantissa.size() > 1) mantissa.insert(1, ".");
  char tail[16];
  std::snprintf(tail, sizeof tail, "e%c%02d", power < 0 ? '-' : '+', power < 0 ? -power : power);
  return sign + mantissa + tail;
}

bool is_unprintable(uint32_t c) {
  return c <= 0x08 || (c >= 0x0B && c <= 0x1F) || (c >= 0x7F && c <= 0x9F) || (c >= 0x202A && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069) || (c >= 0xD800 && c <= 0xDFFF);
}

std::string printable(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    int32_t code = next_code_point(text, at, true);
    if (code < 0) {
      out += escaped(0xDC00u + static_cast<uint8_t>(text[at++]));
    } else if (is_unprintable(static_cast<uint32_t>(code))) {
      out += code == '\r' ? "\\r" : escaped(static_cast<uint32_t>(code));
    } else {
      append_code_point(out, static_cast<uint32_t>(code));
    }
  }
  return out;
}

std::string joined(const std::vector<std::string>& parts, const char* separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); i++) (out += i ? separator : "") += parts[i];
  return out;
}

}  // namespace edgekit
