#include "checks.h"

#include <algorithm>

#include "refusal.h"
#include "text.h"

namespace edgekit {
namespace {

std::string under(const std::string& where, const char* key) {
  return where.empty() ? std::string(key) : where + "." + key;
}

// A list or object of items must be short, and of its kind.
void check_kind(const Json& value, const std::string& where, Json::Kind kind, const char* expected) {
  if (value.kind != kind) throw Refusal(where + ": " + brief(value) + " where " + expected + " is expected");
}

void check_size(size_t size, const std::string& where, size_t limit) {
  if (size > limit) {
    throw Refusal(where + ": " + std::to_string(size) + " items; the limit is " + std::to_string(limit));
  }
}

}  // namespace

void check_is_text(const Json& value, const std::string& where) {
  check_kind(value, where, Json::text, "a text");
}

Check text_that(bool (*fits)(const std::string&), const char* expected) {
  return [=](const Json& value, const std::string& where) {
    check_is_text(value, where);
    if (!fits(value.content)) throw Refusal(where + ": " + brief(value) + " is not " + expected);
  };
}

Check whole_number(int64_t low, int64_t high) {
  return [=](const Json& value, const std::string& where) {
    if (!value.is(Json::whole) || !value.fits || value.number < low || value.number > high) {
      throw Refusal(where + ": " + brief(value) + " where a whole number from " + std::to_string(low) +
                    " to " + std::to_string(high) + " is expected");
    }
  };
}

Check exactly_text(const char* expected) {
  return [=](const Json& value, const std::string& where) {
    if (!value.is(Json::text) || value.content != expected) {
      throw Refusal(where + ": " + brief(value) + " where '" + expected + "' is expected");
    }
  };
}

Check exactly_number(int64_t expected) {
  return [=](const Json& value, const std::string& where) {
    if (!value.is(Json::whole) || !value.fits || value.number != expected) {
      throw Refusal(where + ": " + brief(value) + " where " + std::to_string(expected) + " is expected");
    }
  };
}

Check list_of(Check item, size_t limit) {
  return [=](const Json& value, const std::string& where) {
    check_kind(value, where, Json::list, "a list");
    check_size(value.items.size(), where, limit);
    for (size_t i = 0; i < value.items.size(); i++)
      item(value.items[i], where + "[" + std::to_string(i) + "]");
  };
}

Check map_of(Check key, Check item, size_t limit) {
  return [=](const Json& value, const std::string& where) {
    check_kind(value, where, Json::object, "an object");
    check_size(value.fields.size(), where, limit);
    for (const auto& [name, entry] : value.fields) {
      Json text;
      text.kind = Json::text;
      text.content = name;
      key(text, where + ", name");
      item(entry, where + "[" + brief(name) + "]");
    }
  };
}

Check record(std::vector<Field> fields, bool is_open) {
  return [=](const Json& value, const std::string& where) {
    const std::string shown = where.empty() ? "manifest" : where;
    check_kind(value, shown, Json::object, "an object");
    for (const Field& field : fields) {
      if (const Json* entry = value.find(field.name)) {
        field.check(*entry, under(where, field.name));
      } else if (!field.optional) {
        throw Refusal(shown + ": '" + field.name + "' is missing");
      }
    }
    if (is_open) return;
    const std::string* unknown = nullptr;  // the first by name; UTF-8 sorts as its code points do
    for (const auto& field : value.fields) {
      const std::string& name = field.first;
      bool known = std::any_of(fields.begin(), fields.end(), [&](const Field& f) { return name == f.name; });
      if (!known && (!unknown || name < *unknown)) unknown = &name;
    }
    if (unknown) throw Refusal(shown + ": key " + brief(*unknown) + " is unknown");
  };
}

Check nothing_or(Check check) {
  return [=](const Json& value, const std::string& where) {
    if (!value.is(Json::null)) check(value, where);
  };
}

}  // namespace edgekit
