// RoPE's body: the cosines and sines of a block of tokens, widened once for all their heads. For rope_isa.cpp
// only.
#pragma once

#include "cpu/rope_pairs.h"

namespace brim::cpu {
namespace {

template <class C>
struct Tables {
  alignas(64) C cos[kRopeTableBytes / sizeof(C)];
  alignas(64) C sin[kRopeTableBytes / sizeof(C)];
};

// Widens n columns; `even` and `odd` flip the sign of the value, or of the two that each column becomes when
// doubled.
template <class C, class T>
HWY_INLINE void load_columns(const T* p, int64_t stride, int64_t n, C* out, bool doubled, C even, C odd) {
  const auto columns = [=](auto d, int64_t j) BRIM_INLINE_LAMBDA {
    const auto v = short_nans(d, load(d, p + j * stride));
    const auto first = hn::Xor(v, hn::Set(d, even));
    if (doubled)
      hn::StoreInterleaved2(first, hn::Xor(v, hn::Set(d, odd)), d, out + 2 * j);
    else
      hn::StoreU(first, d, out + j);
  };
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  if (stride == 1)
    for (; j + lanes <= n; j += lanes) columns(d, j);
  for (; j < n; ++j) columns(hn::CappedTag<C, 1>(), j);
}

// For SplitStep<D>: its steps one after the other, the last of which may take columns of the one before it.
template <class D>
HWY_INLINE void split_columns(D d, float* row, int64_t n) {
  constexpr int64_t kLanes = lanes_of<D>();
  const auto split = [=](int64_t from, int64_t to) BRIM_INLINE_LAMBDA {
    const auto lower = hn::LoadU(d, row + from), upper = hn::LoadU(d, row + from + kLanes);
    hn::StoreU(hn::ConcatEven(d, upper, lower), d, row + to);
    hn::StoreU(hn::ConcatOdd(d, upper, lower), d, row + to + kLanes);
  };
  for (; n < 2 * kLanes; ++n) row[n] = 0;
  const int64_t last = (n - 1) / (2 * kLanes) * (2 * kLanes);
  split(n - 2 * kLanes, last);
  for (int64_t j = 0; j < last; j += 2 * kLanes) split(j, j);
}
HWY_INLINE void split_columns(float* row, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t pairs = step_pairs<PairOrder::half, PairOrder::half, bfloat16>(n);
  if (pairs == 2 * lanes_of<decltype(d)>()) return split_columns(d, row, n);
  if constexpr (lanes_of<decltype(d)>() >= 8)
    if (pairs) split_columns(hn::Half<decltype(d)>(), row, n);
}

struct TokenBlock {
  int64_t batch, first, count;
};
struct ColumnBlock {
  int64_t first, count;
};

template <class C, class T>
void load_table(const RopeCall& call, const T* table, const ops::RopeTableStrides& stride,
                const TokenBlock& tokens, const ColumnBlock& columns, Form form, C even, C odd, C* out) {
  const ops::RopeProblem& p = call.problem;
  const bool doubled = form == Form::doubled;
  for (int64_t i = 0; i < tokens.count; ++i, out += call.pitch * (doubled ? 2 : 1)) {
    const int64_t token = tokens.first + i;
    const int64_t row =
        p.position_dtype == BRIM_DTYPE_NONE
            ? token
            : ops::rope_position(call.positions, p.position_dtype,
                                 tokens.batch * p.position_batch_stride + token * p.position_seq_stride);
    const T* at = table + tokens.batch * stride.batch + row * stride.row + columns.first * stride.column;
    for (int64_t j = 0, n; j < columns.count; j += n) {  // runs of columns that read the same axis
      int axis = 0;
      n = columns.count;
      if (p.has_sections) {
        const auto axis_of = [&](int64_t column) BRIM_INLINE_LAMBDA {
          return ops::rope_section_axis(p.sections, p.sections_interleaved, columns.first + column);
        };
        axis = axis_of(j);
        for (n = 1; j + n < columns.count && axis_of(j + n) == axis;) ++n;
      }
      load_columns(at + axis * stride.axis + j * stride.column, stride.column, n, out + j * (doubled ? 2 : 1),
                   doubled, even, odd);
    }
    if constexpr (sizeof(C) == 4)
      if (form == Form::split) split_columns(out, columns.count);
  }
}

template <class T, class C>
void load_tables_as(const RopeCall& call, const TokenBlock& tokens, const ColumnBlock& columns, Form form,
                    Tables<C>& tables) {
  const ops::RopeProblem& p = call.problem;
  const C minus = static_cast<C>(-0.0), plus = 0;
  load_table<C>(call, static_cast<const T*>(call.cos), p.cos, tokens, columns, form, plus, plus, tables.cos);
  // Doubled: -s at the pair's first element, s at its second; the transposed rotation has both the other way.
  const bool flip = p.negate_sin != (form == Form::doubled);
  load_table<C>(call, static_cast<const T*>(call.sin), p.sin, tokens, columns, form, flip ? minus : plus,
                flip ? plus : minus, tables.sin);
}

void load_tables(const RopeCall& call, const TokenBlock& tokens, const ColumnBlock& columns, Form form,
                 Tables<float>& tables) {
  switch (call.problem.table_dtype) {
    case BRIM_BFLOAT16: return load_tables_as<bfloat16>(call, tokens, columns, form, tables);
    case BRIM_FLOAT16: return load_tables_as<float16>(call, tokens, columns, form, tables);
    default: return load_tables_as<float>(call, tokens, columns, form, tables);
  }
}
void load_tables(const RopeCall& call, const TokenBlock& tokens, const ColumnBlock& columns, Form form,
                 Tables<double>& tables) {
  load_tables_as<double>(call, tokens, columns, form, tables);
}

}  // namespace
}  // namespace brim::cpu
