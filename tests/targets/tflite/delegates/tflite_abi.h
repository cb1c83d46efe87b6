/* The part of TFLite's C ABI that an external delegate needs, declared by hand.
 * Order and types are the contract; names are ours to choose, and are kept for readers.
 * 64-bit Linux. Structs that the runtime owns may be longer than declared here. */
#ifndef TFLITE_ABI_H
#define TFLITE_ABI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { kTfLiteOk = 0, kTfLiteError = 1, kTfLiteDelegateError = 2, kTfLiteApplicationError = 3,
               kTfLiteDelegateDataNotFound = 4 } TfLiteStatus;
enum { kFloat32 = 1, kInt32 = 2, kUInt8 = 3, kInt8 = 9 };                  /* TfLiteType */
enum { OP_ADD = 0, OP_CONV_2D = 3, OP_DELEGATE = 51 };
enum { PADDING_SAME = 1, PADDING_VALID = 2 };
enum { ACT_NONE = 0, ACT_RELU = 1, ACT_RELU_N1_TO_1 = 2, ACT_RELU6 = 3 };

typedef struct { int size; int data[]; } TfLiteIntArray;
typedef struct { int size; float data[]; } TfLiteFloatArray;
typedef struct { TfLiteFloatArray* scale; TfLiteIntArray* zero_point; int32_t quantized_dimension; } TfLiteAffine;
typedef struct TfLiteContext TfLiteContext;
typedef struct TfLiteDelegate TfLiteDelegate;

typedef struct {
  int type;
  void* data;
  TfLiteIntArray* dims;
  struct { float scale; int32_t zero_point; } params;
  int allocation_type;                       /* 1: constant of the file */
  size_t bytes;
  const void* allocation;
  const char* name;
  TfLiteDelegate* delegate;
  int buffer_handle;
  bool data_is_stale;
  bool is_variable;
  struct { int type; TfLiteAffine* affine; } quantization;
  void* sparsity;
  const TfLiteIntArray* dims_signature;
} TfLiteTensor;                              /* an array of these: the size must be right (112 bytes) */

typedef struct {
  TfLiteIntArray *inputs, *outputs, *intermediates, *temporaries;
  void* user_data;
  void* builtin_data;
} TfLiteNode;

typedef struct {
  void* (*init)(TfLiteContext*, const char* buffer, size_t length);
  void (*free)(TfLiteContext*, void*);
  TfLiteStatus (*prepare)(TfLiteContext*, TfLiteNode*);
  TfLiteStatus (*invoke)(TfLiteContext*, TfLiteNode*);
  const char* (*profiling_string)(const TfLiteContext*, const TfLiteNode*);
  int32_t builtin_code;
  const char* custom_name;
  int version;
#ifndef OLD_REGISTRATION                     /* older headers end earlier; build with 64, 72 or 80 (bytes) to try */
#define OLD_REGISTRATION 88                  /* today */
#endif
#if OLD_REGISTRATION >= 72
  void* registration_external;
#endif
#if OLD_REGISTRATION >= 80
  void* async_kernel;
#endif
#if OLD_REGISTRATION >= 88
  uint64_t inplace_operator;
#endif
} TfLiteRegistration;                        /* passed BY VALUE to ReplaceNodeSubsets: its size is the ABI break */

typedef struct { TfLiteDelegate* delegate; TfLiteIntArray *nodes_to_replace, *input_tensors, *output_tensors; } TfLiteDelegateParams;

struct TfLiteContext {
  size_t tensors_size;
  TfLiteStatus (*GetExecutionPlan)(TfLiteContext*, TfLiteIntArray**);
  TfLiteTensor* tensors;
  void* impl_;
  void* ResizeTensor;
  void (*ReportError)(TfLiteContext*, const char* format, ...);
  void* AddTensors;
  TfLiteStatus (*GetNodeAndRegistration)(TfLiteContext*, int, TfLiteNode**, TfLiteRegistration**);
  TfLiteStatus (*ReplaceNodeSubsetsWithDelegateKernels)(TfLiteContext*, TfLiteRegistration, const TfLiteIntArray*, TfLiteDelegate*);
  int recommended_num_threads;
};

struct TfLiteDelegate {
  void* data_;
  TfLiteStatus (*Prepare)(TfLiteContext*, TfLiteDelegate*);
  void *CopyFromBufferHandle, *CopyToBufferHandle, *FreeBufferHandle;
  int64_t flags;                             /* 1: allows dynamic tensors */
  void* opaque_delegate_builder;             /* non-null: the opaque ABI, Prepare is then in there */
};

typedef struct { int padding, stride_width, stride_height, activation, dilation_width, dilation_height; } ConvParams;
typedef struct { int activation; } AddParams;
#endif
