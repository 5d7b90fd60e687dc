#include <brim/brim.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  if (strcmp(brim_version(), BRIM_VERSION) != 0) return 1;
  printf("brim %s from C\n", brim_version());
  return 0;
}
