/* An external delegate that runs CONV_2D and ADD, of float32 or int8, in the manner that its options set:
 *   mode     right small large nan slow nothing refuse error_prepare error_invoke
 *            break (an error, and wrong from then on)
 *            in_place (its partitions may write over their inputs), chance (the same in every other process)
 *            second (wrong if the file of lock exists already)
 *            crash_create crash_prepare crash_invoke crash_destroy crash_exit
 *            hang_create hang_prepare hang_invoke hang_destroy
 *   after    runs that are right before small, large, slow, nan, error_invoke, crash_invoke and hang_invoke begin
 *   by       mode small: relative error of the outputs
 *   value    modes large, small: only inputs whose first value is above it are wrong
 *   dtype    float32, int8 or both: nodes of other types are left to the CPU
 *   limit    largest number of nodes
 *   only     builtin code of the nodes that it takes, 0 (ADD) or 3 (CONV_2D)
 *   slow_us  mode slow: time of a run of a partition
 *   lock     a file that stands for a device which one process may hold
 * Build: cc -O2 -shared -fPIC -o delegate.so delegate.c -lm */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include "tflite_abi.h"

typedef struct { TfLiteDelegate delegate; char mode[32], dtype[16]; double by, value; int lock, limit, only, after, slow_us, runs; bool broken; } Manner;
typedef struct { int code; TfLiteNode node; } Step; /* a copy: the list of nodes moves when XNNPACK adds one */
typedef struct { Manner* manner; int count, tensors; Step* steps; void** scratch; } Partition;
static bool crashes_at_exit = false;

static bool is(const Manner* m, const char* mode) { return !strcmp(m->mode, mode); }
static void misbehave(const Manner* m, const char* crash, const char* hang) {
  if (is(m, crash)) raise(SIGSEGV);
  while (is(m, hang)) usleep(100000);
}
__attribute__((destructor)) static void at_exit(void) { if (crashes_at_exit) raise(SIGSEGV); }

/* Memory of a tensor: ours if it is used in the partition only. */
static void* memory(const Partition* p, const TfLiteContext* c, int index) {
  return p->scratch[index] ? p->scratch[index] : c->tensors[index].data;
}
static double read_value(const TfLiteTensor* t, const void* data, size_t i) {
  return t->type == kInt8 ? (((const int8_t*)data)[i] - t->params.zero_point) * (double)t->params.scale : ((const float*)data)[i];
}
static void write_value(const TfLiteTensor* t, void* data, size_t i, double v, int act) {
  if (act == ACT_RELU || act == ACT_RELU6) v = v < 0 ? 0 : v;
  if (act == ACT_RELU6) v = v > 6 ? 6 : v;
  if (t->type != kInt8) { ((float*)data)[i] = (float)v; return; }
  double q = round(v / t->params.scale) + t->params.zero_point; /* once, where TFLite rounds twice: one step apart now and then */
  ((int8_t*)data)[i] = (int8_t)(q < -128 ? -128 : q > 127 ? 127 : q);
}
static size_t elements(const TfLiteTensor* t) { return t->bytes / (t->type == kInt8 ? 1 : 4); }

static void run_conv(const Partition* p, TfLiteContext* c, const TfLiteNode* n) {
  const int *in = n->inputs->data, bias_index = n->inputs->size > 2 ? in[2] : -1, out = n->outputs->data[0];
  const TfLiteTensor *x = &c->tensors[in[0]], *w = &c->tensors[in[1]], *y = &c->tensors[out];
  const void *xs = memory(p, c, in[0]), *bias = bias_index < 0 ? NULL : c->tensors[bias_index].data;
  void* ys = memory(p, c, out);
  const ConvParams* k = n->builtin_data;
  int H = x->dims->data[1], W = x->dims->data[2], C = x->dims->data[3], kh = w->dims->data[1], kw = w->dims->data[2];
  int OH = y->dims->data[1], OW = y->dims->data[2], OC = y->dims->data[3], sh = k->stride_height, sw = k->stride_width, ph = 0, pw = 0;
  if (k->padding == PADDING_SAME) {
    ph = (OH - 1) * sh + kh - H; pw = (OW - 1) * sw + kw - W;
    ph = ph > 0 ? ph / 2 : 0; pw = pw > 0 ? pw / 2 : 0;
  }
  bool integer = x->type == kInt8;
  const TfLiteFloatArray* scales = integer ? w->quantization.affine->scale : NULL;
  for (int oy = 0; oy < OH; oy++) for (int ox = 0; ox < OW; ox++) for (int oc = 0; oc < OC; oc++) {
    double sum = 0; int64_t isum = 0;
    for (int fy = 0; fy < kh; fy++) for (int fx = 0; fx < kw; fx++) {
      int iy = oy * sh - ph + fy, ix = ox * sw - pw + fx;
      if (iy < 0 || ix < 0 || iy >= H || ix >= W) continue;
      size_t xo = ((size_t)iy * W + ix) * C, wo = (((size_t)oc * kh + fy) * kw + fx) * C;
      if (integer) for (int ic = 0; ic < C; ic++) isum += (((const int8_t*)xs)[xo + ic] - x->params.zero_point) * ((const int8_t*)w->data)[wo + ic];
      else for (int ic = 0; ic < C; ic++) sum += (double)((const float*)xs)[xo + ic] * ((const float*)w->data)[wo + ic];
    }
    if (integer) sum = (double)(isum + (bias ? ((const int32_t*)bias)[oc] : 0)) * x->params.scale * scales->data[scales->size > 1 ? oc : 0];
    else if (bias) sum += ((const float*)bias)[oc];
    write_value(y, ys, ((size_t)oy * OW + ox) * OC + oc, sum, k->activation);
  }
}
static void run_step(const Partition* p, TfLiteContext* c, const Step* step) {
  const TfLiteNode* n = &step->node;
  if (step->code == OP_CONV_2D) { run_conv(p, c, n); return; }
  const int* in = n->inputs->data;
  const TfLiteTensor *a = &c->tensors[in[0]], *b = &c->tensors[in[1]], *y = &c->tensors[n->outputs->data[0]];
  const void *as = memory(p, c, in[0]), *bs = memory(p, c, in[1]);
  void* ys = memory(p, c, n->outputs->data[0]);
  for (size_t i = 0; i < elements(y); i++) write_value(y, ys, i, read_value(a, as, i) + read_value(b, bs, i), ((AddParams*)n->builtin_data)->activation);
}

static void* kernel_init(TfLiteContext* c, const char* buffer, size_t length) {
  const TfLiteDelegateParams* params = (const TfLiteDelegateParams*)buffer;
  Partition* p = calloc(1, sizeof *p);
  p->manner = params->delegate->data_;
  p->count = params->nodes_to_replace->size;
  p->steps = calloc(p->count, sizeof(Step));
  p->tensors = (int)c->tensors_size;
  p->scratch = calloc(p->tensors, sizeof(void*));
  for (int i = 0; i < p->count; i++) { /* outputs that nobody else reads have no memory of the interpreter's */
    TfLiteNode* n; TfLiteRegistration* r;
    c->GetNodeAndRegistration(c, params->nodes_to_replace->data[i], &n, &r); /* not allowed in invoke */
    p->steps[i] = (Step){r->builtin_code, *n};
    int index = n->outputs->data[0]; bool outside = false;
    for (int k = 0; k < params->output_tensors->size; k++) outside |= params->output_tensors->data[k] == index;
    if (!outside) p->scratch[index] = malloc(c->tensors[index].bytes + 64);
  }
  return p;
}
static void kernel_free(TfLiteContext* c, void* data) {
  Partition* p = data;
  for (int i = 0; i < p->tensors; i++) free(p->scratch[i]);
  free(p->scratch); free(p->steps); free(p);
}
static TfLiteStatus kernel_prepare(TfLiteContext* c, TfLiteNode* n) { return kTfLiteOk; }
static TfLiteStatus kernel_invoke(TfLiteContext* c, TfLiteNode* n) {
  Partition* p = n->user_data; Manner* m = p->manner;
  bool now = m->runs++ >= m->after;
  const TfLiteTensor* first = &c->tensors[p->steps[0].node.inputs->data[0]];
  now = now && read_value(first, memory(p, c, p->steps[0].node.inputs->data[0]), 0) > m->value;
  if (now) misbehave(m, "crash_invoke", "hang_invoke");
  if (now && is(m, "break")) m->broken = true;
  if (now && (is(m, "error_invoke") || is(m, "break"))) { c->ReportError(c, "the device was unplugged"); return kTfLiteError; }
  for (int i = 0; i < p->count; i++) run_step(p, c, &p->steps[i]);
  if (now && is(m, "slow")) usleep(m->slow_us);
  double factor = is(m, "large") ? -1 : is(m, "small") ? 1 + m->by : is(m, "nan") ? NAN : 1;
  if (m->broken) { factor = -1; now = true; }
  if (now && factor != 1) for (int o = 0; o < n->outputs->size; o++) {
    TfLiteTensor* y = &c->tensors[n->outputs->data[o]];
    for (size_t i = 0; i < elements(y); i++) write_value(y, y->data, i, read_value(y, y->data, i) * (i % 2 && is(m, "small") ? 2 - factor : factor), ACT_NONE);
  }
  return kTfLiteOk;
}

static bool wanted(const Manner* m, TfLiteContext* c, const TfLiteNode* n, const TfLiteRegistration* r) {
  if (r->builtin_code != OP_CONV_2D && r->builtin_code != OP_ADD) return false;
  if (m->only >= 0 && r->builtin_code != m->only) return false;
  const TfLiteTensor *x = &c->tensors[n->inputs->data[0]], *y = &c->tensors[n->outputs->data[0]];
  if (x->type != y->type || (x->type != kFloat32 && x->type != kInt8)) return false;
  if (strcmp(m->dtype, "both") && strcmp(m->dtype, x->type == kInt8 ? "int8" : "float32")) return false;
  return r->builtin_code != OP_ADD || x->bytes == c->tensors[n->inputs->data[1]].bytes;
}
static TfLiteStatus prepare(TfLiteContext* c, TfLiteDelegate* d) {
  Manner* m = d->data_;
  misbehave(m, "crash_prepare", "hang_prepare");
  if (is(m, "error_prepare")) { c->ReportError(c, "the model was compiled for runtime 13, this is 14"); return kTfLiteError; }
  TfLiteIntArray* plan;
  if (c->GetExecutionPlan(c, &plan) != kTfLiteOk) return kTfLiteError;
  int size = plan->size, *order = malloc(sizeof(int) * (size + 1)); /* the next call that reads the plan frees this one */
  memcpy(order, plan->data, sizeof(int) * size);
  TfLiteIntArray* take = malloc(sizeof(int) * (size + 1));
  take->size = 0;
  for (int i = 0; i < size; i++) {
    TfLiteNode* n; TfLiteRegistration* r;
    c->GetNodeAndRegistration(c, order[i], &n, &r);
    if (!is(m, "nothing") && take->size < m->limit && wanted(m, c, n, r)) take->data[take->size++] = order[i];
  }
  TfLiteRegistration kernel;
  memset(&kernel, 0, sizeof kernel);
  kernel.init = kernel_init; kernel.free = kernel_free; kernel.prepare = kernel_prepare; kernel.invoke = kernel_invoke;
  kernel.builtin_code = OP_DELEGATE; kernel.custom_name = "EdgeKitTestDelegate"; kernel.version = 1;
#if OLD_REGISTRATION == 88
  /* An older build leaves this field to what the stack holds. */
  if (is(m, "in_place") || (is(m, "chance") && getpid() % 2)) kernel.inplace_operator = ~0ull;
#endif
  TfLiteStatus status = c->ReplaceNodeSubsetsWithDelegateKernels(c, kernel, take, d);
  free(take); free(order);
  return status;
}

__attribute__((visibility("default"))) TfLiteDelegate* tflite_plugin_create_delegate(const char* const* keys, const char* const* values, size_t count, void (*report_error)(const char*)) {
  Manner* m = calloc(1, sizeof *m);
  const char* lock = NULL;
  strcpy(m->mode, "right"); strcpy(m->dtype, "both");
  m->limit = 1 << 20; m->only = -1; m->slow_us = 20000; m->by = 0.01; m->value = -1e30;
  for (size_t i = 0; i < count; i++) {
    if (!strcmp(keys[i], "mode")) strncpy(m->mode, values[i], 31);
    else if (!strcmp(keys[i], "dtype")) strncpy(m->dtype, values[i], 15);
    else if (!strcmp(keys[i], "limit")) m->limit = atoi(values[i]);
    else if (!strcmp(keys[i], "only")) m->only = atoi(values[i]);
    else if (!strcmp(keys[i], "by")) m->by = atof(values[i]);
    else if (!strcmp(keys[i], "value")) m->value = atof(values[i]);
    else if (!strcmp(keys[i], "after")) m->after = atoi(values[i]);
    else if (!strcmp(keys[i], "slow_us")) m->slow_us = atoi(values[i]);
    else if (!strcmp(keys[i], "lock")) lock = values[i];
    else { report_error("unknown option"); free(m); return NULL; }
  }
  misbehave(m, "crash_create", "hang_create");
  crashes_at_exit = is(m, "crash_exit");
  if (is(m, "refuse")) { free(m); return NULL; } /* without a reason, as vendors' delegates do */
  m->broken = is(m, "second") && access(lock, F_OK) == 0;
  if (lock && ((m->lock = open(lock, O_CREAT | O_RDWR | O_CLOEXEC, 0600)) < 0 || flock(m->lock, LOCK_EX | LOCK_NB))) { report_error("device busy"); free(m); return NULL; }
  m->delegate.data_ = m; m->delegate.Prepare = prepare;
  return &m->delegate;
}
__attribute__((visibility("default"))) void tflite_plugin_destroy_delegate(TfLiteDelegate* d) {
  if (!d) return;
  Manner* m = d->data_;
  misbehave(m, "crash_destroy", "hang_destroy");
  if (m->lock) close(m->lock);
  free(m);
}
