#include <algorithm>
#include <cmath>
#include <cstdio>

#include "card.h"
#include "refusal.h"
#include "text.h"

namespace edgekit {
namespace {

std::string kind_of(const Json& value) {
  static const char* names[] = {"nothing", "true or false", "a whole number", "a number",
                                "a text",  "a list",        "a table"};
  return names[value.kind];
}

std::string wanted(Json::Kind kind) {
  Json value;
  value.kind = kind;
  return kind_of(value);
}

}  // namespace

void Table::refuse(const std::string& why) const { throw Refusal(where_ + why); }

void Table::only(const std::vector<std::string>& allowed) const {
  if (!table_.is(Json::object)) refuse(" must be a table, not " + kind_of(table_));
  for (const auto& [key, _] : table_.fields) {
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      refuse(" has an unknown key " + ascii_text(key) + "; it may have " + joined(allowed));
    }
  }
}

const Json& Table::get(const char* key, Json::Kind kind) const {
  const Json* value = table_.find(key);
  if (!value) refuse(std::string(" has no ") + key + "; it must be " + wanted(kind));
  bool fits = value->kind == kind || (kind == Json::real && value->is(Json::whole));
  if (!fits) refuse(std::string(".") + key + " must be " + wanted(kind) + ", not " + kind_of(*value));
  return *value;
}

double Table::real(const char* key) const { return get(key, Json::real).decimal; }

int64_t Table::whole(const char* key) const {
  const Json& value = get(key, Json::whole);
  return value.number;  // strtoll's bound where it does not fit
}

void Table::only(Words allowed) const { only(std::vector<std::string>(allowed.begin(), allowed.end())); }

const std::string& Table::choice(const char* key, Words words) const {
  const std::vector<std::string> allowed(words.begin(), words.end());
  if (!has(key)) refuse(std::string(" has no ") + key + "; it must be one of " + joined(allowed));
  const std::string& value = text(key);
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    refuse(std::string(".") + key + " is " + ascii_text(value) + "; it must be one of " + joined(allowed));
  }
  return value;
}

std::vector<double> Table::reals(const char* key) const {
  std::vector<double> values;
  for (const Json& item : get(key, Json::list).items) {
    if (!item.is_number()) refuse(std::string(".") + key + " must be a list of finite numbers");
    values.push_back(item.decimal);
  }
  return values;
}

std::vector<int64_t> Table::wholes(const char* key) const {
  std::vector<int64_t> values;
  for (const Json& item : get(key, Json::list).items) {
    if (!item.is(Json::whole)) refuse(std::string(".") + key + " must be a list of whole numbers");
    values.push_back(item.number);  // held within int64
  }
  return values;
}

std::vector<int64_t> Table::shape() const {
  auto shape = wholes("shape");
  for (int64_t d : shape) {
    if (d < 1) refuse(".shape is " + list_text(shape) + "; it must be a list of whole numbers from 1");
  }
  return shape;
}

int64_t Table::count(const char* key, int64_t least, int64_t most) const {
  const Json& value = get(key, Json::whole);
  if (value.number < least || value.number > most) {
    refuse(std::string(".") + key + " is " + value.content + "; it must be from " + std::to_string(least) +
           " to " + std::to_string(most));
  }
  return value.number;
}

std::string list_text(const std::vector<double>& values) {
  std::vector<std::string> texts;
  for (double value : values) texts.push_back(float_text(value));
  return "[" + joined(texts) + "]";
}

std::string list_text(const std::vector<int64_t>& values) {
  std::vector<std::string> texts;
  for (int64_t value : values) texts.push_back(std::to_string(value));
  return "[" + joined(texts) + "]";
}

std::string short_text(double value) {
  char out[48];
  std::snprintf(out, sizeof out, "%g", value);
  return out;
}

}  // namespace edgekit
