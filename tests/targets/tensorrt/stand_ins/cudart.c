/* CUDA's runtime library for a machine without a GPU: its memory is the host's, and what is put on a stream is
   done when the stream is waited for. Only what cuda.py calls, and stand_in_*, which tensorrt.py calls.
   STAND_IN_CUDA makes it misbehave. */
#include <stdlib.h>
#include <string.h>

enum { INVALID = 1, LAUNCH_FAILURE = 719, UNSUPPORTED = 801, INVALIDATED = 901 };
enum { MAPPED = 2, BUFFERS = 64, WORKS = 16 };
typedef void (*Work)(void);
typedef struct { int count; Work works[WORKS]; } List;
typedef struct { int recording; List waiting, recorded; } Stream;

static char *buffers[BUFFERS];
static int alive;                         /* everything made and not given back */
static const size_t AWAY = (size_t)1 << 44; /* a device address is no host address */

static int is(const char *how) {
    const char *said = getenv("STAND_IN_CUDA");
    return said && !strcmp(said, how);
}
static void *made(size_t size) { ++alive; return calloc(1, size); }
static int gone(void *pointer) {
    if (!pointer) return INVALID;
    --alive;
    free(pointer);
    return 0;
}
static char **place_of(void *host) {
    for (int at = 0; at < BUFFERS; ++at) if (buffers[at] == host) return buffers + at;
    return NULL;
}

int stand_in_alive(void) { return alive; }
int stand_in_recording(Stream *stream) { return stream->recording; }
void *stand_in_host(char *device) { return place_of(device - AWAY) ? device - AWAY : NULL; }
void stand_in_enqueue(Stream *stream, Work work) {
    List *list = stream->recording ? &stream->recorded : &stream->waiting;
    list->works[list->count++] = work;
}

const char *cudaGetErrorString(int code) {
    return code == UNSUPPORTED ? "operation not supported" : code == INVALIDATED ? "capture invalidated" : "error";
}
int cudaRuntimeGetVersion(int *version) { *version = 12060; return 0; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 75 ? 8 : 7; return 0; }
int cudaGetDeviceProperties_v2(char *properties, int device) { strcpy(properties, "Stand-in"); return 0; }
int cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
    char **place = place_of(NULL);
    if (flags != MAPPED || !place) return INVALID;
    *pointer = *place = made(size);
    return 0;
}
int cudaHostGetDevicePointer(void **device, char *host, unsigned flags) { *device = host + AWAY; return 0; }
int cudaFreeHost(void *pointer) {
    char **place = pointer ? place_of(pointer) : NULL;
    if (!place) return INVALID;
    *place = NULL;
    return gone(pointer);
}
int cudaStreamCreateWithFlags(void **stream, unsigned flags) { *stream = made(sizeof(Stream)); return 0; }
int cudaStreamSynchronize(Stream *stream) {
    if (stream->recording) return INVALIDATED;
    for (int at = 0; at < stream->waiting.count; ++at) stream->waiting.works[at]();
    stream->waiting.count = 0;
    return 0;
}
int cudaStreamDestroy(void *stream) { return gone(stream); }
int cudaStreamBeginCapture(Stream *stream, int mode) {
    if (is("records nothing")) return UNSUPPORTED;
    stream->recording = 1;
    stream->recorded.count = 0;
    return 0;
}
int cudaStreamEndCapture(Stream *stream, void **graph) {
    stream->recording = 0;
    if (is("spoils the recording")) return INVALIDATED;
    *graph = memcpy(made(sizeof(List)), &stream->recorded, sizeof(List));
    return 0;
}
int cudaGraphInstantiateWithFlags(void **launchable, void *graph, unsigned long long flags) {
    if (is("makes no graph")) return UNSUPPORTED;
    *launchable = memcpy(made(sizeof(List)), graph, sizeof(List));
    return 0;
}
int cudaGraphDestroy(void *graph) { return gone(graph); }
int cudaGraphLaunch(List *launchable, Stream *stream) {
    if (is("fails to launch")) return LAUNCH_FAILURE;
    for (int at = 0; !is("launches nothing") && at < launchable->count; ++at)
        stand_in_enqueue(stream, launchable->works[at]);
    return 0;
}
int cudaGraphExecDestroy(void *launchable) { return gone(launchable); }
