// Checks of untrusted JSON values, composed from smaller ones, with the texts of json_schema.py.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "json.h"

namespace edgekit {

using Check = std::function<void(const Json&, const std::string& where)>;

struct Field {
  const char* name;
  Check check;
  bool optional = false;
};

void check_is_text(const Json& value, const std::string& where);
Check text_that(bool (*fits)(const std::string&), const char* expected);
Check whole_number(int64_t low, int64_t high = INT64_MAX);
Check exactly_text(const char* expected);
Check exactly_number(int64_t expected);
Check list_of(Check item, size_t limit);
Check map_of(Check key, Check item, size_t limit);
Check record(std::vector<Field> fields, bool is_open = false);
Check nothing_or(Check check);

}  // namespace edgekit
