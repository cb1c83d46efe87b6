#include "processor.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "text.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace edgekit {
namespace {

const char* const EXTENSIONS[] = {"avx2",        "avx512f",  "avx512_vnni", "avx_vnni", "avx512_bf16",
                                  "avx512_fp16", "amx_int8", "amx_bf16",    "asimd",    "asimdhp",
                                  "asimddp",     "i8mm",     "bf16",        "sve"};

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

#if defined(__wasm__)
std::vector<std::string> read_instruction_sets() { return {}; }
#else
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (char c : text) {
    if (!std::isspace(static_cast<unsigned char>(c)))
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  }
  return words;
}

std::vector<std::string> read_instruction_sets() {
  std::vector<std::string> found;
  std::FILE* file = std::fopen("/proc/cpuinfo", "r");
  if (!file) return found;
  std::string line, flags;
  for (int c; flags.empty() && (c = std::fgetc(file)) != EOF;) {
    if (c != '\n') {
      line += static_cast<char>(c);
      continue;
    }
    std::string key = lower(words_of(line)[0]);
    if (key == "flags" || key == "features") flags = line;
    line.clear();
  }
  std::fclose(file);
  auto words = words_of(flags);
  for (const char* name : EXTENSIONS) {
    if (std::find(words.begin(), words.end(), name) != words.end()) found.push_back(name);
  }
  return found;
}
#endif

}  // namespace

const char* processor_kind() {
#if defined(__x86_64__) || defined(_M_X64)
  return "x86_64";
#elif defined(__aarch64__) || defined(_M_ARM64)
  return "aarch64";
#elif defined(__arm__)
  return "armv7l";
#elif defined(__wasm__)
  return "wasm32";
#else
  return "unknown";
#endif
}

std::string uniform_kind(const std::string& machine) {
  std::string name = lower(machine);
  return name == "amd64" ? "x86_64" : name == "arm64" ? "aarch64" : name;
}

const std::vector<std::string>& instruction_sets() {
  static const std::vector<std::string> found = read_instruction_sets();
  return found;
}

bool adds_widely() {
#if defined(__x86_64__)
  // The processor is asked, as only Linux has a file of its instruction sets.
  const unsigned AVX512F = 1u << 16, AVX512_VNNI = 1u << 11, AVX_VNNI = 1u << 4;
  unsigned most = 0, b = 0, c = 0, d = 0, a = 0, unused = 0;
  if (!__get_cpuid_count(7, 0, &most, &b, &c, &d)) return false;
  if (c & AVX512_VNNI) return true;
  // With AVX-512, MLAS does not use AVX-VNNI.
  return !(b & AVX512F) && most && __get_cpuid_count(7, 1, &a, &unused, &c, &d) && (a & AVX_VNNI);
#else
  return true;
#endif
}

std::string lacking(const Json& options) {
  const Json* needed = options.find("needs_isa");
  if (!needed || !needed->is(Json::list)) return "";
  const auto& has = instruction_sets();
  std::vector<std::string> names;
  for (const Json& name : needed->items) {
    if (name.is(Json::text) && std::find(has.begin(), has.end(), name.content) != has.end()) return "";
    names.push_back(name.is(Json::text) ? name.content : brief(name));
  }
  return "it needs a processor with " + joined(names, " or ") + "; this one has " +
         (has.empty() ? "none that the system reports" : joined(has));
}

}  // namespace edgekit
