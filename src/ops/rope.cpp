#include "ops/rope.h"

#include "core/check.h"

namespace brim::ops {
namespace {

using core::failure;
using core::present;
using core::success;
using ll = long long;

// Axis numbers of q and k under a layout; -1 where it has none.
struct Axes {
  int batch, seq, head, dim;
};
constexpr Axes axes_of(brim_rope_layout layout) {
  switch (layout) {
    case BRIM_LAYOUT_BSHD: return {0, 1, 2, 3};
    case BRIM_LAYOUT_THD: return {-1, 0, 1, 2};
    default: return {0, 2, 1, 3};
  }
}
constexpr const char* layout_name(brim_rope_layout layout) {
  return layout == BRIM_LAYOUT_BSHD ? "bshd" : layout == BRIM_LAYOUT_THD ? "thd" : "bhsd";
}
int64_t size_at(const TensorView& t, int axis) { return axis < 0 ? 1 : t.shape[axis]; }
int64_t stride_at(const TensorView& t, int axis) { return axis < 0 ? 0 : core::used_stride(t, axis); }

bool has_sections(const brim_rope_args& a) { return a.sections[0] || a.sections[1] || a.sections[2]; }

int64_t table_width(const brim_rope_args& a) { return a.cos.shape[a.cos.rank - 1]; }

int64_t resolved_rotary_dim(const brim_rope_args& a) {
  if (a.rotary_dim) return a.rotary_dim;
  return a.pairing == BRIM_PAIRING_HALF ? table_width(a) : 2 * table_width(a);
}

Status full_width_interleaved(const char* op, int64_t w) {
  return failure(
      BRIM_INVALID_ARGUMENT,
      "%s: cos has %lld columns, interleaved pairing expects rotary_dim/2 = %lld; two orders are in use: "
      "pass "
      "cos[..., :%lld] (and sin) where the halves repeat (GLM, DeepSeek), cos[..., ::2] where each column "
      "stands twice (Cohere)",
      op, ll(w), ll(w / 2), ll(w / 2));
}

Status check_rotary_dim(const char* op, const brim_rope_args& a, int64_t d) {
  const int64_t w = table_width(a), r = resolved_rotary_dim(a);
  if (a.rotary_dim == 0 && a.pairing == BRIM_PAIRING_HALF && w != d)
    return failure(BRIM_INVALID_ARGUMENT,
                   "%s: cos has %lld columns and head_dim is %lld: rotary_dim could be %lld or %lld, give it",
                   op, ll(w), ll(d), ll(w), ll(2 * w));
  if (r < 0 || r % 2)
    return failure(BRIM_INVALID_ARGUMENT,
                   "%s: rotary_dim is %lld, expected an even number from 0 to head_dim", op, ll(r));
  if (a.rotary_dim == 0 && r > d && w <= d && w % 2 == 0)  // interleaved: half would have r = d here
    return full_width_interleaved(op, w);
  if (r > d)
    return failure(BRIM_INVALID_ARGUMENT, "%s: rotary_dim is %lld, more than head_dim, %lld", op, ll(r),
                   ll(d));
  if (a.pairing == BRIM_PAIRING_HALF) {
    if (w != r && w != r / 2)
      return failure(BRIM_INVALID_ARGUMENT,
                     "%s: cos has %lld columns, expected rotary_dim/2 or rotary_dim (%lld or %lld)", op,
                     ll(w), ll(r / 2), ll(r));
  } else if (w == r && r > 0) {
    return full_width_interleaved(op, w);
  } else if (w != r / 2) {
    return failure(BRIM_INVALID_ARGUMENT, "%s: cos has %lld columns, expected rotary_dim/2 = %lld", op, ll(w),
                   ll(r / 2));
  }
  return success();
}

Status check_tables(const char* op, const brim_rope_args& a, int64_t b, int64_t s) {
  const TensorView& t = a.cos;
  if (has_sections(a)) {
    int64_t sum = 0;
    for (int32_t n : a.sections) {
      if (n < 0) return failure(BRIM_INVALID_ARGUMENT, "%s: sections has the negative entry %d", op, n);
      sum += n;
    }
    if (2 * sum != resolved_rotary_dim(a))
      return failure(BRIM_INVALID_ARGUMENT,
                     "%s: sections (%d,%d,%d) sum to %lld, expected rotary_dim/2 = %lld", op, a.sections[0],
                     a.sections[1], a.sections[2], ll(sum), ll(resolved_rotary_dim(a) / 2));
    if (present(a.positions))
      return failure(BRIM_INVALID_ARGUMENT, "%s: position_ids and sections cannot be given together", op);
    if (t.rank != 4 || t.shape[0] != 3 || (t.shape[1] != 1 && t.shape[1] != b) || t.shape[2] != s)
      return failure(BRIM_INVALID_ARGUMENT,
                     "%s: cos has shape %s, with sections expected (3,%lld,%lld,width) or (3,1,%lld,width)",
                     op, core::shape_text(t).text, ll(b), ll(s), ll(s));
    return success();
  }
  if (present(a.positions)) {
    if (t.rank != 2)
      return failure(BRIM_INVALID_ARGUMENT,
                     "%s: cos has shape %s, with position_ids expected a table (rows,width)", op,
                     core::shape_text(t).text);
    return success();
  }
  if (t.rank == 2) {
    if (t.shape[0] > s)
      return failure(BRIM_INVALID_ARGUMENT,
                     "%s: cos has %lld rows, q has %lld tokens in a sequence; pass position_ids to pick rows "
                     "of a longer table",
                     op, ll(t.shape[0]), ll(s));
    if (t.shape[0] < s)
      return failure(BRIM_INVALID_ARGUMENT, "%s: cos has %lld rows, q has %lld tokens in a sequence", op,
                     ll(t.shape[0]), ll(s));
    return success();
  }
  if (t.rank != 3 || (t.shape[0] != 1 && t.shape[0] != b) || t.shape[1] != s) {
    if (b == 1)
      return failure(BRIM_INVALID_ARGUMENT, "%s: cos has shape %s, expected (%lld,width) or (1,%lld,width)",
                     op, core::shape_text(t).text, ll(s), ll(s));
    return failure(BRIM_INVALID_ARGUMENT,
                   "%s: cos has shape %s, expected (%lld,width), (1,%lld,width) or (%lld,%lld,width)", op,
                   core::shape_text(t).text, ll(s), ll(s), ll(b), ll(s));
  }
  return success();
}

Status check_positions(const char* op, const brim_rope_args& a, int64_t b, int64_t s) {
  if (!present(a.positions)) return success();
  const TensorView& p = a.positions;
  BRIM_TRY(core::check_view(op, {"position_ids", p}));
  BRIM_TRY(core::check_dtype(op, {"position_ids", p}, core::kIntegers));
  const bool one = p.rank == 1 && p.shape[0] == s;
  const bool two = p.rank == 2 && (p.shape[0] == 1 || p.shape[0] == b) && p.shape[1] == s;
  if (one || two) return success();
  if (b == 1)
    return failure(BRIM_INVALID_ARGUMENT, "%s: position_ids has shape %s, expected (%lld) or (1,%lld)", op,
                   core::shape_text(p).text, ll(s), ll(s));
  return failure(BRIM_INVALID_ARGUMENT,
                 "%s: position_ids has shape %s, expected (%lld), (1,%lld) or (%lld,%lld)", op,
                 core::shape_text(p).text, ll(s), ll(s), ll(b), ll(s));
}

Status check_k_shape(const char* op, const brim_rope_args& a) {
  const Axes x = axes_of(a.layout);
  if (a.k.rank == a.q.rank && size_at(a.k, x.batch) == size_at(a.q, x.batch) &&
      a.k.shape[x.seq] == a.q.shape[x.seq] && a.k.shape[x.dim] == a.q.shape[x.dim])
    return success();
  return failure(BRIM_INVALID_ARGUMENT,
                 "%s: k has shape %s, q has %s; in layout %s only the heads may differ", op,
                 core::shape_text(a.k).text, core::shape_text(a.q).text, layout_name(a.layout));
}

// `to_half` never runs in place: a pair is read from where another pair's result is written.
Status check_aliasing(const char* op, const brim_rope_args& a) {
  const bool may_alias = a.pairing != BRIM_PAIRING_TO_HALF;
  const core::Named q{"q", a.q}, k{"k", a.k}, q_out{"q_out", a.q_out}, k_out{"k_out", a.k_out};
  const core::Named others[] = {{"cos", a.cos}, {"sin", a.sin}, {"position_ids", a.positions}};
  const auto in_place = [](const TensorView& out, const TensorView& in) {  // empty ones may share a null
    return core::same_view(out, in) && !core::empty(in);
  };
  if (!may_alias && in_place(a.q_out, a.q))
    return failure(BRIM_INVALID_ARGUMENT, "%s: pairing to_half cannot run in place: q_out is q", op);
  BRIM_TRY(core::check_no_self_overlap(op, q_out));
  BRIM_TRY(core::check_same_or_disjoint(op, q_out, q));
  for (const core::Named& other : others) BRIM_TRY(core::check_disjoint(op, q_out, other));
  if (!present(a.k)) return success();
  if (!may_alias && in_place(a.k_out, a.k))
    return failure(BRIM_INVALID_ARGUMENT, "%s: pairing to_half cannot run in place: k_out is k", op);
  BRIM_TRY(core::check_no_self_overlap(op, k_out));
  BRIM_TRY(core::check_same_or_disjoint(op, k_out, k));
  BRIM_TRY(core::check_disjoint(op, k_out, q));
  BRIM_TRY(core::check_disjoint(op, q_out, k));
  BRIM_TRY(core::check_disjoint(op, q_out, k_out));
  for (const core::Named& other : others) BRIM_TRY(core::check_disjoint(op, k_out, other));
  return success();
}

Status validate(const char* op, const brim_rope_args& a, brim_backend backend) {
  const core::Named q{"q", a.q}, k{"k", a.k}, q_out{"q_out", a.q_out}, k_out{"k_out", a.k_out};
  const core::Named cos{"cos", a.cos}, sin{"sin", a.sin}, positions{"position_ids", a.positions};
  BRIM_TRY(core::check_option(op, "layout", a.layout, 3));
  BRIM_TRY(core::check_option(op, "pairing", a.pairing, 3));
  BRIM_TRY(core::check_option(op, "inverse", a.inverse, 2));
  BRIM_TRY(core::check_option(op, "sections_interleaved", a.sections_interleaved, 2));
  for (const core::Named& n : {q, cos, sin, q_out}) {
    BRIM_TRY(core::check_view(op, n));
    BRIM_TRY(core::check_dtype(op, n, core::kFloats));
  }
  const int rank = a.layout == BRIM_LAYOUT_THD ? 3 : 4;
  if (a.q.rank != rank)
    return failure(BRIM_INVALID_ARGUMENT, "%s: q has shape %s, layout %s expects rank %d", op,
                   core::shape_text(a.q).text, layout_name(a.layout), rank);
  if (present(a.k) != present(a.k_out))
    return failure(BRIM_INVALID_ARGUMENT, "%s: %s is given without %s", op, present(a.k) ? "k" : "k_out",
                   present(a.k) ? "k_out" : "k");
  if (present(a.k)) {
    for (const core::Named& n : {k, k_out}) {
      BRIM_TRY(core::check_view(op, n));
      BRIM_TRY(core::check_dtype(op, n, core::kFloats));
    }
    BRIM_TRY(check_k_shape(op, a));
    BRIM_TRY(core::check_same_shape(op, k_out, k));
    BRIM_TRY(core::check_same_dtype(op, k_out, k));
  }
  BRIM_TRY(core::check_same_shape(op, q_out, q));
  BRIM_TRY(core::check_same_dtype(op, q_out, q));
  BRIM_TRY(core::check_same_shape(op, sin, cos));
  BRIM_TRY(core::check_same_dtype(op, sin, cos));
  BRIM_TRY(core::check_dtype_mix(op, {q, k, cos}));
  if (a.q.dtype == BRIM_FLOAT64 && backend == BRIM_BACKEND_CUDA)
    return failure(BRIM_INVALID_DTYPE, "%s: q is float64, which only the cpu and reference backends take",
                   op);
  BRIM_TRY(core::check_device(op, backend, {q, k, q_out, k_out, cos, sin, positions}));

  const Axes x = axes_of(a.layout);
  const int64_t b = size_at(a.q, x.batch), s = a.q.shape[x.seq], d = a.q.shape[x.dim];
  BRIM_TRY(check_rotary_dim(op, a, d));
  BRIM_TRY(check_tables(op, a, b, s));
  BRIM_TRY(check_positions(op, a, b, s));
  return check_aliasing(op, a);
}

RopeStrides head_strides(const TensorView& t, const Axes& x) {
  if (!present(t)) return {};
  return {stride_at(t, x.batch), stride_at(t, x.seq), stride_at(t, x.head), stride_at(t, x.dim)};
}

RopeTableStrides table_strides(const TensorView& t) {
  RopeTableStrides s{};
  s.column = core::used_stride(t, t.rank - 1);
  s.row = core::used_stride(t, t.rank - 2);
  if (t.rank > 2) s.batch = core::used_stride(t, t.rank - 3);
  if (t.rank > 3) s.axis = core::used_stride(t, t.rank - 4);
  return s;
}

}  // namespace

Status validate_rope_forward(const brim_rope_args& args, brim_backend backend) {
  return validate("rope_forward", args, backend);
}
Status validate_rope_backward(const brim_rope_args& args, brim_backend backend) {
  return validate("rope_backward", args, backend);
}

brim_rope_args transposed(const brim_rope_args& args) {
  brim_rope_args result = args;
  result.inverse = !args.inverse;
  return result;
}

RopeProblem make_rope_problem(const brim_rope_args& a) {
  const Axes x = axes_of(a.layout);
  RopeProblem p{};
  p.dtype = a.q.dtype;
  p.k_dtype = a.k.dtype;
  p.table_dtype = a.cos.dtype;
  p.position_dtype = a.positions.dtype;
  p.batch = size_at(a.q, x.batch);
  p.seq = a.q.shape[x.seq];
  p.q_heads = a.q.shape[x.head];
  p.k_heads = present(a.k) ? a.k.shape[x.head] : 0;
  p.head_dim = a.q.shape[x.dim];
  p.rotary_dim = resolved_rotary_dim(a);
  p.table_rows = a.cos.shape[a.cos.rank - 2];
  p.negate_sin = a.inverse;
  p.in_order = p.out_order = a.pairing == BRIM_PAIRING_HALF ? PairOrder::half : PairOrder::interleaved;
  if (a.pairing == BRIM_PAIRING_TO_HALF) (a.inverse ? p.in_order : p.out_order) = PairOrder::half;
  p.in_place = core::same_view(a.q_out, a.q) && (!present(a.k) || core::same_view(a.k_out, a.k));
  p.has_sections = has_sections(a);
  p.sections_interleaved = a.sections_interleaved;
  for (int i = 0; i < 3; ++i) p.sections[i] = a.sections[i];
  p.q = head_strides(a.q, x);
  p.k = head_strides(a.k, x);
  p.q_out = head_strides(a.q_out, x);
  p.k_out = head_strides(a.k_out, x);
  p.cos = table_strides(a.cos);
  p.sin = table_strides(a.sin);
  if (present(a.positions)) {
    const TensorView& t = a.positions;
    p.position_seq_stride = core::used_stride(t, t.rank - 1);
    p.position_batch_stride = t.rank > 1 ? core::used_stride(t, 0) : 0;
  }
  p.alignment = core::alignment_of(core::row_bits(a.q) | core::row_bits(a.k) | core::row_bits(a.q_out) |
                                   core::row_bits(a.k_out));
  uint64_t bases = 0;
  for (const TensorView* t : {&a.q, &a.k, &a.q_out, &a.k_out}) bases |= reinterpret_cast<uintptr_t>(t->data);
  p.base_alignment = core::alignment_of(bases);
  p.table_alignment = core::alignment_of(core::row_bits(a.cos) | core::row_bits(a.sin));
  return p;
}

Status check_rope_positions(const brim_rope_args& args, const RopeProblem& p) {
  if (!present(args.positions)) return success();
  const int64_t batches = args.positions.rank > 1 ? args.positions.shape[0] : 1;
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t s = 0; s < p.seq; ++s) {
      const int64_t position = rope_position(args.positions.data, p.position_dtype,
                                             b * p.position_batch_stride + s * p.position_seq_stride);
      if (position < 0 || position >= p.table_rows)
        return failure(BRIM_OUT_OF_RANGE, "rope: position_ids[%lld] is %lld, table has %lld rows",
                       ll(b * p.seq + s), ll(position), ll(p.table_rows));
    }
  return success();
}

}  // namespace brim::ops
