/* Rotates one head out of place, then asks which form ran and shows what a wrong call answers. */
#include <brim/brim.h>
#include <stdio.h>

static brim_tensor floats(const float* data, int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  brim_tensor t = {.data = (void*)data, .dtype = BRIM_FLOAT32, .rank = rank, .shape = {a, b, c, d}};
  for (int64_t i = rank, stride = 1; i-- > 0; stride *= t.shape[i]) t.strides[i] = stride;
  return t;
}

int main(void) {
  const float q[4] = {1, 2, 3, 4};                   /* one token, one head, head dim 4 */
  const float cos[2] = {0.540302306f, 0.999950000f}; /* position 1: cos(1), cos(0.01) */
  const float sin[2] = {0.841470985f, 0.00999983333f};
  float y[4];

  brim_rope_args args = {.struct_size = sizeof args, .rotary_dim = 4};
  args.q = floats(q, 4, 1, 1, 1, 4);
  args.q_out = floats(y, 4, 1, 1, 1, 4);
  args.cos = floats(cos, 2, 1, 2, 0, 0);
  args.sin = floats(sin, 2, 1, 2, 0, 0);

  brim_status status = brim_rope_forward(&args);
  if (status.code != BRIM_OK) return puts(status.message), 1;
  printf("(%f, %f, %f, %f)\n", y[0], y[1], y[2], y[3]);

  char plan[128];
  status = brim_describe_plan(BRIM_OP_rope_forward, &args, plan, sizeof plan);
  if (status.code != BRIM_OK) return puts(status.message), 1;
  printf("ran as: %s\n", plan);

  args.rotary_dim = 6;
  status = brim_rope_forward(&args);
  puts(status.message); /* rope_forward: rotary_dim is 6, more than head_dim, 4 */
  return status.code == BRIM_INVALID_ARGUMENT ? 0 : 1;
}
