// Texts as Python writes them in errors: ascii(), repr() of numbers, escapes; and UTF-8.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace edgekit {

// Decode the code point at text[at] and move at behind it. Lone surrogates (as three bytes) pass: JSON
// escapes make them, and a later check refuses them. Returns -1 where the bytes are not UTF-8.
int32_t next_code_point(std::string_view text, size_t& at, bool surrogates);

// Append a code point as UTF-8.
void append_code_point(std::string& text, uint32_t code);

// Return the offset of the first byte that is not UTF-8, or npos.
size_t first_bad_byte(std::string_view text);

// Return the number of code points.
size_t characters(std::string_view text);

// Return the first `count` code points.
std::string_view first_characters(std::string_view text, size_t count);

// Return Python's ascii() of a text.
std::string ascii_text(std::string_view text);

// Return Python's ascii() of bytes, e.g. b'PK\x03\x04'.
std::string ascii_bytes(std::string_view bytes);

// Return Python's repr() of a float.
std::string float_text(double value);

// Return the text with control characters and direction overrides escaped, as errors show it.
std::string printable(std::string_view text);

// Whether a code point is escaped by printable().
bool is_unprintable(uint32_t code);

// Return parts joined by a separator.
std::string joined(const std::vector<std::string>& parts, const char* separator = ", ");

}  // namespace edgekit
