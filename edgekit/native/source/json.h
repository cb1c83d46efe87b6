// Strict JSON within limits, as edgekit/system/formats/strict_json.py reads it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace edgekit {

struct Json {
  enum Kind { null, boolean, whole, real, text, list, object };

  Kind kind = null;
  bool truth = false;
  bool fits = false;                                 // whole: it fits int64
  int64_t number = 0;                                // whole, if it fits
  double decimal = 0;                                // real, and whole as the nearest double
  std::string content;                               // text; whole: its digits
  std::vector<Json> items;                           // list
  std::vector<std::pair<std::string, Json>> fields;  // object, in the order of the text
  size_t begin = 0, end = 0;                         // where the value is in the text, in bytes

  bool is(Kind other) const { return kind == other; }
  bool is_number() const { return kind == whole || kind == real; }
  // Return the value of a key, or NULL; also where this is not an object.
  const Json* find(std::string_view key) const;
  // Return the value of a key that was checked to be there.
  const Json& at(std::string_view key) const;
};

// Parse UTF-8 JSON. Raises Refusal with Python's text, except that syntax errors are described in fewer
// words.
Json parse_json(std::string_view data, const std::string& what, size_t limit_bytes);

// Return a value for an error message: in ASCII, at most 60 characters.
std::string brief(const Json& value);
std::string brief(std::string_view text);

// Raise Refusal if a text is too long, or holds control characters or lone surrogates.
void check_text(std::string_view text, const std::string& where);

}  // namespace edgekit
