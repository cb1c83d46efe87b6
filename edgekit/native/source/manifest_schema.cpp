#include "manifest_schema.h"

#include <algorithm>
#include <cstring>

#include "checks.h"
#include "manifest.h"
#include "refusal.h"
#include "text.h"

namespace edgekit {
namespace {

constexpr size_t NAME_LIMIT_CHARS = 200, VARIANTS_LIMIT = 256, FILES_LIMIT = 256, TENSORS_LIMIT = 256,
                 RANK_LIMIT = 16, STAGES_LIMIT = 8, GOLDEN_LIMIT = 64, ENTRIES_LIMIT = 10000;
constexpr uint64_t TENSOR_LIMIT_BYTES = 4ull << 30;

struct Dtype {
  const char* name;
  size_t bytes;
};
constexpr Dtype DTYPES[] = {{"bool", 1},    {"int8", 1},    {"uint8", 1},  {"int16", 2},
                            {"uint16", 2},  {"float16", 2}, {"int32", 4},  {"uint32", 4},
                            {"float32", 4}, {"int64", 8},   {"uint64", 8}, {"float64", 8}};

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}
bool is_in_words(char c) { return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-'; }

bool is_word(const std::string& text) {
  return !text.empty() && text.size() <= 64 && is_letter_or_digit(text[0]) &&
         std::all_of(text.begin(), text.end(), is_in_words);
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_windows_device(const std::string& part) {
  std::string name = part.substr(0, part.find('.'));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  if (name == "con" || name == "prn" || name == "aux" || name == "nul") return true;
  return name.size() == 4 && (name.compare(0, 3, "com") == 0 || name.compare(0, 3, "lpt") == 0) &&
         name[3] >= '0' && name[3] <= '9';
}

void check_path(const Json& value, const std::string& where) {
  check_is_text(value, where);
  const std::string& text = value.content;
  if (size_t count = characters(text); count > NAME_LIMIT_CHARS) {
    throw Refusal(where + ": a name of " + std::to_string(count) + " characters; the limit is " +
                  std::to_string(NAME_LIMIT_CHARS));
  }
  auto fits = [](char c) { return is_in_words(c) || c == '/' || c == ' '; };
  if (text.empty() || !std::all_of(text.begin(), text.end(), fits)) {
    throw Refusal(where + ": " + brief(text) +
                  " is not a plain relative name (letters, digits, '.', '_', '-', ' ', '/')");
  }
  for (size_t start = 0; start <= text.size();) {
    size_t end = std::min(text.find('/', start), text.size());
    std::string part = text.substr(start, end - start);
    if (part.empty() || part == "." || part == ".." || part.front() == ' ' || part.back() == ' ' ||
        part.back() == '.') {
      throw Refusal(where + ": " + brief(text) + " is not a plain relative name: part " + brief(part));
    }
    if (is_windows_device(part)) {
      throw Refusal(where + ": " + brief(text) + " is a device's name on Windows: part " + brief(part));
    }
    start = end + 1;
  }
}

// Whether the character after "verified" is a letter, a digit or _ (of any script: beyond ASCII all count, of
// which Python would refuse letters only).
void check_status(const Json& value, const std::string& where) {
  check_is_text(value, where);
  const std::string& text = value.content;
  for (const char* word : {"rejected: ", "not run: "}) {
    if (text.compare(0, std::strlen(word), word) == 0 && text.size() > std::strlen(word)) return;
  }
  bool verified = text.compare(0, 8, "verified") == 0;
  if (verified && (text.size() == 8 || !(is_letter_or_digit(text[8]) || text[8] == '_' || (text[8] & 0x80))))
    return;
  throw Refusal(where + ": " + brief(text) + " is neither verified, 'rejected: why' nor 'not run: why'");
}

Check tensor_check(int64_t least) {
  Check fields = record({{"name", check_is_text},
                         {"dtype", check_is_text},
                         {"shape", list_of(whole_number(least), RANK_LIMIT)}});
  return [=](const Json& value, const std::string& where) {
    fields(value, where);
    const Json& dtype = value.at("dtype");
    if (!element_bytes(dtype.content)) {
      std::vector<std::string> names;
      for (const Dtype& one : DTYPES) names.push_back(one.name);
      throw Refusal(where + ".dtype: " + brief(dtype) + " is not one of " + joined(names));
    }
    if (TensorBytes size = tensor_bytes(value); !size.fits || size.value > TENSOR_LIMIT_BYTES) {
      std::string shown = size.fits ? std::to_string(size.value) : "more than 18446744073709551615";
      throw Refusal(where + ".shape: a tensor of " + shown + " bytes; the limit is " +
                    std::to_string(TENSOR_LIMIT_BYTES));
    }
    const auto& shape = value.at("shape").items;
    if (std::count_if(shape.begin(), shape.end(), [](const Json& d) { return d.number == -1; }) > 1) {
      throw Refusal(where + ".shape: more than one dimension is -1 (data-dependent)");
    }
  };
}

Check variant_check(const Check& open) {
  Check outputs = map_of(check_is_text, check_path, TENSORS_LIMIT);
  Check shrunk =
      record({{"multiplications", list_of(whole_number(1), 2)}, {"golden", list_of(outputs, GOLDEN_LIMIT)}});
  return record({{"name", check_is_text},
                 {"target", text_that(is_word, "a plain word")},
                 {"profile", check_is_text},
                 {"precision", check_is_text},
                 {"files", map_of(check_path, check_path, FILES_LIMIT)},
                 {"options", open},
                 {"status", check_status},
                 {"evidence", open},
                 {"shrunk", shrunk, true}});
}

Check manifest_check() {
  Check open = record({}, true),
        digest = text_that(is_sha256, "a sha256 in 64 lower-case hexadecimal digits");
  Check text = check_is_text, path = check_path;
  Check named = map_of(text, path, TENSORS_LIMIT);
  Check source = record(
      {{"file", text}, {"sha256", digest}, {"opset", whole_number(1, 10000)}, {"nodes", whole_number(0)}},
      true);
  Check entry =
      record({{"name", path}, {"offset", whole_number(0)}, {"size", whole_number(0)}, {"sha256", digest}});
  Check stage = record({{"entry", path}, {"digest", digest}});
  Check cascade = record({{"stages", list_of(record({{"name", text}}, true), STAGES_LIMIT)},
                          {"bundles", map_of(text, stage, STAGES_LIMIT)}});
  return record({{"format", exactly_text("edgekit-bundle")},
                 {"version", exactly_number(1)},
                 {"edgekit", text},
                 {"tools", map_of(text, text, 256)},
                 {"source", source},
                 {"options", open},
                 {"samples", open},
                 {"inputs", list_of(tensor_check(0), TENSORS_LIMIT)},
                 {"outputs", list_of(tensor_check(-1), TENSORS_LIMIT)},
                 {"card", nothing_or(open)},
                 {"profiles", map_of(text, open, VARIANTS_LIMIT)},
                 {"passes", list_of(text, 1000)},
                 {"variants", list_of(variant_check(open), VARIANTS_LIMIT)},
                 {"golden", list_of(record({{"inputs", named}, {"outputs", named}}), GOLDEN_LIMIT)},
                 {"entries", list_of(entry, ENTRIES_LIMIT)},
                 {"cascade", cascade, true},
                 {"extensions", open, true}});
}

}  // namespace

void check_manifest_schema(const Json& root) {
  static const Check check = manifest_check();
  check(root, "");
}

size_t element_bytes(std::string_view dtype) {
  for (const Dtype& one : DTYPES) {
    if (dtype == one.name) return one.bytes;
  }
  return 0;
}

uint64_t element_count(const std::vector<int64_t>& shape) {
  uint64_t count = 1;
  if (std::count(shape.begin(), shape.end(), 0)) return 0;
  for (int64_t d : shape) {
    uint64_t size = d < 0 ? 1 : static_cast<uint64_t>(d);
    if (count > UINT64_MAX / size) return UINT64_MAX;
    count *= size;
  }
  return count;
}

TensorBytes tensor_bytes(const Json& tensor) {
  std::vector<int64_t> shape;
  for (const Json& d : tensor.at("shape").items) shape.push_back(d.number);
  uint64_t count = element_count(shape), size = element_bytes(tensor.at("dtype").content);
  return count > UINT64_MAX / size ? TensorBytes{0, false} : TensorBytes{count * size, true};
}

}  // namespace edgekit
