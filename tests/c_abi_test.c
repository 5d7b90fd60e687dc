/* The C interface from C11, on the shared library: the structs, the entries, the plan, the statuses. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/brim.h"

/* Also with NDEBUG. */
#define EXPECT(condition)                                                     \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

_Static_assert(sizeof(brim_status) == 512, "a status is returned by value: its size is part of the ABI");
_Static_assert(offsetof(brim_rope_args, struct_size) == 0, "struct_size comes first");
_Static_assert(offsetof(brim_rope_tables_args, struct_size) == 0, "struct_size comes first");
_Static_assert(sizeof(brim_tensor) == 8 + 16 + 2 * 8 * BRIM_MAX_RANK, "no hidden padding");

static brim_tensor contiguous(const void* data, int32_t rank, const int64_t* shape) {
  brim_tensor t;
  memset(&t, 0, sizeof t);
  t.data = (void*)(uintptr_t)data;
  t.dtype = BRIM_FLOAT32;
  t.rank = rank;
  int64_t stride = 1;
  for (int32_t i = rank; i-- > 0;) {
    t.shape[i] = shape[i];
    t.strides[i] = stride;
    stride *= shape[i];
  }
  return t;
}

static void work_in_one_piece(int64_t count, int64_t grain, brim_parallel_body body, void* context) {
  (void)grain;
  body(context, 0, count);
}

int main(void) {
  /* x = [1,2,3,4], position 1, theta 1e4 (FIELD-CASES 68). */
  const float q[4] = {1, 2, 3, 4};
  const float cosines[2] = {cosf(1.0f), cosf(0.01f)}, sines[2] = {sinf(1.0f), sinf(0.01f)};
  const float half[4] = {-1.984111f, 1.959901f, 2.462378f, 4.019800f};
  const float interleaved[4] = {-1.142640f, 1.922076f, 2.959851f, 4.029800f};
  float y[4] = {0}, back[4] = {0};
  const int64_t heads[4] = {1, 1, 1, 4}, table[2] = {1, 2};

  brim_rope_args args;
  memset(&args, 0, sizeof args);
  args.struct_size = sizeof args;
  args.q = contiguous(q, 4, heads);
  args.q_out = contiguous(y, 4, heads);
  args.cos = contiguous(cosines, 2, table);
  args.sin = contiguous(sines, 2, table);
  args.rotary_dim = 4;
  args.run.backend = BRIM_BACKEND_REFERENCE;

  brim_status status = brim_rope_forward(&args);
  EXPECT(status.code == BRIM_OK && status.message[0] == '\0');
  for (int i = 0; i < 4; ++i) EXPECT(fabsf(y[i] - half[i]) < 2e-6f);

  args.q = contiguous(y, 4, heads);
  args.q_out = contiguous(back, 4, heads);
  EXPECT(brim_rope_backward(&args).code == BRIM_OK);
  for (int i = 0; i < 4; ++i) EXPECT(fabsf(back[i] - q[i]) < 1e-6f);

  args.q = contiguous(q, 4, heads);
  args.q_out = contiguous(y, 4, heads);
  args.pairing = BRIM_PAIRING_INTERLEAVED;
  EXPECT(brim_rope_forward(&args).code == BRIM_OK);
  for (int i = 0; i < 4; ++i) EXPECT(fabsf(y[i] - interleaved[i]) < 2e-6f);

  char plan[64];
  EXPECT(brim_describe_plan(BRIM_OP_rope_forward, &args, plan, sizeof plan).code == BRIM_OK);
  EXPECT(strcmp(plan, "reference") == 0);
  EXPECT(brim_describe_plan(BRIM_OP_rope_forward, &args, plan, 4).code == BRIM_OK);
  EXPECT(strcmp(plan, "ref") == 0);

  size_t bytes = 99;
  EXPECT(brim_workspace_size(BRIM_OP_rope_backward, &args, &bytes).code == BRIM_OK && bytes == 0);

  args.pairing = 9;
  status = brim_rope_forward(&args);
  EXPECT(status.code == BRIM_INVALID_ARGUMENT);
  EXPECT(strcmp(status.message, "rope_forward: pairing is 9, expected 0 to 2") == 0);

  EXPECT(brim_backend_status(BRIM_BACKEND_CPU).code == BRIM_OK);
  EXPECT(brim_backend_status(99).code == BRIM_INVALID_ARGUMENT);
  EXPECT(strcmp(brim_version(), BRIM_VERSION) == 0);

  brim_set_parallel_for(work_in_one_piece);
  args.pairing = BRIM_PAIRING_HALF;
  EXPECT(brim_rope_forward(&args).code == BRIM_OK);
  for (int i = 0; i < 4; ++i) EXPECT(fabsf(y[i] - half[i]) < 2e-6f);
  brim_set_parallel_for(NULL);
  puts("the C interface works from C");
  return 0;
}
