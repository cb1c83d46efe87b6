#include "load_order.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>

#include "processor.h"
#include "refusal.h"
#include "text.h"

namespace edgekit {
namespace {

constexpr double EQUAL_RATIO = 1.03;

// A fact of a profile, or NULL; the profile is unchecked JSON.
const Json* fact_of(const Manifest& manifest, const std::string& profile, const char* name) {
  const Json* value = manifest.root.at("profiles").find(profile);
  for (const char* key : {"facts", name, "value"}) value = value ? value->find(key) : nullptr;
  return value;
}

// Variants whose profile is of this kind of processor, if times were measured on another kind.
std::set<std::string> built_for_processor(const Manifest& manifest) {
  const std::string kind = processor_kind();
  bool elsewhere = false;
  for (const Variant& v : manifest.variants) {
    const Json *timing = v.evidence->find("timing"), *machine = timing ? timing->find("machine") : nullptr;
    elsewhere |= machine && machine->is(Json::text) && machine->content != kind;
  }
  std::set<std::string> names;
  if (!elsewhere) return names;
  for (const Variant& v : manifest.variants) {
    const Json* arch = fact_of(manifest, v.profile, "arch");
    if (arch && arch->is(Json::text) && uniform_kind(arch->content) == kind) names.insert(v.name);
  }
  return names;
}

// Variants in an arithmetic that their profile's processor has, and that the build could not time.
std::set<std::string> built_for_instructions(const Manifest& manifest,
                                             const std::map<std::string, std::string>& unsuited) {
  std::set<std::string> names;
  for (const Variant& v : manifest.variants) {
    const Json *needed = v.options->find("needs_isa"), *stated = fact_of(manifest, v.profile, "isa");
    if (unsuited.count(v.name) || !needed || !needed->is(Json::list) || v.evidence->find("timing")) continue;
    if (!stated || !stated->is(Json::list)) continue;
    for (const Json& a : needed->items) {
      for (const Json& b : stated->items) {
        if (a.is(Json::text) && b.is(Json::text) && a.content == b.content) names.insert(v.name);
      }
    }
  }
  return names;
}

// A deferral's small variant, "" of a deferral without one; NULL of any other variant.
const std::string* small_of(const Variant& variant) {
  static const std::string none;
  if (variant.target != "deferral") return nullptr;
  const Json *small = variant.options->find("small"), *name = small ? small->find("variant") : nullptr;
  return name && name->is(Json::text) ? &name->content : &none;
}

// The size of a variant's files; infinite where evidence, which is unchecked JSON, does not state it.
double size_bytes_of(const Variant& variant) {
  const Json* size = variant.evidence->find("size_bytes");
  return size && size->is_number() ? size->decimal : std::numeric_limits<double>::infinity();
}

// Fastest first, equal times in bundle order; then the untimed ones, the smallest first.
void append_fastest_first(std::vector<size_t> group, const Manifest& manifest, std::vector<size_t>& order) {
  auto time = [&](size_t i) { return manifest.variants[i].time_ms; };
  std::vector<size_t> timed, untimed;
  for (size_t i : group) (time(i) > 0 ? timed : untimed).push_back(i);
  while (!timed.empty()) {
    double limit = time(
        *std::min_element(timed.begin(), timed.end(), [&](size_t a, size_t b) { return time(a) < time(b); }));
    auto next =
        std::find_if(timed.begin(), timed.end(), [&](size_t i) { return time(i) <= limit * EQUAL_RATIO; });
    order.push_back(*next);
    timed.erase(next);
  }
  std::stable_sort(untimed.begin(), untimed.end(), [&](size_t a, size_t b) {
    return size_bytes_of(manifest.variants[a]) < size_bytes_of(manifest.variants[b]);
  });
  order.insert(order.end(), untimed.begin(), untimed.end());
}

}  // namespace

LoadOrder rank_variants(const Manifest& manifest, const std::string& bundle, const std::string& named) {
  const auto& variants = manifest.variants;
  auto is_named = [&](const Variant& v) { return v.name == named; };
  if (!named.empty() && std::none_of(variants.begin(), variants.end(), is_named)) {
    std::vector<std::string> names;
    for (const Variant& v : variants) names.push_back(v.name);
    throw Refusal(bundle + " has no variant " + ascii_text(named) + "; it has " +
                  (names.empty() ? "none at all" : joined(names)));
  }
  std::map<std::string, std::string> unsuited;
  std::set<std::string> small;
  LoadOrder order;
  for (const Variant& v : variants) {
    std::string why = lacking(*v.options);
    if (v.options->find("accelerator")) why = "its option accelerator is for a session to set";
    if (!why.empty()) unsuited[v.name] = why;
    if (!v.usable()) order.skipped.emplace_back(v.name, v.status);
  }
  for (const Variant& v : variants) {
    if (!v.usable()) continue;
    if (unsuited.count(v.name))
      order.skipped.emplace_back(v.name, unsuited[v.name]);
    else if (const std::string* name = small_of(v))
      small.insert(*name);
  }
  std::set<std::string> preferred = built_for_processor(manifest);
  if (preferred.empty()) preferred = built_for_instructions(manifest, unsuited);
  std::map<std::array<bool, 6>, std::vector<size_t>> groups;
  for (size_t i = 0; i < variants.size(); i++) {
    const Variant& v = variants[i];
    if (!v.usable() || unsuited.count(v.name)) continue;
    groups[{v.name != named, v.shrunk != nullptr, !v.verified, small_of(v) == nullptr,
            small.count(v.name) != 0, preferred.count(v.name) == 0}]
        .push_back(i);
  }
  for (const auto& [_, group] : groups) append_fastest_first(group, manifest, order.candidates);
  return order;
}

}  // namespace edgekit
