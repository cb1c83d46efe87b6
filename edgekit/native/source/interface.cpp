// The C interface.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "decode.h"
#include "edgekit.h"
#include "golden.h"
#include "guarded.h"
#include "litert.h"
#include "onnx_runtime.h"
#include "openvino.h"
#include "preparation.h"
#include "refusal.h"
#include "session.h"

using namespace edgekit;

struct edgekit_preparation {
  Preparation preparation;
};

struct edgekit_session {
  Session session;
  edgekit_session(const Bundle& bundle, std::vector<const edgekit_engine*> engines,
                  const edgekit_options& options)
      : session(bundle, std::move(engines), options) {}
};

namespace {

const Task& task_of(const Card& card) {
  if (!card.has_task)
    throw Refusal(card.title + ": the card has no task, so outputs stay arrays; add one, or use edgekit_run");
  return card.task;
}

// A prediction, its items and its labels in one object.
struct Answer {
  edgekit_prediction head;
  std::vector<edgekit_item> items;
  std::vector<std::string> labels;
};

edgekit_prediction* answer_of(const std::vector<Found>& all, const Task& task,
                              const edgekit_prepared& prepared) {
  auto answer = std::make_unique<Answer>();
  for (const Found& found : all) {
    answer->labels.push_back(task.label(found.index));
    answer->items.push_back(
        {found.index, nullptr, found.score, {found.box[0], found.box[1], found.box[2], found.box[3]}});
  }
  for (size_t k = 0; k < answer->items.size(); k++) answer->items[k].label = answer->labels[k].c_str();
  answer->head = {task.kind.c_str(), answer->items.size(), answer->items.data(), prepared.start_s,
                  prepared.end_s};
  return &answer.release()->head;
}

edgekit_prediction* decoded(const Card& card, const edgekit_tensor* outputs, int count,
                            const edgekit_prepared& prepared) {
  const Task& task = task_of(card);
  std::vector<std::string> names;
  for (int i = 0; i < count; i++) {
    names.push_back(outputs[i].name ? outputs[i].name : "");
    if (names.back() != task.output) continue;
    check_tensor(outputs[i]);
    return answer_of(decode_output(task, outputs[i], prepared.placement), task, prepared);
  }
  throw Refusal("the card decodes output " + task.output + ", but the model returned " + joined(names));
}

}  // namespace

extern "C" {

const char* edgekit_version(void) { return LIBRARY_VERSION; }

const char* edgekit_error(void) { return error_text.c_str(); }

edgekit_bundle* edgekit_open(const char* path) {
  return guarded<edgekit_bundle*>(nullptr, [&] {
    given(path);
    return new edgekit_bundle(path);
  });
}

void edgekit_close(edgekit_bundle* bundle) { delete bundle; }

const char* edgekit_text(const edgekit_bundle* bundle, int what, size_t* size) {
  return guarded<const char*>(nullptr, [&] {
    given(bundle);
    const Bundle& opened = bundle->bundle;
    const std::string_view texts[] = {opened.digest(), opened.manifest_text(), opened.card_text()};
    const std::string_view text = texts[checked_index(what, 3, "text")];
    if (size) *size = text.size();
    if (!text.data()) throw Refusal(opened.name() + " has no card");
    return text.data();
  });
}

int edgekit_count(const edgekit_bundle* bundle, int what) {
  return guarded(-1, [&]() -> int {
    given(bundle);
    const Manifest& m = bundle->bundle.manifest();
    const size_t counts[] = {m.inputs.size(), m.outputs.size(), m.variants.size(), m.entries.size(),
                             m.golden.size()};
    return static_cast<int>(counts[checked_index(what, 5, "part")]);
  });
}

int edgekit_tensor_at(const edgekit_bundle* bundle, int what, int index, edgekit_tensor* tensor) {
  return guarded(-1, [&] {
    given(bundle, tensor);
    checked_index(what, 2, "side");
    const Manifest& m = bundle->bundle.manifest();
    const auto& specs = what == EDGEKIT_INPUTS ? m.inputs : m.outputs;
    *tensor = tensor_of(specs[checked_index(index, specs.size(), "tensor")], nullptr, 0);
    return 0;
  });
}

int edgekit_variant_at(const edgekit_bundle* bundle, int index, edgekit_variant* variant) {
  return guarded(-1, [&] {
    given(bundle, variant);
    const auto& all = bundle->bundle.manifest().variants;
    const Variant& v = all[checked_index(index, all.size(), "variant")];
    *variant = {v.name.c_str(),      v.target.c_str(), v.profile.c_str(),
                v.precision.c_str(), v.status.c_str(), static_cast<int>(v.files.size()),
                v.usable(),          v.time_ms};
    return 0;
  });
}

int edgekit_file_at(const edgekit_bundle* bundle, int variant, int index, edgekit_file* file) {
  return guarded(-1, [&] {
    given(bundle, file);
    const auto& all = bundle->bundle.manifest().variants;
    const auto& files = all[checked_index(variant, all.size(), "variant")].files;
    const auto& [name, entry] = files[checked_index(index, files.size(), "file")];
    const Entry& e = bundle->bundle.entry(entry);
    *file = {name.c_str(), e.name.c_str(), e.sha256.c_str(), e.size};
    return 0;
  });
}

int64_t edgekit_read(const edgekit_bundle* bundle, const char* name, void* buffer, size_t size) {
  return guarded<int64_t>(-1, [&] {
    given(bundle, name);
    const Entry& entry = bundle->bundle.entry(name);
    if (!buffer && !size) return entry.size;
    if (size != static_cast<uint64_t>(entry.size)) {
      throw Refusal("a buffer of " + std::to_string(size) + " bytes; entry " + entry.name + " has " +
                    std::to_string(entry.size));
    }
    given(buffer);
    bundle->bundle.read_into(entry, static_cast<unsigned char*>(buffer));
    return entry.size;
  });
}

int edgekit_verify(const edgekit_bundle* bundle) {
  return guarded(-1, [&] {
    given(bundle);
    bundle->bundle.verify();
    return 0;
  });
}

edgekit_preparation* edgekit_begin(const edgekit_bundle* bundle) {
  return guarded<edgekit_preparation*>(nullptr, [&] {
    given(bundle);
    return new edgekit_preparation{Preparation(bundle->bundle)};
  });
}

const edgekit_prepared* edgekit_prepare(edgekit_preparation* preparation, const edgekit_input* input) {
  return guarded<const edgekit_prepared*>(nullptr, [&] {
    given(preparation);
    return &preparation->preparation.prepare(input);
  });
}

int edgekit_carry(edgekit_preparation* preparation, const edgekit_tensor* outputs, int count) {
  return guarded(-1, [&] {
    given(preparation, outputs);
    preparation->preparation.carry(outputs, count);
    return 0;
  });
}

void edgekit_end(edgekit_preparation* preparation) { delete preparation; }

edgekit_prediction* edgekit_decode(const edgekit_bundle* bundle, const edgekit_tensor* outputs, int count,
                                   const edgekit_placement* placement) {
  return guarded<edgekit_prediction*>(nullptr, [&] {
    given(bundle, outputs);
    const Card& card = bundle->bundle.card();
    edgekit_prepared prepared{};
    if (card.has_sound) return decoded(card, outputs, count, prepared);
    given(placement);
    const edgekit_placement& p = prepared.placement = *placement;
    if (p.frame_width < 1 || p.frame_height < 1 || p.input_width < 1 || p.input_height < 1) {
      throw Refusal("the placement has a side below 1; pass what edgekit_prepare wrote");
    }
    return decoded(card, outputs, count, prepared);
  });
}

void edgekit_free_prediction(edgekit_prediction* prediction) { delete reinterpret_cast<Answer*>(prediction); }

int edgekit_snr_db(const edgekit_tensor* expected, const edgekit_tensor* actual, double* db) {
  return guarded(-1, [&] {
    given(expected, actual, db);
    Snr snr = signal_to_noise(*expected, *actual);
    *db = snr.db;
    return snr.equal ? 0 : 1;
  });
}

const edgekit_engine* edgekit_adapter(const char* target, const char* library) {
  return guarded<const edgekit_engine*>(nullptr, [&] {
    given(target);
    if (std::strcmp(target, "ort") == 0) return onnx_runtime(library);
    if (std::strcmp(target, "tflite") == 0) return litert(library);
    if (std::strcmp(target, "openvino") == 0) return openvino(library);
    throw Refusal(std::string("libedgekit has no adapter for target ") + target +
                  "; it has ort, tflite and openvino. Hand in an edgekit_engine of your own");
  });
}

edgekit_session* edgekit_start(const edgekit_bundle* bundle, const edgekit_engine* const* engines, int count,
                               const edgekit_options* options) {
  return guarded<edgekit_session*>(nullptr, [&] {
    given(bundle);
    std::vector<const edgekit_engine*> all(engines, engines + (engines ? std::max(count, 0) : 0));
    for (const edgekit_engine* engine : all) {
      given(engine);
      given(engine->target, reinterpret_cast<const void*>(engine->load),
            reinterpret_cast<const void*>(engine->run), reinterpret_cast<const void*>(engine->unload));
    }
    return new edgekit_session(bundle->bundle, std::move(all), options ? *options : edgekit_options{});
  });
}

void edgekit_stop(edgekit_session* session) { delete session; }

int edgekit_run(edgekit_session* session, const edgekit_tensor* inputs, int count,
                const edgekit_tensor** outputs) {
  return guarded(-1, [&] {
    given(session, outputs);
    if (count) given(inputs);
    *outputs = session->session.run(inputs, count).data();
    return 0;
  });
}

edgekit_prediction* edgekit_predict(edgekit_session* session, const edgekit_input* input) {
  return guarded<edgekit_prediction*>(nullptr, [&] {
    given(session);
    const Card& card = session->session.bundle().card();
    const Task& task = task_of(card);
    edgekit_prepared prepared;
    const auto* outputs = session->session.run(input, prepared);
    if (!outputs) return answer_of({}, task, prepared);
    return decoded(card, outputs->data(), static_cast<int>(outputs->size()), prepared);
  });
}

const char* edgekit_active(const edgekit_session* session) {
  return guarded<const char*>(nullptr, [&] {
    given(session);
    return session->session.active().c_str();
  });
}

int edgekit_fallback_at(const edgekit_session* session, int index, edgekit_fallback* fallback) {
  return guarded(-1, [&] {
    given(session, fallback);
    const auto& all = session->session.fallbacks();
    const Fallback& f = all[checked_index(index, all.size(), "fallback")];
    *fallback = {f.from.c_str(), f.to.c_str(), f.reason.c_str()};
    return 0;
  });
}

}  // extern "C"
