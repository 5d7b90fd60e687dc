// RMSNorm's body, backward: dx and a block of rows' part of dweight in one reading of x and dy, the second time
// from the caches. For rms_norm_isa.cpp only.
#pragma once

#include "cpu/rms_norm_rows.h"

namespace brim::cpu {
namespace {

// A row's memory, or that of a piece of it. What is absent is null.
template <class X, class S>
struct BackwardPiece {
  using C = Arithmetic<X>;
  using D = hn::ScalableTag<C>;
  using V = hn::Vec<D>;
  const S* s;
  const X* dy;
  const S* dsum;
  X* dx;
  S* dresidual;
  int64_t n;

  HWY_INLINE void add_products(V rstd, const C* factors, Sum<D>& products) const {
    products.add(n, [=, this](auto vectors, int64_t j, auto count, V* to) BRIM_INLINE_LAMBDA {
      constexpr int kVectors = decltype(vectors)::value;
      const D d;
      V x[kVectors], m[kVectors], factor[kVectors];
      load_group<kOrder<X, S>>(d, s + j, count, x);
      load_group<kOrder<X, S>>(d, dy + j, count, m);
      load_group<kOrder<X, S>>(d, factors + j, count, factor);
      for (int i = 0; i < kVectors; ++i) {
        const auto product = hn::Mul(hn::Mul(m[i], factor[i]), hn::Mul(x[i], rstd));
        to[i] = hn::Add(to[i], clear_others(d, product, count));  // 0 times an infinite rstd is no 0
      }
    });
  }

  // Without dy.
  template <Order kOrder, Store kStore>
  HWY_INLINE void pass_dsum(int64_t head) const {
    each_vectors(D(), head, n, [=, this](auto vectors, int64_t j, auto count) BRIM_INLINE_LAMBDA {
      V out[decltype(vectors)::value];
      load_group<kOrder>(D(), dsum + j, count, out);
      write<kOrder, kStore>(out, j, count);
    });
  }

  template <Order kOrder, Store kStore, int kVectors, class Count>
  HWY_INLINE void write(V (&out)[kVectors], int64_t j, Count count) const {
    const D d;
    if (dresidual) store_group<kOrder, kStore>(d, out, dresidual + j, count);
    for (auto& v : out) v = short_nans_from<X, S>(d, v);
    if (dx) store_group<kOrder, kStore>(d, out, dx + j, count);
  }
};

// A row whose mean(m * xhat) is known.
template <class X, class S>
struct SummedRow {
  BackwardPiece<X, S> piece;
  Arithmetic<X> rstd, mean;
  struct {
    int64_t s, dy, dsum;
  } ahead;
};

// Some rows side by side: factors and dweight, which are wider than 16-bit rows, are read once for all of them. dweight
// is added to in the order of the rows all the same.
template <Order kOrder, Store kStore, int kRows, class X, class S, class C>
HWY_INLINE void finish(const SummedRow<X, S>* rows, const C* factors, C* dweight, int64_t head) {
  using D = typename BackwardPiece<X, S>::D;
  using V = hn::Vec<D>;
  V rstds[kRows], means[kRows];
  for (int r = 0; r < kRows; ++r) {
    rstds[r] = hn::Set(D(), rows[r].rstd);
    means[r] = hn::Set(D(), rows[r].mean);
  }
  each_vectors(D(), head, rows[0].piece.n, [&](auto vectors, int64_t j, auto count) BRIM_INLINE_LAMBDA {
    constexpr int kVectors = decltype(vectors)::value;
    constexpr int64_t kElements = kVectors * lanes_of<D>();
    const D d;
    V factor[kVectors], sum[kVectors];
    load_group<kOrder>(d, factors + j, count, factor);
    if (dweight) load_group<kOrder>(d, dweight + j, count, sum);
    for (int r = 0; r < kRows; ++r) {
      const BackwardPiece<X, S>& piece = rows[r].piece;
      V xhat[kVectors], g[kVectors], out[kVectors], more[kVectors];
      load_group<kOrder>(d, piece.s + j, count, xhat);
      load_group<kOrder>(d, piece.dy + j, count, g);
      for (int i = 0; i < kVectors; ++i) {
        xhat[i] = hn::Mul(xhat[i], rstds[r]);
        out[i] = hn::Mul(rstds[r], hn::NegMulAdd(xhat[i], means[r], hn::Mul(g[i], factor[i])));
        if (dweight) sum[i] = hn::MulAdd(g[i], xhat[i], sum[i]);
      }
      if (piece.dsum) {
        load_group<kOrder>(d, piece.dsum + j, count, more);
        for (int i = 0; i < kVectors; ++i) out[i] = hn::Add(out[i], more[i]);
      }
      if constexpr (kVectors == 2) {
        fetch_ahead<kElements>(piece.s + j, rows[r].ahead.s);
        fetch_ahead<kElements>(piece.dy + j, rows[r].ahead.dy);
        if (piece.dsum) fetch_ahead<kElements>(piece.dsum + j, rows[r].ahead.dsum);
      }
      piece.template write<kOrder, kStore>(out, j, count);
    }
    if (dweight) store_group<kOrder, Store::plain>(d, sum, dweight + j, count);
  });
}

template <class X, class S>
struct BackwardRows {
  using C = Arithmetic<X>;
  Rows<const S> s;
  Rows<const X> dy;
  Rows<const S> dsum;
  Rows<X> dx;
  Rows<S> dresidual;
  const C* rstd;  // null without dy

  explicit BackwardRows(const RmsNormCall& call)
      : s(call.problem, call.problem.add ? call.args->sum : call.args->x, call.problem.s),
        dy(call.problem, call.args->dy, call.problem.dy),
        dsum(call.problem, call.args->dsum, call.problem.dsum),
        dx(call.problem, call.args->dx, call.problem.dx),
        dresidual(call.problem, call.args->dresidual, call.problem.dresidual),
        rstd(call.problem.has_dy ? static_cast<const C*>(call.args->rstd.data) : nullptr) {}
};

// A block of rows.
struct Block {
  int64_t begin, end;
  void* dweight;  // its part, zero at first, in the order that the rows are finished in; or null
};

// More need more registers than AVX2 has.
inline constexpr int kRmsNormRowsTogether = kNativeMasks ? 4 : 2;

template <class X, class S, Order kFinish, RowWriting kWriting>
void backward_rows(const RmsNormCall& call, const Block& block) {
  using Piece = BackwardPiece<X, S>;
  using C = typename Piece::C;
  constexpr Store kStore = kWriting == RowWriting::plain ? Store::plain : Store::stream;
  const typename Piece::D d;
  const RmsNormProblem& p = call.problem;
  const C *sum_factors = factors_of<C>(call, kOrder<X, S>), *factors = factors_of<C>(call, kFinish);
  BackwardRows<X, S> rows(call);
  const int64_t far = call.rows_ahead;
  C* const dweight = static_cast<C*>(block.dweight);
  constexpr int kTogether = kWriting == RowWriting::heads ? 1 : kRmsNormRowsTogether;
  SummedRow<X, S> waiting[kTogether];
  int count = 0;
  each_row(
      p, block.begin, block.end, far,
      [&](int64_t row, bool ahead) BRIM_INLINE_LAMBDA {
        const Piece piece{rows.s.row(),  rows.dy.row(),        rows.dsum.row(),
                          rows.dx.row(), rows.dresidual.row(), p.hidden};
        int64_t head = 0;
        if (kWriting == RowWriting::heads) head = piece.dx ? head_of(piece.dx) : head_of(piece.dresidual);
        if (!rows.rstd) return piece.template pass_dsum<kFinish, kStore>(head);
        const auto rstd = short_nans_from<X, float>(d, hn::Set(d, rows.rstd[row * p.rstd_stride]));
        Sum<typename Piece::D> products;
        piece.add_products(rstd, sum_factors, products);
        waiting[count] = {piece, hn::GetLane(rstd), products.total() / static_cast<C>(p.hidden), {}};
        if (ahead) waiting[count].ahead = {far * rows.s.step(), far * rows.dy.step(), far * rows.dsum.step()};
        if (++count == (call.rows_together ? kTogether : 1)) {
          call.rows_together ? finish<kFinish, kStore, kTogether>(waiting, factors, dweight, head)
                             : finish<kFinish, kStore, 1>(waiting, factors, dweight, head);
          count = 0;
        }
      },
      rows.s, rows.dy, rows.dsum, rows.dx, rows.dresidual);
  for (int i = 0; i < count; ++i) finish<kFinish, kStore, 1>(waiting + i, factors, dweight, 0);
}

// The same through buffers.
template <class X, class S>
void backward_strided_rows(const RmsNormCall& call, const Block& block) {
  using Piece = BackwardPiece<X, S>;
  using C = typename Piece::C;
  const typename Piece::D d;
  const RmsNormProblem& p = call.problem;
  const C* factors = factors_of<C>(call, kOrder<X, S>);
  C* const dweight = static_cast<C*>(block.dweight);
  BackwardRows<X, S> rows(call);
  S s_buffer[kPiece], dsum_buffer[kPiece], dresidual_buffer[kPiece];
  X dy_buffer[kPiece], dx_buffer[kPiece];
  const auto piece = [&](int64_t first) {
    const int64_t n = p.hidden - first < kPiece ? p.hidden - first : kPiece;
    return Piece{rows.s.fetch(first, n, s_buffer),
                 rows.dy.fetch(first, n, dy_buffer),
                 rows.dsum.fetch(first, n, dsum_buffer),
                 rows.dx.place(first, dx_buffer),
                 rows.dresidual.place(first, dresidual_buffer),
                 n};
  };
  each_row(
      p, block.begin, block.end, 0,
      [&](int64_t row, bool) {
        SummedRow<X, S> summed{};
        if (rows.rstd) {
          const auto rstd = short_nans_from<X, float>(d, hn::Set(d, rows.rstd[row * p.rstd_stride]));
          Sum<typename Piece::D> products;
          for (int64_t first = 0; first < p.hidden; first += kPiece)
            piece(first).add_products(rstd, factors + first, products);
          summed.rstd = hn::GetLane(rstd);
          summed.mean = products.total() / static_cast<C>(p.hidden);
        }
        for (int64_t first = 0; first < p.hidden; first += kPiece) {
          const Piece part = summed.piece = piece(first);
          if (rows.rstd)
            finish<kOrder<X, S>, Store::plain, 1>(&summed, factors + first,
                                                  dweight ? dweight + first : nullptr, 0);
          else
            part.template pass_dsum<kOrder<X, S>, Store::plain>(0);
          rows.dx.put_back(first, part.n, dx_buffer);
          rows.dresidual.put_back(first, part.n, dresidual_buffer);
        }
      },
      rows.s, rows.dy, rows.dsum, rows.dx, rows.dresidual);
}

template <class X, class S>
void backward(const RmsNormCall& call, const Block& block) {
  if (call.strided) return backward_strided_rows<X, S>(call, block);
  switch (call.writing) {
    case RowWriting::plain: return backward_rows<X, S, kOrder<X, S>, RowWriting::plain>(call, block);
    case RowWriting::stream: return backward_rows<X, S, kOrder<X, S>, RowWriting::stream>(call, block);
    case RowWriting::heads: return backward_rows<X, S, Order::natural, RowWriting::heads>(call, block);
  }
}

}  // namespace
}  // namespace brim::cpu
