// Print the best class of each window of a sound (WAV, one channel, 16 bits). docs/native.md has the commands.
#include <edgekit.h>
#include <stdio.h>
#include <stdlib.h>

enum { PIECE = 1000 };

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, edgekit_error());
  return 1;
}

int main(int argc, char **argv) {
  unsigned char head[44], bytes[2 * PIECE];
  float samples[PIECE];
  if (argc != 4) return fprintf(stderr, "usage: %s BUNDLE LIBONNXRUNTIME SOUND.wav\n", argv[0]), 2;
  FILE *file = fopen(argv[3], "rb");
  if (!file || fread(head, 1, 44, file) != 44 || head[22] != 1 || head[34] != 16) return 2;

  edgekit_bundle *bundle = edgekit_open(argv[1]);
  if (!bundle) return fail("open");
  const edgekit_engine *ort = edgekit_adapter("ort", argv[2]);
  if (!ort) return fail("engine");
  edgekit_session *session = edgekit_start(bundle, &ort, 1, NULL);
  if (!session) return fail("start");

  edgekit_input sound = {.kind = EDGEKIT_SOUND, .values = samples, .begins = 1};
  sound.rate_hz = head[24] | head[25] << 8 | head[26] << 16;
  for (; !sound.ends; sound.begins = 0) {
    sound.count = fread(bytes, 2, PIECE, file);
    sound.ends = sound.count < PIECE;
    for (size_t i = 0; i < sound.count; i++) samples[i] = (int16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8) / 32768.0f;
    edgekit_prediction *found = edgekit_predict(session, &sound);
    for (; found && found->count; found = edgekit_predict(session, NULL)) {  // the next window of those samples
      printf("%.3f %.3f %s %.6f\n", found->start_s, found->end_s, found->items[0].label, found->items[0].score);
      edgekit_free_prediction(found);
    }
    if (!found) return fail("predict");
    edgekit_free_prediction(found);
  }
  fclose(file);
  edgekit_stop(session);
  edgekit_close(bundle);
  return 0;
}
