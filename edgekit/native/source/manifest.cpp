#include "manifest.h"

#include <algorithm>
#include <set>

#include "manifest_schema.h"
#include "refusal.h"
#include "text.h"

namespace edgekit {
namespace {

struct Sizes {
  std::map<std::string, int64_t> by_name;
  bool has(const std::string& name) const { return by_name.count(name) != 0; }
};

std::string folded(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

// Written to any file system, no name meets another: not by case, not as a folder of the other.
void check_disjoint(const std::vector<std::string>& names, const std::string& where) {
  std::map<std::string, std::string> taken;
  std::vector<std::string> keys;
  for (const std::string& name : names) {
    auto [other, is_new] = taken.emplace(folded(name), name);
    if (is_new) keys.push_back(other->first);
    if (other->second != name) {
      throw Refusal(where + ": " + brief(name) + " and " + brief(other->second) + " differ in case only");
    }
  }
  for (const std::string& key : keys) {
    for (size_t slash = key.find('/'); slash != std::string::npos; slash = key.find('/', slash + 1)) {
      if (taken.count(key.substr(0, slash))) {
        throw Refusal(where + ": " + brief(taken[key]) + " is inside another file");
      }
    }
  }
}

Sizes check_entries(const Json& entries) {
  uint64_t expected = 0;
  Sizes sizes;
  std::vector<std::string> names;
  for (size_t i = 0; i < entries.items.size(); i++) {
    const Json& entry = entries.items[i];
    const std::string where = "entries[" + std::to_string(i) + "]", &name = entry.at("name").content;
    if (i && name <= names.back())
      throw Refusal(where + ".name: " + brief(name) + " is not after the one before it");
    uint64_t offset = entry.at("offset").number, size = entry.at("size").number;
    if (offset != expected) {
      // 2^63 - 1 is the largest offset and size: their sum fits, and wraps to 0 only when it is rounded up.
      const std::string shown = expected || !i ? std::to_string(expected) : "18446744073709551616";
      throw Refusal(where + ".offset: " + entry.at("offset").content + " where " + shown +
                    " is expected (the end of the entry before, rounded up to 64)");
    }
    expected = aligned(offset + size);
    if (offset + size && !expected) expected = UINT64_MAX;  // no offset is that
    names.push_back(name);
    sizes.by_name[name] = entry.at("size").number;
  }
  check_disjoint(names, "entries");
  return sizes;
}

void check_unique(const Json& list, const std::string& where) {
  std::set<std::string> seen;
  for (const Json& item : list.items) {
    const std::string& name = item.at("name").content;
    if (!seen.insert(name).second) throw Refusal(where + ": two are called " + brief(name));
  }
}

void check_golden(const Json& names, const Json& tensors, const Sizes& sizes, const std::string& where) {
  std::set<std::string> declared, given;
  for (const Json& tensor : tensors.items) declared.insert(tensor.at("name").content);
  for (const auto& [name, _] : names.fields) given.insert(name);
  if (declared != given) throw Refusal(where + ": the names are not those of the model");
  for (const Json& tensor : tensors.items) {
    const std::string &name = tensor.at("name").content, &entry = names.at(name).content;
    const std::string place = where + "[" + brief(name) + "]: entry " + brief(entry);
    if (!sizes.has(entry)) throw Refusal(place + " does not exist");
    int64_t size = sizes.by_name.at(entry), tensor_size = static_cast<int64_t>(tensor_bytes(tensor).value);
    bool open = std::any_of(tensor.at("shape").items.begin(), tensor.at("shape").items.end(),
                            [](const Json& d) { return d.number == -1; });
    if (!open && !(size - tensor_size > 0 && size - tensor_size <= 4096)) {
      throw Refusal(place + " has " + std::to_string(size) + " bytes, the tensor alone " +
                    std::to_string(tensor_size));
    }
  }
}

void check_shrunk(const Json& variant, const Json& root, const Sizes& sizes, const std::string& where) {
  const Json* shrunk = variant.find("shrunk");
  if (!shrunk) return;
  const auto& counts = shrunk->at("multiplications").items;
  if (counts.size() != 2 || counts[1].number > counts[0].number) {
    throw Refusal(where + ".multiplications: they must be those before and after, and must not grow");
  }
  const auto& own = shrunk->at("golden").items;
  size_t count = root.at("golden").items.size();
  if (!variant.at("files").fields.empty() && own.size() != count) {
    throw Refusal(where + ".golden: " + std::to_string(own.size()) + " outputs for the bundle's " +
                  std::to_string(count) + " golden vectors");
  }
  for (size_t i = 0; i < own.size(); i++) {
    check_golden(own[i], root.at("outputs"), sizes, where + ".golden[" + std::to_string(i) + "]");
  }
}

void check_cascade(const Json* cascade, const Sizes& sizes) {
  if (!cascade) return;
  check_unique(cascade->at("stages"), "cascade.stages");
  std::set<std::string> names, given;
  for (const Json& stage : cascade->at("stages").items) names.insert(stage.at("name").content);
  for (const auto& [name, _] : cascade->at("bundles").fields) given.insert(name);
  if (names != given) throw Refusal("cascade.bundles: the names are not those of the stages");
  for (const auto& [name, bundle] : cascade->at("bundles").fields) {
    if (const std::string& entry = bundle.at("entry").content; !sizes.has(entry)) {
      throw Refusal("cascade.bundles[" + brief(name) + "]: entry " + brief(entry) + " does not exist");
    }
  }
}

void check_variants(const Json& root, const Sizes& sizes) {
  const auto& variants = root.at("variants").items;
  for (size_t i = 0; i < variants.size(); i++) {
    const std::string where = "variants[" + std::to_string(i) + "]";
    std::vector<std::string> files;
    for (const auto& [file, _] : variants[i].at("files").fields) files.push_back(file);
    check_disjoint(files, where + ".files");
    for (const auto& [file, entry] : variants[i].at("files").fields) {
      if (!sizes.has(entry.content)) {
        throw Refusal(where + ".files[" + brief(file) + "]: entry " + brief(entry) + " does not exist");
      }
    }
    check_shrunk(variants[i], root, sizes, where + ".shrunk");
  }
}

std::vector<TensorSpec> tensors_of(const Json& list) {
  std::vector<TensorSpec> specs;
  for (const Json& tensor : list.items) {
    TensorSpec spec{tensor.at("name").content, tensor.at("dtype").content, {}};
    for (const Json& d : tensor.at("shape").items) spec.shape.push_back(d.number);
    specs.push_back(std::move(spec));
  }
  return specs;
}

// p50_ms of a timing; 0 if it is not a positive number.
double milliseconds_of(const Json* timing) {
  const Json* p50 = timing ? timing->find("p50_ms") : nullptr;
  return p50 && p50->is_number() && p50->decimal > 0 ? p50->decimal : 0;
}

Variant variant_of(const Json& table) {
  Variant v{};
  v.name = table.at("name").content, v.target = table.at("target").content;
  v.profile = table.at("profile").content, v.precision = table.at("precision").content;
  v.status = table.at("status").content;
  for (const auto& [file, entry] : table.at("files").fields) v.files.emplace_back(file, entry.content);
  v.options = &table.at("options"), v.evidence = &table.at("evidence"), v.shrunk = table.find("shrunk");
  v.verified = v.status.compare(0, 8, "verified") == 0, v.rejected = v.status.compare(0, 8, "rejected") == 0;
  v.time_ms = milliseconds_of(v.evidence->find("timing"));
  return v;
}

}  // namespace

std::string TensorSpec::text() const {
  std::vector<std::string> parts;
  for (int64_t d : shape) parts.push_back(d == -1 ? "?" : std::to_string(d));
  return name + " " + dtype + " " + (parts.empty() ? "scalar" : joined(parts, "x"));
}

const Json* Manifest::card() const {
  const Json& card = root.at("card");
  return card.is(Json::null) ? nullptr : &card;
}

GoldenNames golden_names(const Json& table) {
  GoldenNames names;
  for (const auto& [tensor, entry] : table.fields) names[tensor] = entry.content;
  return names;
}

Manifest read_manifest(std::string_view data) {
  Manifest manifest;
  manifest.root = parse_json(data, "manifest", MANIFEST_LIMIT_BYTES);
  const Json& root = manifest.root;
  check_manifest_schema(root);
  Sizes sizes = check_entries(root.at("entries"));
  for (const char* side : {"inputs", "outputs"}) check_unique(root.at(side), side);
  check_unique(root.at("variants"), "variants");
  check_variants(root, sizes);
  check_cascade(root.find("cascade"), sizes);
  const auto& golden = root.at("golden").items;
  for (size_t i = 0; i < golden.size(); i++) {
    for (const char* side : {"inputs", "outputs"}) {
      check_golden(golden[i].at(side), root.at(side), sizes, "golden[" + std::to_string(i) + "]." + side);
    }
    manifest.golden.emplace_back(golden_names(golden[i].at("inputs")), golden_names(golden[i].at("outputs")));
  }
  manifest.inputs = tensors_of(root.at("inputs")), manifest.outputs = tensors_of(root.at("outputs"));
  for (const Json& variant : root.at("variants").items) manifest.variants.push_back(variant_of(variant));
  for (const Json& entry : root.at("entries").items) {
    manifest.entry_index[entry.at("name").content] = manifest.entries.size();
    manifest.entries.push_back({entry.at("name").content, entry.at("sha256").content,
                                entry.at("offset").number, entry.at("size").number});
  }
  return manifest;
}

}  // namespace edgekit
