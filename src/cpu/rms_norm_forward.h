// RMSNorm's body, forward. A row is read twice, the second time from the caches: S = x + residual is formed twice
// rather than kept, so that it can be written past them. For rms_norm_isa.cpp only.
#pragma once

#include "cpu/rms_norm_rows.h"

namespace brim::cpu {
namespace {

// A row's memory, or that of a piece of it.
template <class X, class S, bool kAdd>
struct ForwardPiece {
  using C = Arithmetic<X>;
  using D = hn::ScalableTag<C>;
  const X* x;
  const S* residual;
  S* sum;
  X* y;
  int64_t n;

  template <Order kOrder, int kVectors, class Count>
  HWY_INLINE void load_s(int64_t j, Count count, hn::Vec<D> (&s)[kVectors]) const {
    const D d;
    load_group<kOrder>(d, x + j, count, s);
    if constexpr (kAdd) {
      hn::Vec<D> r[kVectors];
      load_group<kOrder>(d, residual + j, count, r);
      for (int i = 0; i < kVectors; ++i) s[i] = round_to(d, S{}, hn::Add(s[i], r[i]));
    }
  }

  HWY_INLINE void add_squares(Sum<D>& squares) const {
    squares.add(n, [=, this](auto vectors, int64_t j, auto count, hn::Vec<D>* to) BRIM_INLINE_LAMBDA {
      constexpr int kVectors = decltype(vectors)::value;
      hn::Vec<D> s[kVectors];
      load_s<cpu::kOrder<X, S>>(j, count, s);
      for (int i = 0; i < kVectors; ++i) to[i] = hn::MulAdd(s[i], s[i], to[i]);
    });
  }

  template <bool kRound, Order kOrder, Store kStore>
  HWY_INLINE void scale(C rstd, const C* factors, int64_t head, int64_t x_ahead,
                        int64_t residual_ahead) const {
    const D d;
    const auto scale = hn::Set(d, rstd);
    each_vectors(d, head, n, [=, this](auto vectors, int64_t j, auto count) BRIM_INLINE_LAMBDA {
      constexpr int kVectors = decltype(vectors)::value;
      hn::Vec<D> s[kVectors], out[kVectors], factor[kVectors];
      load_s<kOrder>(j, count, s);
      load_group<kOrder>(d, factors + j, count, factor);
      for (int i = 0; i < kVectors; ++i) {
        auto xhat = hn::Mul(s[i], scale);
        if constexpr (kRound) xhat = round_to(d, S{}, xhat);
        out[i] = short_nans_from<X, S>(d, hn::Mul(xhat, factor[i]));
      }
      if constexpr (kVectors == 2) {
        fetch_ahead<2 * lanes_of<D>()>(x + j, x_ahead);
        if constexpr (kAdd) fetch_ahead<2 * lanes_of<D>()>(residual + j, residual_ahead);
      }
      if constexpr (kAdd) store_group<kOrder, kStore>(d, s, sum + j, count);
      store_group<kOrder, kStore>(d, out, y + j, count);
    });
  }
};

template <class C>
HWY_INLINE C reciprocal_root(C squares, int64_t n, double eps) {
  const hn::CappedTag<C, 1> d;
  const C mean = n ? squares / static_cast<C>(n) : 0;
  return hn::GetLane(hn::Div(hn::Set(d, C{1}), hn::Sqrt(hn::Set(d, mean + static_cast<C>(eps)))));
}

template <class X, class S>
struct ForwardRows {
  Rows<const X> x;
  Rows<const S> residual;
  Rows<S> sum;
  Rows<X> y;
  Arithmetic<X>* rstd;

  explicit ForwardRows(const RmsNormCall& call)
      : x(call.problem, call.args->x, call.problem.x),
        residual(call.problem, call.args->residual, call.problem.residual),
        sum(call.problem, call.args->sum, call.problem.sum),
        y(call.problem, call.args->y, call.problem.y),
        rstd(call.problem.saves_rstd ? static_cast<Arithmetic<X>*>(call.args->rstd.data) : nullptr) {}
};

template <class X, class S, bool kAdd, bool kRound, Order kOrder, RowWriting kWriting>
void forward_rows(const RmsNormCall& call, int64_t begin, int64_t end) {
  using Piece = ForwardPiece<X, S, kAdd>;
  constexpr Store kStore = kWriting == RowWriting::plain ? Store::plain : Store::stream;
  const RmsNormProblem& p = call.problem;
  const auto* factors = factors_of<typename Piece::C>(call, kOrder);
  ForwardRows<X, S> rows(call);
  const int64_t x_ahead = call.rows_ahead * rows.x.step(),
                residual_ahead = call.rows_ahead * rows.residual.step();
  each_row(
      p, begin, end, call.rows_ahead,
      [&](int64_t row, bool ahead) BRIM_INLINE_LAMBDA {
        const Piece piece{rows.x.row(), rows.residual.row(), rows.sum.row(), rows.y.row(), p.hidden};
        Sum<typename Piece::D> squares;
        piece.add_squares(squares);
        const auto rstd = reciprocal_root(squares.total(), p.hidden, p.eps);
        if (rows.rstd) rows.rstd[row * p.rstd_stride] = rstd;
        piece.template scale<kRound, kOrder, kStore>(rstd, factors,
                                                     kWriting == RowWriting::heads ? head_of(piece.y) : 0,
                                                     ahead ? x_ahead : 0, ahead ? residual_ahead : 0);
      },
      rows.x, rows.residual, rows.sum, rows.y);
}

// The same through buffers.
template <class X, class S, bool kAdd, bool kRound>
void forward_strided_rows(const RmsNormCall& call, int64_t begin, int64_t end) {
  using Piece = ForwardPiece<X, S, kAdd>;
  const RmsNormProblem& p = call.problem;
  const auto* factors = factors_of<typename Piece::C>(call, kOrder<X, S>);
  ForwardRows<X, S> rows(call);
  X x_buffer[kPiece], y_buffer[kPiece];
  S residual_buffer[kPiece], sum_buffer[kPiece];
  const auto piece = [&](int64_t first) {
    const int64_t n = p.hidden - first < kPiece ? p.hidden - first : kPiece;
    return Piece{rows.x.fetch(first, n, x_buffer), rows.residual.fetch(first, n, residual_buffer),
                 rows.sum.place(first, sum_buffer), rows.y.place(first, y_buffer), n};
  };
  each_row(
      p, begin, end, 0,
      [&](int64_t row, bool) {
        Sum<typename Piece::D> squares;
        for (int64_t first = 0; first < p.hidden; first += kPiece) piece(first).add_squares(squares);
        const auto rstd = reciprocal_root(squares.total(), p.hidden, p.eps);
        if (rows.rstd) rows.rstd[row * p.rstd_stride] = rstd;
        for (int64_t first = 0; first < p.hidden; first += kPiece) {
          const Piece part = piece(first);
          part.template scale<kRound, kOrder<X, S>, Store::plain>(rstd, factors + first, 0, 0, 0);
          rows.y.put_back(first, part.n, y_buffer);
          rows.sum.put_back(first, part.n, sum_buffer);
        }
      },
      rows.x, rows.residual, rows.sum, rows.y);
}

template <class X, class S, bool kAdd, bool kRound>
void forward(const RmsNormCall& call, int64_t begin, int64_t end) {
  if (call.strided) return forward_strided_rows<X, S, kAdd, kRound>(call, begin, end);
  switch (call.writing) {
    case RowWriting::plain:
      return forward_rows<X, S, kAdd, kRound, kOrder<X, S>, RowWriting::plain>(call, begin, end);
    case RowWriting::stream:
      return forward_rows<X, S, kAdd, kRound, kOrder<X, S>, RowWriting::stream>(call, begin, end);
    case RowWriting::heads:
      return forward_rows<X, S, kAdd, kRound, Order::natural, RowWriting::heads>(call, begin, end);
  }
}

}  // namespace
}  // namespace brim::cpu
