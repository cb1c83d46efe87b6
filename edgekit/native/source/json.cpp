#include "json.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <unordered_set>

#include "decimal.h"
#include "refusal.h"
#include "text.h"

namespace edgekit {
namespace {

constexpr int DEPTH_LIMIT = 32;
constexpr size_t VALUES_LIMIT = 500000, TEXT_LIMIT_CHARS = 65536, NUMBER_LIMIT_CHARS = 32;

class Parser {
 public:
  Parser(std::string_view data, const std::string& what) : data_(data), what_(what) {}

  Json document() {
    Json value = any(1);
    space();
    if (at_ != data_.size()) fail("extra data");
    return value;
  }

 private:
  [[noreturn]] void fail(const char* why) {
    std::string place = std::to_string(characters(data_.substr(0, at_)));
    throw Refusal(what_ + ": character " + place + " is not JSON: " + why);
  }

  char peek() const { return at_ < data_.size() ? data_[at_] : '\0'; }

  void space() {
    while (at_ < data_.size() &&
           (data_[at_] == ' ' || data_[at_] == '\n' || data_[at_] == '\t' || data_[at_] == '\r'))
      at_++;
  }

  bool word(std::string_view expected) {
    if (data_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }

  Json any(int depth) {
    space();
    Json value;
    value.begin = at_;
    char first = peek();
    if (first == '{' || first == '[') {
      if (depth > DEPTH_LIMIT) {
        throw Refusal(what_ + ": objects and lists are more than " + std::to_string(DEPTH_LIMIT) + " deep");
      }
      at_++;
      first == '{' ? members(value, depth) : elements(value, depth);
    } else if (first == '"') {
      at_++;
      value.kind = Json::text;
      value.content = string();
    } else if (first == '-' || (first >= '0' && first <= '9')) {
      number(value);
    } else if (word("true") || word("false")) {
      value.kind = Json::boolean;
      value.truth = first == 't';
    } else if (!word("null")) {
      fail("expecting value");
    }
    value.end = at_;
    return value;
  }

  void members(Json& value, int depth) {
    value.kind = Json::object;
    space();
    if (peek() == '}') return void(at_++);
    while (true) {
      space();
      if (peek() != '"') fail("expecting property name enclosed in double quotes");
      at_++;
      std::string key = string();
      space();
      if (peek() != ':') fail("expecting ':' delimiter");
      at_++;
      value.fields.emplace_back(std::move(key), any(depth + 1));
      space();
      if (peek() == '}') break;
      if (peek() != ',') fail("expecting ',' delimiter");
      at_++;
    }
    at_++;
    std::unordered_set<std::string_view> seen;
    for (const auto& [name, _] : value.fields) {
      if (!seen.insert(name).second)
        throw Refusal(what_ + ": key " + brief(name) + " is twice in one object");
    }
  }

  void elements(Json& value, int depth) {
    value.kind = Json::list;
    space();
    if (peek() == ']') return void(at_++);
    while (true) {
      value.items.push_back(any(depth + 1));
      space();
      if (peek() == ']') break;
      if (peek() != ',') fail("expecting ',' delimiter");
      at_++;
    }
    at_++;
  }

  uint32_t hexadecimal() {
    uint32_t code = 0;
    for (int i = 0; i < 4; i++, at_++) {
      char c = peek();
      int digit = c >= '0' && c <= '9'   ? c - '0'
                  : c >= 'a' && c <= 'f' ? c - 'a' + 10
                  : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                         : -1;
      if (digit < 0) fail("invalid \\uXXXX escape");
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    return code;
  }

  std::string string() {
    std::string out;
    while (true) {
      if (at_ >= data_.size()) fail("unterminated string");
      char c = data_[at_];
      if (static_cast<uint8_t>(c) < 0x20) fail("invalid control character");
      at_++;
      if (c == '"') return out;
      if (c != '\\') {
        out += c;
        continue;
      }
      char escape = peek();
      at_++;
      static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
      if (escape == 'u') {
        uint32_t code = hexadecimal();
        if (code >= 0xD800 && code < 0xDC00 && data_.substr(at_, 2) == "\\u") {
          size_t back = at_;
          at_ += 2;
          uint32_t low = hexadecimal();
          if (low >= 0xDC00 && low < 0xE000) {
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
          } else {
            at_ = back;
          }
        }
        append_code_point(out, code);
      } else if (size_t i = std::string_view(from).find(escape);
                 escape != '\0' && i != std::string_view::npos) {
        out += to[i];
      } else {
        fail("invalid \\escape");
      }
    }
  }

  bool digits() {
    size_t start = at_;
    while (peek() >= '0' && peek() <= '9') at_++;
    return at_ > start;
  }

  void number(Json& value) {
    size_t start = at_;
    if (peek() == '-') at_++;
    if (peek() == '0') {
      at_++;
    } else if (!digits()) {
      at_ = start;
      fail("expecting value");
    }
    bool whole = true;
    size_t before = at_;  // a point or exponent without digits ends the number, as Python's scanner has it
    if (peek() == '.') {
      at_++;
      if (digits())
        whole = false;
      else
        at_ = before;
    }
    before = at_;
    if (peek() == 'e' || peek() == 'E') {
      at_++;
      if (peek() == '+' || peek() == '-') at_++;
      if (digits())
        whole = false;
      else
        at_ = before;
    }
    std::string text(data_.substr(start, at_ - start));
    if (whole && text.size() > NUMBER_LIMIT_CHARS) {
      throw Refusal(what_ + ": a number of " + std::to_string(text.size()) + " digits; the limit is " +
                    std::to_string(NUMBER_LIMIT_CHARS));
    }
    value.decimal = text.size() <= NUMBER_LIMIT_CHARS ? parse_decimal(text) : HUGE_VAL;
    if (!whole) {
      if (!std::isfinite(value.decimal))
        throw Refusal(what_ + ": " + brief(text) + " is not a number of 64 bits");
      value.kind = Json::real;
      return;
    }
    value.kind = Json::whole;
    if (text == "-0") text = "0";
    value.content = text;
    errno = 0;
    value.number = std::strtoll(text.c_str(), nullptr, 10);
    value.fits = errno == 0;
  }

  std::string_view data_;
  const std::string& what_;
  size_t at_ = 0;
};

void check_texts(const Json& value, const std::string& what) {
  if (value.is(Json::text)) check_text(value.content, what);
  for (const Json& item : value.items) check_texts(item, what);
  for (const auto& [key, item] : value.fields) {
    check_text(key, what);
    check_texts(item, what);
  }
}

}  // namespace

const Json* Json::find(std::string_view key) const {
  for (const auto& [name, value] : fields) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  const Json* value = find(key);
  if (!value) throw Refusal("internal error: key " + std::string(key) + " was not checked");
  return *value;
}

std::string brief(std::string_view text) {
  std::string shown = ascii_text(first_characters(text, 60));
  return shown.size() <= 60 ? shown : shown.substr(0, 57) + "...";
}

std::string brief(const Json& value) {
  switch (value.kind) {
    case Json::null:
      return "None";
    case Json::boolean:
      return value.truth ? "True" : "False";
    case Json::whole:
      return value.content;
    case Json::real:
      return float_text(value.decimal);
    case Json::text:
      return brief(value.content);
    case Json::list:
      return "a list";
    default:
      return "a dict";
  }
}

void check_text(std::string_view text, const std::string& where) {
  if (size_t count = characters(text); count > TEXT_LIMIT_CHARS) {
    throw Refusal(where + ": a text of " + std::to_string(count) + " characters; the limit is " +
                  std::to_string(TEXT_LIMIT_CHARS));
  }
  for (size_t at = 0; at < text.size();) {
    int32_t code = next_code_point(text, at, true);
    if (code < 0 || is_unprintable(static_cast<uint32_t>(code))) {
      throw Refusal(where + ": " + brief(text) + " contains a control character or half of a surrogate pair");
    }
  }
}

Json parse_json(std::string_view data, const std::string& what, size_t limit_bytes) {
  if (data.size() > limit_bytes) {
    throw Refusal(what + ": " + std::to_string(data.size()) + " bytes; the limit is " +
                  std::to_string(limit_bytes));
  }
  size_t values = 0;
  for (char byte : data) values += byte == ',' || byte == '[' || byte == '{';
  if (values > VALUES_LIMIT) {
    throw Refusal(what + ": about " + std::to_string(values) + " values; the limit is " +
                  std::to_string(VALUES_LIMIT));
  }
  if (size_t bad = first_bad_byte(data); bad != std::string_view::npos) {
    throw Refusal(what + ": byte " + std::to_string(bad) + " is not UTF-8");
  }
  Json value = Parser(data, what).document();
  check_texts(value, what);
  return value;
}

}  // namespace edgekit
