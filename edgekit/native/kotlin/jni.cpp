// The C interface for Native.kt, by JNI. Texts are bytes in UTF-8, since JNI's own form is another one. A
// function that fails returns 0 or null, and Native.error() is the reason. Native.kt checks arguments.
#include <jni.h>

#include <cstring>
#include <string>
#include <vector>

#include "edgekit.h"

namespace {

using Handle = jlong;

template <class Type>
Type* pointer_of(Handle handle) {
  return reinterpret_cast<Type*>(handle);
}

Handle handle_of(const void* pointer) { return reinterpret_cast<Handle>(pointer); }

jbyteArray bytes_of(JNIEnv* env, const void* bytes, size_t size) {
  jbyteArray array = env->NewByteArray(static_cast<jsize>(size));
  if (array) env->SetByteArrayRegion(array, 0, static_cast<jsize>(size), static_cast<const jbyte*>(bytes));
  return array;
}

jbyteArray text_of(JNIEnv* env, const char* text) { return bytes_of(env, text, std::strlen(text)); }

std::string string_of(JNIEnv* env, jbyteArray array) {
  std::string text(static_cast<size_t>(env->GetArrayLength(array)), '\0');
  env->GetByteArrayRegion(array, 0, static_cast<jsize>(text.size()), reinterpret_cast<jbyte*>(&text[0]));
  return text;
}

// Return an array of Java objects: byte arrays, arrays of numbers, or such arrays again.
jobjectArray array_of(JNIEnv* env, const std::vector<jobject>& objects) {
  jobjectArray array =
      env->NewObjectArray(static_cast<jsize>(objects.size()), env->FindClass("java/lang/Object"), nullptr);
  for (size_t i = 0; array && i < objects.size(); i++) {
    env->SetObjectArrayElement(array, static_cast<jsize>(i), objects[i]);
    env->DeleteLocalRef(objects[i]);
  }
  return array;
}

jlongArray longs_of(JNIEnv* env, const std::vector<jlong>& values) {
  jlongArray array = env->NewLongArray(static_cast<jsize>(values.size()));
  if (array) env->SetLongArrayRegion(array, 0, static_cast<jsize>(values.size()), values.data());
  return array;
}

// Return a tensor as name, dtype, shape and bytes; a declaration has no bytes.
jobject tensor_of(JNIEnv* env, const edgekit_tensor& tensor) {
  std::vector<jlong> shape(tensor.shape, tensor.shape + tensor.rank);
  return array_of(env, {text_of(env, tensor.name), text_of(env, tensor.dtype), longs_of(env, shape),
                        bytes_of(env, tensor.bytes, tensor.size_bytes)});
}

// Return a prediction as its kind, indices, labels, five numbers of each item (score and box), and the
// window's start and end in seconds.
jobject prediction_of(JNIEnv* env, edgekit_prediction* prediction) {
  if (!prediction) return nullptr;
  std::vector<jlong> indices;
  std::vector<jfloat> numbers;
  std::vector<jobject> labels;
  for (size_t i = 0; i < prediction->count; i++) {
    const edgekit_item& item = prediction->items[i];
    indices.push_back(item.index);
    labels.push_back(text_of(env, item.label));
    numbers.push_back(item.score);
    numbers.insert(numbers.end(), item.box, item.box + 4);
  }
  jfloatArray floats = env->NewFloatArray(static_cast<jsize>(numbers.size()));
  if (floats) env->SetFloatArrayRegion(floats, 0, static_cast<jsize>(numbers.size()), numbers.data());
  jdoubleArray span = env->NewDoubleArray(2);
  const jdouble times_s[2] = {prediction->start_s, prediction->end_s};
  if (span) env->SetDoubleArrayRegion(span, 0, 2, times_s);
  jobject result = array_of(env, {text_of(env, prediction->kind), longs_of(env, indices),
                                  array_of(env, labels), floats, span});
  edgekit_free_prediction(prediction);
  return result;
}

edgekit_input picture_of(const void* pixels, int width, int height, int order) {
  edgekit_input input{};
  input.kind = EDGEKIT_PICTURE, input.values = pixels;
  input.width = width, input.height = height, input.order = order;
  return input;
}

}  // namespace

#define NATIVE(result, name, ...) JNIEXPORT result JNICALL Java_org_edgekit_Native_##name(JNIEnv* env, jobject, ##__VA_ARGS__)

extern "C" {

NATIVE(jbyteArray, version) { return text_of(env, edgekit_version()); }

NATIVE(jbyteArray, error) { return text_of(env, edgekit_error()); }

NATIVE(Handle, open, jbyteArray path) { return handle_of(edgekit_open(string_of(env, path).c_str())); }

NATIVE(void, close, Handle bundle) {
  (void)env;
  edgekit_close(pointer_of<edgekit_bundle>(bundle));
}

NATIVE(jint, count, Handle bundle, jint what) {
  (void)env;
  return edgekit_count(pointer_of<edgekit_bundle>(bundle), what);
}

NATIVE(jobject, tensorAt, Handle bundle, jint what, jint index) {
  edgekit_tensor tensor;
  if (edgekit_tensor_at(pointer_of<edgekit_bundle>(bundle), what, index, &tensor)) return nullptr;
  return tensor_of(env, tensor);
}

NATIVE(jobject, variantAt, Handle bundle, jint index) {
  edgekit_variant variant;
  if (edgekit_variant_at(pointer_of<edgekit_bundle>(bundle), index, &variant)) return nullptr;
  return array_of(env, {text_of(env, variant.name), text_of(env, variant.target),
                        text_of(env, variant.profile), text_of(env, variant.precision),
                        text_of(env, variant.status)});
}

NATIVE(Handle, adapter, jbyteArray target, jbyteArray library) {
  const std::string path = library ? string_of(env, library) : "";
  return handle_of(edgekit_adapter(string_of(env, target).c_str(), library ? path.c_str() : nullptr));
}

NATIVE(Handle, start, Handle bundle, jlongArray engines, jbyteArray variant, jboolean strict, jint threads) {
  std::string name = variant ? string_of(env, variant) : "";
  edgekit_options options{variant ? name.c_str() : nullptr, strict, threads};
  std::vector<jlong> handles(static_cast<size_t>(env->GetArrayLength(engines)));
  env->GetLongArrayRegion(engines, 0, static_cast<jsize>(handles.size()), handles.data());
  std::vector<const edgekit_engine*> all;
  for (jlong handle : handles) all.push_back(pointer_of<const edgekit_engine>(handle));
  return handle_of(
      edgekit_start(pointer_of<edgekit_bundle>(bundle), all.data(), static_cast<int>(all.size()), &options));
}

NATIVE(void, stop, Handle session) {
  (void)env;
  edgekit_stop(pointer_of<edgekit_session>(session));
}

NATIVE(jbyteArray, active, Handle session) {
  const char* name = edgekit_active(pointer_of<edgekit_session>(session));
  return name ? text_of(env, name) : nullptr;
}

NATIVE(jobject, fallbackAt, Handle session, jint index) {
  edgekit_fallback fallback;
  if (edgekit_fallback_at(pointer_of<edgekit_session>(session), index, &fallback)) return nullptr;
  return array_of(env,
                  {text_of(env, fallback.from), text_of(env, fallback.to), text_of(env, fallback.reason)});
}

NATIVE(jobject, predictBytes, Handle session, jbyteArray pixels, jint width, jint height, jint order) {
  jbyte* bytes = env->GetByteArrayElements(pixels, nullptr);
  if (!bytes) return nullptr;
  const edgekit_input input = picture_of(bytes, width, height, order);
  edgekit_prediction* prediction = edgekit_predict(pointer_of<edgekit_session>(session), &input);
  env->ReleaseByteArrayElements(pixels, bytes, JNI_ABORT);
  return prediction_of(env, prediction);
}

NATIVE(jobject, predictColours, Handle session, jintArray colours, jint width, jint height) {
  std::vector<uint8_t> pixels(static_cast<size_t>(env->GetArrayLength(colours)) * 3);
  jint* values = env->GetIntArrayElements(colours, nullptr);
  if (!values) return nullptr;
  for (size_t i = 0; i < pixels.size() / 3; i++) {
    const auto colour = static_cast<uint32_t>(values[i]);  // alpha, red, green, blue
    pixels[3 * i] = static_cast<uint8_t>(colour >> 16);
    pixels[3 * i + 1] = static_cast<uint8_t>(colour >> 8);
    pixels[3 * i + 2] = static_cast<uint8_t>(colour);
  }
  env->ReleaseIntArrayElements(colours, values, JNI_ABORT);
  const edgekit_input input = picture_of(pixels.data(), width, height, EDGEKIT_RGB);
  return prediction_of(env, edgekit_predict(pointer_of<edgekit_session>(session), &input));
}

NATIVE(jobject, predictSound, Handle session, jfloatArray samples, jint rate, jboolean begins, jboolean ends) {
  edgekit_input input{};
  input.kind = EDGEKIT_SOUND;
  input.rate_hz = rate, input.begins = begins, input.ends = ends;
  jfloat* values = env->GetFloatArrayElements(samples, nullptr);
  if (!values) return nullptr;
  input.values = values, input.count = static_cast<size_t>(env->GetArrayLength(samples));
  edgekit_prediction* prediction = edgekit_predict(pointer_of<edgekit_session>(session), &input);
  env->ReleaseFloatArrayElements(samples, values, JNI_ABORT);
  return prediction_of(env, prediction);
}

NATIVE(jobject, predictWaiting, Handle session) {
  return prediction_of(env, edgekit_predict(pointer_of<edgekit_session>(session), nullptr));
}

NATIVE(jobject, run, Handle session, jobjectArray inputs, jint outputs) {
  struct Input {
    std::string name, dtype, bytes;
  };
  const auto count = static_cast<size_t>(env->GetArrayLength(inputs));
  std::vector<Input> texts(count);
  std::vector<edgekit_tensor> tensors(count);
  for (size_t i = 0; i < count; i++) {
    auto parts = static_cast<jobjectArray>(env->GetObjectArrayElement(inputs, static_cast<jsize>(i)));
    auto part = [&](jsize index) { return env->GetObjectArrayElement(parts, index); };
    texts[i] = {string_of(env, static_cast<jbyteArray>(part(0))),
                string_of(env, static_cast<jbyteArray>(part(1))),
                string_of(env, static_cast<jbyteArray>(part(3)))};
    auto shape = static_cast<jlongArray>(part(2));
    edgekit_tensor& tensor = tensors[i];
    tensor.name = texts[i].name.c_str(), tensor.dtype = texts[i].dtype.c_str();
    tensor.rank = env->GetArrayLength(shape);  // Native.kt: at most EDGEKIT_RANK_LIMIT
    jlong sizes[EDGEKIT_RANK_LIMIT];
    env->GetLongArrayRegion(shape, 0, tensor.rank, sizes);
    for (int axis = 0; axis < tensor.rank; axis++) tensor.shape[axis] = sizes[axis];
    tensor.bytes = &texts[i].bytes[0], tensor.size_bytes = texts[i].bytes.size();
  }
  const edgekit_tensor* made = nullptr;
  if (edgekit_run(pointer_of<edgekit_session>(session), tensors.data(), static_cast<int>(count), &made)) {
    return nullptr;
  }
  std::vector<jobject> results;
  for (jint i = 0; i < outputs; i++) results.push_back(tensor_of(env, made[i]));
  return array_of(env, results);
}

}  // extern "C"
