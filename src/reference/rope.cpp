#include "ops/rope.h"

#include <cmath>

#include "core/dispatch.h"
#include "reference/backend.h"

namespace brim::reference {
namespace {

using ops::PairOrder;
using ops::RopeProblem;
using ops::RopeStrides;

// One of q and k: the loops of the formula, one element at a time.
struct Heads {
  const void* in;
  void* out;
  RopeStrides from, to;
  int64_t heads;
};

int64_t element(PairOrder order, int64_t j, int64_t r, int second) {
  return order == PairOrder::half ? j + second * (r / 2) : 2 * j + second;
}

template <class T, class Table>
void rotate(const brim_rope_args& a, const RopeProblem& p, const Heads& x) {
  const T* in = static_cast<const T*>(x.in);
  T* out = static_cast<T*>(x.out);
  const Table *cos = static_cast<const Table*>(a.cos.data), *sin = static_cast<const Table*>(a.sin.data);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t s = 0; s < p.seq; ++s) {
      const int64_t row = p.position_dtype == BRIM_DTYPE_NONE
                              ? s
                              : ops::rope_position(a.positions.data, p.position_dtype,
                                                   b * p.position_batch_stride + s * p.position_seq_stride);
      for (int64_t h = 0; h < x.heads; ++h) {
        const T* from = in + b * x.from.batch + s * x.from.seq + h * x.from.head;
        T* to = out + b * x.to.batch + s * x.to.seq + h * x.to.head;
        for (int64_t j = 0; j < p.rotary_dim / 2; ++j) {
          const int64_t axis =
              p.has_sections ? ops::rope_section_axis(p.sections, p.sections_interleaved, j) : 0;
          const double c =
              core::widen(cos[axis * p.cos.axis + b * p.cos.batch + row * p.cos.row + j * p.cos.column]);
          double sn =
              core::widen(sin[axis * p.sin.axis + b * p.sin.batch + row * p.sin.row + j * p.sin.column]);
          if (p.negate_sin) sn = -sn;
          const double x1 = core::widen(from[element(p.in_order, j, p.rotary_dim, 0) * x.from.dim]);
          const double x2 = core::widen(from[element(p.in_order, j, p.rotary_dim, 1) * x.from.dim]);
          to[element(p.out_order, j, p.rotary_dim, 0) * x.to.dim] =
              core::narrow<T>(std::fma(-x2, sn, x1 * c));
          to[element(p.out_order, j, p.rotary_dim, 1) * x.to.dim] = core::narrow<T>(std::fma(x1, sn, x2 * c));
        }
        for (int64_t i = p.rotary_dim; i < p.head_dim; ++i) to[i * x.to.dim] = from[i * x.from.dim];
      }
    }
}

Status run(const brim_rope_args& a) {
  const RopeProblem p = ops::make_rope_problem(a);
  if (a.run.path && std::strcmp(a.run.path, "reference") != 0)
    return core::failure(BRIM_NOT_AVAILABLE, "rope: the reference backend has no path '%s'", a.run.path);
  BRIM_TRY(ops::check_rope_positions(a, p));
  const auto part = [&](brim_dtype dtype, const Heads& x) {
    core::dispatch_float(dtype, [&](auto type) {
      core::dispatch_float(p.table_dtype, [&](auto table) {
        rotate<typename decltype(type)::type, typename decltype(table)::type>(a, p, x);
      });
    });
  };
  part(p.dtype, {a.q.data, a.q_out.data, p.q, p.q_out, p.q_heads});
  if (p.k_heads) part(p.k_dtype, {a.k.data, a.k_out.data, p.k, p.k_out, p.k_heads});
  return core::success();
}

Status run_transposed(const brim_rope_args& a) { return run(ops::transposed(a)); }

Status describe(const brim_rope_args&, const core::DeviceProps*, char* text, size_t size) {
  std::snprintf(text, size, "reference");
  return core::success();
}

}  // namespace

constinit const core::Slot rope_forward = core::slot<brim_rope_args, run, describe>();
constinit const core::Slot rope_backward = core::slot<brim_rope_args, run_transposed, describe>();

}  // namespace brim::reference
