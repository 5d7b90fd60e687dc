// Calls of RoPE on the CPU made of any layout, types and options, with what each element must come out as.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "brim/brim.hpp"
#include "cpu/isa.h"
#include "cpu/rope.h"
#include "cpu_tensor.h"

namespace brim::test {

inline std::vector<const char*> present_isas() {
  std::vector<const char*> names;
  for (int i = 0; i < cpu::kIsaCount; ++i)
    if (cpu::isa_present(static_cast<cpu::Isa>(i))) names.push_back(cpu::kIsaNames[i]);
  return names;
}
inline std::string isa_test_name(std::string isa) {
  for (char& c : isa)
    if (c == '-') c = '_';
  return isa;
}
// Without a fused multiply-add the product is rounded before the sum.
inline bool has_fma(const char* isa) { return std::strcmp(isa, "x86-64-v2") != 0; }

// Bits of `x` in `dtype`, every NaN as one.
inline uint64_t canonical(brim_dtype dtype, uint64_t bits) {
  return core::dispatch_float(dtype, [&](auto tag) -> uint64_t {
    typename decltype(tag)::type v;
    std::memcpy(&v, &bits, sizeof v);
    return std::isnan(core::widen(v)) ? ~0ull : bits;
  });
}

// The formula of brim/ops/rope.h in arithmetic type C for one pair, rounded once.
template <class T, class C>
void rotate_pair(C x1, C x2, C c, C s, bool fused, T* y1, T* y2) {
  const C a = fused ? std::fma(-x2, s, x1 * c) : x1 * c - x2 * s;
  const C b = fused ? std::fma(x1, s, x2 * c) : x2 * c + x1 * s;
  if constexpr (sizeof(T) == 2) {
    *y1 = core::narrow<T>(a);
    *y2 = core::narrow<T>(b);
  } else {
    *y1 = a;
    *y2 = b;
  }
}

// The element of pair j that comes first or second in a head.
inline int64_t pair_element(ops::PairOrder order, int64_t j, int64_t r, int second) {
  return order == ops::PairOrder::half ? j + second * (r / 2) : 2 * j + second;
}

// What the elements of an output must hold, by the formula in the arithmetic of the CPU backend.
struct Expected {
  const brim_rope_args& args;  // of the forward form
  bool fused;

  // wrong(batch, seq, head, element, found bits, expected bits) for each mismatch of `out` (q's or k's).
  template <class Wrong>
  void compare(const TensorView& in, const TensorView& out, const ops::RopeStrides& from,
               const ops::RopeStrides& to, int64_t heads, Wrong&& wrong) const {
    const ops::RopeProblem p = ops::make_rope_problem(args);
    core::dispatch_float(in.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C = std::conditional_t<sizeof(T) == 8, double, float>;
      const T* x = static_cast<const T*>(in.data);
      const T* y = static_cast<const T*>(out.data);
      std::vector<T> head(p.head_dim);
      for (int64_t b = 0; b < p.batch; ++b)
        for (int64_t s = 0; s < p.seq; ++s)
          for (int64_t h = 0; h < heads; ++h) {
            const T* from_head = x + b * from.batch + s * from.seq + h * from.head;
            const T* to_head = y + b * to.batch + s * to.seq + h * to.head;
            for (int64_t i = p.rotary_dim; i < p.head_dim; ++i) head[i] = from_head[i * from.dim];
            for (int64_t j = 0; j < p.rotary_dim / 2; ++j) {
              const C c = static_cast<C>(angle(p, args.cos, p.cos, b, s, j));
              const C sine = static_cast<C>(angle(p, args.sin, p.sin, b, s, j));
              const C x1 = core::widen(from_head[pair_element(p.in_order, j, p.rotary_dim, 0) * from.dim]);
              const C x2 = core::widen(from_head[pair_element(p.in_order, j, p.rotary_dim, 1) * from.dim]);
              rotate_pair<T, C>(x1, x2, c, p.negate_sin ? -sine : sine, fused,
                                &head[pair_element(p.out_order, j, p.rotary_dim, 0)],
                                &head[pair_element(p.out_order, j, p.rotary_dim, 1)]);
            }
            for (int64_t i = 0; i < p.head_dim; ++i) {
              uint64_t found = 0, expected = 0;
              std::memcpy(&found, to_head + i * to.dim, sizeof(T));
              std::memcpy(&expected, &head[i], sizeof(T));
              const bool rotated = i < p.rotary_dim;
              if (rotated ? canonical(in.dtype, found) != canonical(in.dtype, expected) : found != expected)
                wrong(b, s, h, i, found, expected);
            }
          }
    });
  }

 private:
  double angle(const ops::RopeProblem& p, const TensorView& table, const ops::RopeTableStrides& stride,
               int64_t b, int64_t s, int64_t j) const {
    const int64_t row = core::present(args.positions)
                            ? ops::rope_position(args.positions.data, args.positions.dtype,
                                                 b * p.position_batch_stride + s * p.position_seq_stride)
                            : s;
    const int axis = p.has_sections ? ops::rope_section_axis(p.sections, p.sections_interleaved, j) : 0;
    return core::dispatch_float(table.dtype, [&](auto tag) -> double {
      using T = typename decltype(tag)::type;
      return core::widen(static_cast<const T*>(
          table.data)[axis * stride.axis + b * stride.batch + row * stride.row + j * stride.column]);
    });
  }
};

// How q or k lie in memory, whatever the layout of their shape.
enum class Storage {
  head_major,
  token_major,
  packed,
  gaps,
  inner_stride,
  elements_outermost,
  expanded_heads,
  expanded_all
};
inline constexpr int kStorages = 8;
inline bool is_expanded(Storage s) { return s == Storage::expanded_heads || s == Storage::expanded_all; }

struct RopeSpec {
  brim_dtype q = BRIM_FLOAT32, k = BRIM_FLOAT32, table = BRIM_FLOAT32;
  int64_t b = 1, s = 1, h = 1, hk = 0, d = 2, r = 2;  // hk = 0: no k
  brim_rope_layout layout = BRIM_LAYOUT_BHSD;
  brim_rope_pairing pairing = BRIM_PAIRING_HALF;
  bool inverse = false, in_place = false, backward = false;
  Storage in = Storage::head_major, out = Storage::head_major;
  int64_t shift = 0;  // of every tensor's first element from an aligned address
  brim_dtype positions = BRIM_DTYPE_NONE;
  int table_form = 0;        // 0: (s,w), 1: (1,s,w), 2: (b,s,w)
  bool wide_table = false;   // w = r, half pairing only
  bool dense_table = false;  // rows one after the other
  int64_t column_stride = 1;
  int64_t sin_gap = 0;  // elements after a row, and after a batch, of sin alone
  int sections = 0;     // 0: none, 1: blocks, 2: interleaved
};

// A call's tensors, each with memory of its own; Storage::packed leaves room for more heads in each token's
// row.
class RopeCase {
 public:
  RopeCase(const RopeSpec& spec, std::mt19937_64& random) : spec_(spec) {
    q_ = make(spec.q, spec.h, spec.in, random);
    if (spec.hk) k_ = make(spec.k, spec.hk, spec.in, random);
    const bool mrope = spec.sections != 0;
    int64_t rows = spec.s;
    if (spec.positions) rows = spec.s + 5;
    const int64_t width = spec.wide_table ? spec.r : spec.r / 2;
    std::vector<int64_t> shape{rows, width};
    if (spec.positions == BRIM_DTYPE_NONE && (spec.table_form || mrope))
      shape.insert(shape.begin(), spec.table_form == 2 ? spec.b : 1);
    if (mrope) shape.insert(shape.begin(), 3);
    const auto strides = [&](int64_t gap) {
      std::vector<int64_t> s(shape.size(), spec.column_stride);
      for (size_t i = shape.size() - 1; i-- > 0;)
        s[i] = s[i + 1] * std::max<int64_t>(shape[i + 1], 1) + !spec.dense_table + gap;
      return s;
    };
    cos_ = Tensor(spec.table, shape, strides(0), spec.shift, 0);
    sin_ = Tensor(spec.table, shape, strides(spec.sin_gap), spec.shift, 0);
    cos_.fill(random, 1);
    sin_.fill(random, 1);
    if (spec.positions) {
      const bool per_batch = spec.layout != BRIM_LAYOUT_THD && spec.b > 1;
      positions_ = per_batch ? Tensor(spec.positions, {spec.b, spec.s}, {spec.s * 2, 2})
                             : Tensor(spec.positions, {spec.s}, {1});
      positions_.each([&](int64_t offset) {
        const int64_t row = static_cast<int64_t>(random() % rows);
        const int32_t narrow = static_cast<int32_t>(row);
        std::memcpy(positions_.at(offset),
                    spec.positions == BRIM_INT32 ? static_cast<const void*>(&narrow) : &row,
                    positions_.size());
      });
    }
  }

  Tensor& q() { return q_; }
  Tensor& k() { return k_; }
  Tensor& cos() { return cos_; }
  Tensor& sin() { return sin_; }

  // Runs on `isa` and compares every element, canary and untouched input with what they must be. With `cut`,
  // as on a machine with 3 threads and without caches: in several units, past the caches where it can.
  void check(const char* isa, bool cut = false) {
    check_by(isa, [&](RopeArgs& args) {
      args.run.path = isa;
      if (cut) return run_cut(args, isa);
      if (const Status status = spec_.backward ? rope_backward(args) : rope_forward(args); !ok(status))
        FAIL() << status.message << describe();
    });
  }
  // The same by whatever `call` does.
  void check_by(const char* name, const std::function<void(RopeArgs&)>& call) {
    const size_t tail = spec_.in_place ? Tensor::kGuard : 0;
    Tensor q_in = q_.clone(tail), k_in = k_.clone(tail), q_out, k_out;
    if (!spec_.in_place) {
      std::mt19937_64 noise(1);
      q_out = make(spec_.q, spec_.h, spec_.out, noise);
      if (spec_.hk) k_out = make(spec_.k, spec_.hk, spec_.out, noise);
    }
    const Tensor &q_result = spec_.in_place ? q_in : q_out, &k_result = spec_.in_place ? k_in : k_out;
    RopeArgs args = arguments(q_in, k_in, q_result, k_result);
    call(args);
    if (testing::Test::HasFatalFailure()) return;

    if (spec_.backward) args.inverse = !args.inverse;
    const ops::RopeProblem p = ops::make_rope_problem(args);
    compare(name, args, "q", q_, q_result, p.q, p.q_out, spec_.h);
    if (spec_.hk) compare(name, args, "k", k_, k_result, p.k, p.k_out, spec_.hk);
    if (spec_.in_place) return;
    EXPECT_TRUE(same_bits(q_in, q_) && same_bits(k_in, k_)) << name << ": an input was written" << describe();
  }
  cpu::Writing writing() const { return writing_; }  // the last check with `cut`

  RopeArgs arguments(const Tensor& q, const Tensor& k, const Tensor& q_out, const Tensor& k_out) const {
    RopeArgs args;
    args.q = q.view();
    args.q_out = q_out.view();
    if (spec_.hk) {
      args.k = k.view();
      args.k_out = k_out.view();
    }
    args.cos = cos_.view();
    args.sin = sin_.view();
    args.positions = positions_.view();
    args.rotary_dim = spec_.r;
    args.layout = spec_.layout;
    args.pairing = spec_.pairing;
    args.inverse = spec_.inverse;
    if (spec_.sections) {
      args.sections[0] = static_cast<int32_t>(spec_.r / 2 - 2 * (spec_.r / 6));
      args.sections[1] = args.sections[2] = static_cast<int32_t>(spec_.r / 6);
      args.sections_interleaved = spec_.sections == 2;
    }
    return args;
  }

  std::string describe() const {
    const RopeSpec& c = spec_;
    char text[256];
    std::snprintf(
        text, sizeof text,
        "\n  q %s k %s table %s, b %d s %d h %d hk %d d %d r %d, layout %d pairing %d inverse %d in_place %d "
        "backward %d, storage %d -> %d, shift %d, positions %s, table form %d wide %d stride %d, sections %d",
        core::dtype_name(c.q), core::dtype_name(c.k), core::dtype_name(c.table), int(c.b), int(c.s), int(c.h),
        int(c.hk), int(c.d), int(c.r), c.layout, c.pairing, c.inverse, c.in_place, c.backward, int(c.in),
        int(c.out), int(c.shift), core::dtype_name(c.positions), c.table_form, c.wide_table,
        int(c.column_stride), c.sections);
    return text;
  }

 private:
  void run_cut(const RopeArgs& args, const char* isa) {
    brim_rope_args forward = args;
    if (spec_.backward) forward = ops::transposed(args);
    const Status status = ops::validate_rope_forward(forward, BRIM_BACKEND_CPU);
    ASSERT_TRUE(ok(status)) << status.message << describe();
    const cpu::RopePlan plan = cpu::make_rope_plan(forward, ops::make_rope_problem(forward), 3, 0);
    cpu::Isa id;
    ASSERT_TRUE(ok(cpu::choose_isa("rope", isa, &id)));
    for (int64_t unit = plan.units; unit-- > 0;) cpu::rope_body(id)(plan.call, unit, unit + 1);
    writing_ = plan.call.parts[0].writing;
  }

  void compare(const char* isa, const brim_rope_args& args, const char* name, const Tensor& original,
               const Tensor& result, const ops::RopeStrides& from, const ops::RopeStrides& to,
               int64_t heads) const {
    int errors = 0;
    Expected{args, has_fma(isa)}.compare(
        original.view(), result.view(), from, to, heads,
        [&](int64_t b, int64_t s, int64_t h, int64_t i, uint64_t found, uint64_t expected) {
          if (++errors < 4)
            ADD_FAILURE() << isa << ": " << name << "[b " << b << ", s " << s << ", h " << h << ", element "
                          << i << "] is " << std::hex << found << ", expected " << expected << std::dec
                          << describe();
        });
    EXPECT_EQ(errors, 0) << isa << ": wrong elements of " << name << describe();
    EXPECT_TRUE(result.canaries_intact()) << isa << ": written outside " << name << "_out" << describe();
  }

  static bool same_bits(const Tensor& a, const Tensor& b) {
    bool same = true;
    a.each([&](int64_t offset) { same = same && a.bits(offset) == b.bits(offset); });
    return same;
  }

  Tensor make(brim_dtype dtype, int64_t heads, Storage storage, std::mt19937_64& random) const {
    const int64_t s = spec_.s, d = spec_.d, h = heads;
    int64_t batch, seq, head, dim = 1;
    switch (storage) {
      case Storage::head_major: seq = d, head = s * d, batch = h * s * d; break;
      case Storage::token_major: head = d, seq = h * d, batch = s * h * d; break;
      case Storage::packed: head = d, seq = (h + 3) * d, batch = s * seq + 7; break;
      case Storage::gaps: seq = d + 3, head = s * seq + 5, batch = h * head + 1; break;
      case Storage::inner_stride: dim = 2, head = 2 * d + 1, seq = h * head, batch = s * seq; break;
      case Storage::elements_outermost: head = 1, seq = h, dim = s * h, batch = s * h * d; break;
      case Storage::expanded_heads: head = 0, seq = d, batch = s * d; break;
      default: dim = head = seq = batch = 0; break;
    }
    std::vector<int64_t> shape, strides;
    const auto axis = [&](int64_t n, int64_t stride) {
      shape.push_back(n);
      strides.push_back(stride);
    };
    if (spec_.layout != BRIM_LAYOUT_THD) axis(spec_.b, batch);
    if (spec_.layout == BRIM_LAYOUT_BHSD) axis(heads, head);
    axis(s, seq);
    if (spec_.layout != BRIM_LAYOUT_BHSD) axis(heads, head);
    axis(d, dim);
    Tensor t(dtype, shape, strides, spec_.shift);
    t.fill(random);
    return t;
  }

  RopeSpec spec_;
  Tensor q_, k_, cos_, sin_, positions_;
  cpu::Writing writing_ = cpu::Writing::plain;
};

}  // namespace brim::test
