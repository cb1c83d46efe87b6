// What a page calls besides edgekit.h (edgekit/web/core.js): engines of a browser run asynchronously, so the
// page drives the choice of a variant step by step. Every instance of the WebAssembly holds one bundle.
#if defined(__wasm__)
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <new>

#include "choice.h"
#include "guarded.h"

using namespace edgekit;

// The library's own operator new stops the program: it is compiled without exceptions.
void* operator new(size_t size) {
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

// The tag of C++ exceptions, which zig's library for WebAssembly does not define.
__asm__(".tagtype __cpp_exception i32\n.globl __cpp_exception\n__cpp_exception:\n");

namespace {

struct Chooser {
  Choice choice;
  std::vector<GoldenArray> inputs;  // of the golden vector that the page runs
  std::vector<Agreement> found;
};

std::vector<edgekit_tensor> listed(const edgekit_tensor* tensors, int count) {
  given(tensors);
  return std::vector<edgekit_tensor>(tensors, tensors + std::max(count, 0));
}

}  // namespace

#define EXPORTED(name) __attribute__((export_name(#name))) name

extern "C" {

// Return memory for what a page hands in, or NULL.
void* EXPORTED(web_allocate)(size_t size) { return std::malloc(size); }

void EXPORTED(web_free)(void* memory) { std::free(memory); }

// Return the choice of a variant: named first if it is not NULL. NULL: there is none of that name.
Chooser* EXPORTED(web_choose)(const edgekit_bundle* bundle, const char* named, int strict) {
  return guarded<Chooser*>(nullptr, [&] {
    given(bundle);
    const Bundle& opened = bundle->bundle;
    if (opened.manifest().golden.empty())
      throw Refusal(opened.name() + " has no golden vectors, so no engine of a browser can be checked");
    return new Chooser{Choice(opened, named ? named : "", strict != 0, true), {}, {}};
  });
}

// Return the index of the variant to load, or that runs. -1: all have failed; the error names each reason.
int EXPORTED(web_candidate)(const Chooser* chooser) {
  return guarded(-1, [&] {
    given(chooser);
    if (chooser->choice.exhausted()) chooser->choice.give_up();
    return static_cast<int>(chooser->choice.candidate());
  });
}

// The variant does not run, for this reason. -1: strict.
int EXPORTED(web_fail)(Chooser* chooser, const char* reason) {
  return guarded(-1, [&] {
    given(chooser, reason);
    if (chooser->choice.exhausted()) chooser->choice.give_up();
    chooser->choice.fail(reason);
    return 0;
  });
}

// The variant runs: edgekit_fallback of those before it.
int EXPORTED(web_settle)(Chooser* chooser) {
  return guarded(-1, [&] {
    given(chooser);
    if (chooser->choice.exhausted()) chooser->choice.give_up();
    chooser->choice.settle();
    return static_cast<int>(chooser->choice.fallbacks().size());
  });
}

int EXPORTED(web_fallback)(const Chooser* chooser, int index, edgekit_fallback* fallback) {
  return guarded(-1, [&] {
    given(chooser, fallback);
    const auto& all = chooser->choice.fallbacks();
    const Fallback& f = all[checked_index(index, all.size(), "fallback")];
    *fallback = {f.from.c_str(), f.to.c_str(), f.reason.c_str()};
    return 0;
  });
}

// Describe an input of a golden vector; its bytes are valid until another golden vector is asked for.
int EXPORTED(web_golden_input)(Chooser* chooser, const edgekit_bundle* bundle, int golden, int input,
                               edgekit_tensor* tensor) {
  return guarded(-1, [&] {
    given(chooser, bundle, tensor);
    const Manifest& manifest = bundle->bundle.manifest();
    size_t at = checked_index(golden, manifest.golden.size(), "golden vector");
    if (input == 0) chooser->inputs = chooser->choice.golden_inputs(at);
    *tensor = tensor_of(chooser->inputs[checked_index(input, chooser->inputs.size(), "input")]);
    return 0;
  });
}

// Compare outputs with a golden vector: for each output its SNR in dB (infinity: equal) and its limit.
// Returns how many pairs were written, also of a refusal (*refused is then 1).
int EXPORTED(web_check_golden)(Chooser* chooser, int golden, const edgekit_tensor* outputs, int count,
                               double* pairs, int* refused) {
  if (!chooser) return -1;
  chooser->found.clear();
  *refused = guarded(1, [&] {
    given(pairs);
    chooser->inputs.clear();
    chooser->choice.check_golden(static_cast<size_t>(golden), listed(outputs, count), chooser->found);
    return 0;
  });
  for (size_t i = 0; i < chooser->found.size(); i++) {
    const Agreement& one = chooser->found[i];
    pairs[2 * i] = one.snr.equal ? HUGE_VAL : one.snr.db;
    pairs[2 * i + 1] = one.limit_db;
  }
  return static_cast<int>(chooser->found.size());
}

// Check the outputs of a run. 0, or -1.
int EXPORTED(web_check_outputs)(const Chooser* chooser, const edgekit_tensor* outputs, int count) {
  return guarded(-1, [&] {
    given(chooser);
    chooser->choice.check_outputs(listed(outputs, count));
    return 0;
  });
}

}  // extern "C"
#endif
