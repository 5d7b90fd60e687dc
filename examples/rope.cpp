// Rotates the queries and keys of one attention layer in place, as Llama 3 does, and back again.
#include <brim/brim.hpp>
#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const int64_t tokens = 6, heads = 4, kv_heads = 2, head_dim = 64;
  std::vector<float> q(heads * tokens * head_dim, 1.0f), k(kv_heads * tokens * head_dim, 1.0f);
  std::vector<float> cos(tokens * head_dim), sin(tokens * head_dim);

  brim::RopeTablesArgs tables;
  tables.cos = brim::view(cos.data(), BRIM_FLOAT32, {tokens, head_dim});
  tables.sin = brim::view(sin.data(), BRIM_FLOAT32, {tokens, head_dim});
  tables.rotary_dim = head_dim;
  tables.base = 500000;
  if (brim::Status s = brim::rope_tables(tables); !brim::ok(s)) return std::puts(s.message), 1;

  // What is not set is zero: layout (b,h,s,d), pairs from a head's two halves, backend by the tensors' device.
  brim::RopeArgs args;
  args.q = args.q_out = brim::view(q.data(), BRIM_FLOAT32, {1, heads, tokens, head_dim});
  args.k = args.k_out = brim::view(k.data(), BRIM_FLOAT32, {1, kv_heads, tokens, head_dim});
  args.cos = tables.cos;
  args.sin = tables.sin;
  if (brim::Status s = brim::rope_forward(args); !brim::ok(s)) return std::puts(s.message), 1;
  std::printf("token 1, head 0: (%.6f, %.6f, ...)\n", q[head_dim], q[head_dim + 1]);

  if (brim::Status s = brim::rope_backward(args); !brim::ok(s)) return std::puts(s.message), 1;
  float error = 0;
  for (float x : q) error = std::fmax(error, std::fabs(x - 1));
  std::printf("rotated back: off by at most %.1e\n", error);
  return error < 1e-6f ? 0 : 1;
}
