// What the validation tests share: a valid call to spoil, a row for each refusal, what every refusal must satisfy.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <ostream>
#include <string>

#include "brim/brim.hpp"

namespace brim {

constexpr int64_t kB = 2, kH = 3, kHk = 1, kS = 5, kD = 8;

// A valid call that the rows below spoil in one place: bhsd, q and k out of place, tables of the full width.
struct Call {
  alignas(64) float q[kB * kH * kS * kD] = {}, k[kB * kHk * kS * kD] = {};
  alignas(64) float q_out[kB * kH * kS * kD] = {}, k_out[kB * kHk * kS * kD] = {};
  alignas(64) float cos[64 * kD] = {}, sin[64 * kD] = {};
  alignas(64) int64_t positions[64] = {};
  RopeArgs args;

  Call() {
    args.q = view(q, BRIM_FLOAT32, {kB, kH, kS, kD});
    args.k = view(k, BRIM_FLOAT32, {kB, kHk, kS, kD});
    args.q_out = view(q_out, BRIM_FLOAT32, {kB, kH, kS, kD});
    args.k_out = view(k_out, BRIM_FLOAT32, {kB, kHk, kS, kD});
    tables({kS, kD});
    args.run.backend = BRIM_BACKEND_REFERENCE;
  }
  void tables(std::initializer_list<int64_t> shape) {
    args.cos = view(cos, BRIM_FLOAT32, shape);
    args.sin = view(sin, BRIM_FLOAT32, shape);
  }
  void position_ids(std::initializer_list<int64_t> shape, brim_dtype dtype = BRIM_INT64) {
    args.positions = view(positions, dtype, shape);
  }
  void no_k() { args.k = args.k_out = {}; }
  void pairing(brim_rope_pairing pairing) {
    args.pairing = pairing;
    args.rotary_dim = kD;
    tables({kS, kD / 2});
  }
  void sections(int a, int b, int c) {
    args.sections[0] = a, args.sections[1] = b, args.sections[2] = c;
    args.rotary_dim = kD;
    tables({3, kB, kS, kD / 2});
  }
  void thd() {
    args.layout = BRIM_LAYOUT_THD;
    args.q = view(q, BRIM_FLOAT32, {kS, kH, kD});
    args.q_out = view(q_out, BRIM_FLOAT32, {kS, kH, kD});
    args.k = view(k, BRIM_FLOAT32, {kS, kHk, kD});
    args.k_out = view(k_out, BRIM_FLOAT32, {kS, kHk, kD});
  }
  void on(brim_device_type device, int index) {
    for (brim_tensor* t : {&args.q, &args.k, &args.q_out, &args.k_out, &args.cos, &args.sin}) {
      t->device = device;
      t->device_index = index;
    }
  }
  void retype(brim_dtype dtype) {
    for (brim_tensor* t : {&args.q, &args.k, &args.q_out, &args.k_out, &args.cos, &args.sin})
      t->dtype = dtype;
  }
};

struct Refusal {
  const char* name;
  void (*spoil)(Call&);
  brim_code code;
  const char* message;  // without the leading "rope_forward: "
};
inline void PrintTo(const Refusal& r, std::ostream* out) { *out << r.name; }

inline constexpr brim_code kArgument = BRIM_INVALID_ARGUMENT, kDtype = BRIM_INVALID_DTYPE,
                           kDevice = BRIM_DEVICE_ERROR;

// Forward and backward refuse alike, describing and asking for workspace too, and nothing is written.
inline void expect_refusal(const Refusal& r) {
  Call call;
  std::memset(call.q_out, 0x5a, sizeof call.q_out);
  r.spoil(call);
  const Status forward = rope_forward(call.args);
  EXPECT_EQ(forward.code, r.code);
  EXPECT_EQ(forward.message, std::string("rope_forward: ") + r.message);
  const Status backward = rope_backward(call.args);
  EXPECT_EQ(backward.code, r.code);
  EXPECT_EQ(backward.message, std::string("rope_backward: ") + r.message);
  char text[64] = "x";
  const Status plan = brim_describe_plan(BRIM_OP_rope_forward, &call.args, text, sizeof text);
  EXPECT_EQ(plan.code, r.code);
  EXPECT_STREQ(plan.message, forward.message);
  EXPECT_STREQ(text, "");
  size_t bytes = 1;
  EXPECT_EQ(brim_workspace_size(BRIM_OP_rope_backward, &call.args, &bytes).code, r.code);
  EXPECT_EQ(bytes, 0u);
  for (float x : call.q_out) EXPECT_EQ(std::memcmp(&x, "\x5a\x5a\x5a\x5a", 4), 0);
}

}  // namespace brim
