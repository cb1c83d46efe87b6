// Reads doubles from the standard input and writes the text of each on a line.
#include <cstdio>

#include "text.h"

int main() {
  for (double value; std::fread(&value, sizeof value, 1, stdin) == 1;) {
    std::puts(edgekit::float_text(value).c_str());
  }
}
