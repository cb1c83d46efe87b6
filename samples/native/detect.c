// Print what a model finds in a picture (binary PPM). docs/native.md has the commands.
#include <edgekit.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, edgekit_error());
  return 1;
}

int main(int argc, char **argv) {
  int width, height;
  if (argc != 4) return fprintf(stderr, "usage: %s BUNDLE LIBONNXRUNTIME PICTURE.ppm\n", argv[0]), 2;
  FILE *file = fopen(argv[3], "rb");
  if (!file || fscanf(file, "P6 %5d %5d 255", &width, &height) != 2 || fgetc(file) == EOF) return 2;
  size_t size = (size_t)width * height * 3;
  unsigned char *pixels = malloc(size);
  if (!pixels || fread(pixels, 1, size, file) != size) return 2;
  fclose(file);

  edgekit_bundle *bundle = edgekit_open(argv[1]);
  if (!bundle) return fail("open");
  const edgekit_engine *ort = edgekit_adapter("ort", argv[2]);
  if (!ort) return fail("engine");
  edgekit_session *session = edgekit_start(bundle, &ort, 1, NULL);
  if (!session) return fail("start");

  edgekit_input picture = {.kind = EDGEKIT_PICTURE, .values = pixels, .width = width, .height = height};
  edgekit_prediction *found = edgekit_predict(session, &picture);
  if (!found) return fail("predict");
  edgekit_fallback passed;
  for (int i = 0; edgekit_fallback_at(session, i, &passed) == 0; i++) {
    fprintf(stderr, "%s -> %s: %s\n", passed.from, passed.to, passed.reason);
  }
  for (size_t i = 0; i < found->count; i++) {
    const edgekit_item *item = &found->items[i];
    printf("%s %.3f %.0f %.0f %.0f %.0f\n", item->label, item->score, item->box[0], item->box[1], item->box[2], item->box[3]);
  }
  edgekit_free_prediction(found);
  edgekit_stop(session);
  edgekit_close(bundle);
  free(pixels);
  return 0;
}
