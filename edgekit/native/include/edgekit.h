/* libedgekit: bundles of EdgeKit for programs that are not Python.
 *
 * Every function returns at once or blocks; none starts a thread. A function that fails returns NULL or a
 * negative number, and edgekit_error() returns why. Pointers that a function returns belong to the object
 * they came from, unless its comment says otherwise. A bundle may be used by several threads; a preparation
 * and a session by one thread at a time. docs/native.md is the guide. */
#ifndef EDGEKIT_H
#define EDGEKIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define EDGEKIT_API __declspec(dllexport)
#else
#define EDGEKIT_API __attribute__((visibility("default")))
#endif

#define EDGEKIT_RANK_LIMIT 16

typedef struct edgekit_bundle edgekit_bundle;
typedef struct edgekit_preparation edgekit_preparation;
typedef struct edgekit_session edgekit_session;

/* Parts of a bundle that can be counted. */
enum { EDGEKIT_INPUTS, EDGEKIT_OUTPUTS, EDGEKIT_VARIANTS, EDGEKIT_ENTRIES, EDGEKIT_GOLDEN };

/* Texts of a bundle: the sha256 of its manifest, which names it; the manifest; the card. */
enum { EDGEKIT_DIGEST, EDGEKIT_MANIFEST, EDGEKIT_CARD };

/* Kinds of edgekit_input. */
enum { EDGEKIT_PICTURE, EDGEKIT_SOUND };

/* Order of a picture's channels. */
enum { EDGEKIT_RGB, EDGEKIT_BGR };

/* A tensor. dtype is numpy's name. One dimension of a declared output may be -1: it depends on the data.
 * bytes and size_bytes are NULL and 0 in a declaration. */
typedef struct {
  const char* name;
  const char* dtype;
  int rank;
  int64_t shape[EDGEKIT_RANK_LIMIT];
  void* bytes;
  size_t size_bytes;
} edgekit_tensor;

/* One variant. usable is 1 if a session may run it: it has files and was not rejected. time_ms is the median
 * time of a run that the build measured, or 0. */
typedef struct {
  const char *name, *target, *profile, *precision, *status;
  int files, usable;
  double time_ms;
} edgekit_variant;

/* One file of a variant: the name that the engine wants, and the entry that holds it. sha256 is hexadecimal.
 */
typedef struct {
  const char *name, *entry, *sha256;
  int64_t size_bytes;
} edgekit_file;

/* What an app has for the model. EDGEKIT_PICTURE: values are uint8 [height, width, 3], in the order of
 * channels EDGEKIT_RGB or EDGEKIT_BGR. EDGEKIT_SOUND: values are the next samples of a sound, float32 [count]
 * of one channel, full scale 1, at rate_hz, a whole number; count may be 0.
 * begins: 1 begins another sound or series of pictures, from the states before the first run. ends: 1 ends
 * the sound: zeros fill up its last window. The fields of the other kind are not read. */
typedef struct {
  int kind;
  const void* values;
  int width, height, order;
  size_t count;
  int rate_hz, begins, ends;
} edgekit_input;

/* Placement of a picture in the model's input: input = picture x scale + offset, along each axis. */
typedef struct {
  int frame_width, frame_height, input_width, input_height;
  double scale_x, scale_y, offset_x, offset_y;
} edgekit_placement;

/* All of the model's inputs, in its order: the prepared one, constants, and states. count is 0 and inputs
 * NULL while samples are missing for the next window. placement: of a picture. start_s, end_s: of a window.
 */
typedef struct {
  int count;
  const edgekit_tensor* inputs;
  edgekit_placement placement;
  double start_s, end_s;
} edgekit_prepared;

/* One class (box is zero), one object with its box x1, y1, x2, y2 in the picture's pixels, or a window of a
 * sound: index 1 is speech, 0 is none, and score the probability of speech. */
typedef struct {
  int64_t index;
  const char* label;
  float score;
  float box[4];
} edgekit_item;

/* A task's answer, best first. kind is the card's: "classify", "detect" or "voice-activity". start_s, end_s:
 * of the window of a sound that edgekit_predict took. Its count is 0 while samples are missing. */
typedef struct {
  const char* kind;
  size_t count;
  const edgekit_item* items;
  double start_s, end_s;
} edgekit_prediction;

/* One fallback: from a better variant to the next one that was tried, and why. */
typedef struct {
  const char *from, *to, *reason;
} edgekit_fallback;

/* Settings of a session. variant: the one to try first, or NULL. strict: 1 refuses to fall back. threads: 0
 * is the engine's default. */
typedef struct {
  const char* variant;
  int strict, threads;
} edgekit_options;

/* What an engine is given of a variant: its files in memory, the model's tensors, and the options as JSON. */
typedef struct {
  int file_count;
  const char* const* file_names;
  const void* const* file_bytes;
  const size_t* file_sizes;
  int input_count, output_count;
  const edgekit_tensor *inputs, *outputs;
  const char* options_json;
  int threads;
} edgekit_model;

/* An engine. target is the variants' target that it runs, e.g. "ort". load returns NULL, and run a number
 * other than 0, when they fail, after they have written why to error. run fills shape, bytes and size_bytes
 * of each output; the bytes are valid until the next run or unload. The session checks both. */
typedef struct {
  const char* target;
  void* context;
  void* (*load)(void* context, const edgekit_model* model, char* error, size_t error_size);
  int (*run)(void* loaded, const edgekit_tensor* inputs, int input_count, edgekit_tensor* outputs,
             int output_count, char* error, size_t error_size);
  void (*unload)(void* loaded);
} edgekit_engine;

/* Return the version of this library. */
EDGEKIT_API const char* edgekit_version(void);

/* Return why the last call of this thread failed: what, where, why and what to do. "" before any failure. */
EDGEKIT_API const char* edgekit_error(void);

/* Open a bundle: header and manifest are read and checked within the limits of docs/bundle-format.md. NULL:
 * it is missing, damaged, hostile or of another version. */
EDGEKIT_API edgekit_bundle* edgekit_open(const char* path);

/* Close a bundle. Sessions must be stopped first. NULL is ignored. */
EDGEKIT_API void edgekit_close(edgekit_bundle* bundle);

/* Return a text: EDGEKIT_DIGEST (64 hexadecimal digits), EDGEKIT_MANIFEST or EDGEKIT_CARD (JSON in UTF-8).
 * Its bytes are written to *size, which may be NULL. A zero byte follows, but not after the card. NULL: the
 * bundle has no card. */
EDGEKIT_API const char* edgekit_text(const edgekit_bundle* bundle, int what, size_t* size);

/* Return the number of inputs, outputs, variants, entries or golden vectors. -1 if what is unknown. */
EDGEKIT_API int edgekit_count(const edgekit_bundle* bundle, int what);

/* Declare an input or output (what: EDGEKIT_INPUTS or EDGEKIT_OUTPUTS). 0, or -1 if it does not exist. */
EDGEKIT_API int edgekit_tensor_at(const edgekit_bundle* bundle, int what, int index, edgekit_tensor* tensor);

/* Describe a variant, in the bundle's order. 0, or -1 if it does not exist. */
EDGEKIT_API int edgekit_variant_at(const edgekit_bundle* bundle, int index, edgekit_variant* variant);

/* Describe a file of a variant. 0, or -1 if it does not exist. */
EDGEKIT_API int edgekit_file_at(const edgekit_bundle* bundle, int variant, int index, edgekit_file* file);

/* Read an entry into buffer, which has exactly its size, and check its sha256. Returns its size in bytes;
 * with NULL and 0 nothing is read. -1: it does not exist, or is damaged. */
EDGEKIT_API int64_t edgekit_read(const edgekit_bundle* bundle, const char* entry, void* buffer, size_t size);

/* Check the sha256 of every entry, zeros between them, and the headers of golden arrays. 0, or -1. */
EDGEKIT_API int edgekit_verify(const edgekit_bundle* bundle);

/* Begin to prepare inputs by the card: one image or one sound, beside constants and states. The bundle must
 * outlive it. NULL: the bundle has no card, or one that this library does not prepare. */
EDGEKIT_API edgekit_preparation* edgekit_begin(const edgekit_bundle* bundle);

/* Prepare a picture, or the next window of a sound. The samples of input are added to those that wait; NULL
 * adds none, so call with NULL until count is 0. The result is valid until the next call. NULL: it failed. */
EDGEKIT_API const edgekit_prepared* edgekit_prepare(edgekit_preparation* preparation,
                                                    const edgekit_input* input);

/* Keep the card's states among a run's outputs for the next edgekit_prepare. 0, or -1. */
EDGEKIT_API int edgekit_carry(edgekit_preparation* preparation, const edgekit_tensor* outputs, int count);

/* End a preparation. NULL is ignored. */
EDGEKIT_API void edgekit_end(edgekit_preparation* preparation);

/* Decode the model's outputs by the card's task. placement is what edgekit_prepare returned; NULL if the card
 * takes a sound. The prediction is the caller's: edgekit_free_prediction.
 * NULL: the outputs do not fit, are not finite, or the task is not one of this library. */
EDGEKIT_API edgekit_prediction* edgekit_decode(const edgekit_bundle* bundle, const edgekit_tensor* outputs,
                                               int count, const edgekit_placement* placement);

/* Free a prediction. NULL is ignored. */
EDGEKIT_API void edgekit_free_prediction(edgekit_prediction* prediction);

/* Compute the signal-to-noise ratio of an output, 10 log10(sum x^2 / sum (x - y)^2), in dB. Returns 1: *db is
 * it (-1000 where other values are not finite); 0: they are equal; -1: dtype or shape differ. */
EDGEKIT_API int edgekit_snr_db(const edgekit_tensor* expected, const edgekit_tensor* actual, double* db);

/* Return the adapter of an engine for a target, "ort" (ONNX Runtime), "tflite" (LiteRT) or "openvino", from
 * its shared library (NULL: the one that the program is linked with, else the system's name of it). It is
 * loaded once and stays. NULL: it cannot be loaded, or the target has no adapter. */
EDGEKIT_API const edgekit_engine* edgekit_adapter(const char* target, const char* library);

/* Start a session: the best variant that loads on one of the engines and whose golden vectors are right. The
 * bundle and the engines must outlive it. options may be NULL. NULL: none works; the error names each reason.
 */
EDGEKIT_API edgekit_session* edgekit_start(const edgekit_bundle* bundle, const edgekit_engine* const* engines,
                                           int count, const edgekit_options* options);

/* Stop a session. NULL is ignored. */
EDGEKIT_API void edgekit_stop(edgekit_session* session);

/* Run the model. inputs: all of the model's, in its order. *outputs becomes all of its outputs, valid until
 * the next call. A variant that fails is left for the next one, which repeats the run. 0, or -1: all have
 * failed. */
EDGEKIT_API int edgekit_run(edgekit_session* session, const edgekit_tensor* inputs, int count,
                            const edgekit_tensor** outputs);

/* Prepare a picture or the next window of a sound, run, keep the states, and decode; see edgekit_prepare.
 * NULL: it failed. */
EDGEKIT_API edgekit_prediction* edgekit_predict(edgekit_session* session, const edgekit_input* input);

/* Return the name of the variant that runs. */
EDGEKIT_API const char* edgekit_active(const edgekit_session* session);

/* Describe a fallback, oldest first. 0, or -1 if it does not exist. */
EDGEKIT_API int edgekit_fallback_at(const edgekit_session* session, int index, edgekit_fallback* fallback);

#ifdef __cplusplus
}
#endif
#endif
