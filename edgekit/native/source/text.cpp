#include "text.h"

#include <charconv>
#include <cmath>
#include <cstdio>

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

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[64];
  auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific).ptr;
  std::string text(digits, end);
  std::string sign = text[0] == '-' ? "-" : "";
  size_t e = text.find('e');
  std::string mantissa = text.substr(sign.size(), e - sign.size());
  int power = std::atoi(text.c_str() + e + 1);
  if (mantissa.size() > 1) mantissa.erase(1, 1);  // the point
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
