#include <brim/brim.hpp>

#include <cmath>
#include <cstdio>

// One head of two elements turned by one radian.
int main() {
  const float q[2] = {1, 1}, cos[1] = {std::cos(1.0f)}, sin[1] = {std::sin(1.0f)};
  float y[2] = {};
  brim::RopeArgs args;
  args.q = brim::view(q, BRIM_FLOAT32, {1, 1, 1, 2});
  args.q_out = brim::view(y, BRIM_FLOAT32, {1, 1, 1, 2});
  args.cos = brim::view(cos, BRIM_FLOAT32, {1, 1});
  args.sin = brim::view(sin, BRIM_FLOAT32, {1, 1});
  args.rotary_dim = 2;
  args.run.backend = BRIM_BACKEND_REFERENCE;
  if (const brim::Status status = brim::rope_forward(args); !brim::ok(status)) {
    std::puts(status.message);
    return 1;
  }
  std::printf("brim from C++: %f %f\n", static_cast<double>(y[0]), static_cast<double>(y[1]));
  return std::fabs(y[0] - -0.301169f) < 1e-6f && std::fabs(y[1] - 1.381773f) < 1e-6f ? 0 : 1;
}
