/* CUDA's runtime library for a machine without a GPU: its memory is the host's. Only what cuda.py calls. */
#include <stdlib.h>
#include <string.h>

enum { UNSUPPORTED = 801 };

const char *cudaGetErrorString(int code) { return code == UNSUPPORTED ? "operation not supported" : "error"; }
int cudaRuntimeGetVersion(int *version) { *version = 12060; return 0; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 75 ? 8 : 7; return 0; }
int cudaGetDeviceProperties_v2(char *properties, int device) { strcpy(properties, "Stand-in"); return 0; }
int cudaHostAlloc(void **pointer, size_t size, unsigned flags) { *pointer = malloc(size); return 0; }
int cudaHostGetDevicePointer(void **device, void *host, unsigned flags) { *device = host; return 0; }
int cudaFreeHost(void *pointer) { free(pointer); return 0; }
int cudaStreamCreateWithFlags(void **stream, unsigned flags) { *stream = malloc(1); return 0; }
int cudaStreamSynchronize(void *stream) { return 0; }
int cudaStreamDestroy(void *stream) { free(stream); return 0; }
int cudaStreamBeginCapture(void *stream, int mode) { return UNSUPPORTED; }
int cudaStreamEndCapture(void *stream, void **graph) { return UNSUPPORTED; }
int cudaGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) { return UNSUPPORTED; }
int cudaGraphDestroy(void *graph) { return 0; }
int cudaGraphLaunch(void *exec, void *stream) { return UNSUPPORTED; }
int cudaGraphExecDestroy(void *exec) { return 0; }
