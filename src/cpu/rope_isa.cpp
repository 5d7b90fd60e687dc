// RoPE's body, compiled once per instruction set: units, and the blocks of tokens and heads in them. simd.h
// says what such a file must not use.
#include "cpu/rope_angles.h"
#include "cpu/rope_pairs.h"

namespace brim::cpu {
namespace {

// Some tokens and heads of q or k.
template <class T>
struct Block {
  const RopeCall& call;
  const RopePart& part;
  const T* in;  // the first token's first head
  T* out;
  int64_t tokens, heads;
  ColumnBlock columns;
  const Tables<Arithmetic<T>>& tables;
};

struct Axis {
  int64_t count, in, out, table;
};

// Calls head(in, out, offset of its row of the tables, distance to what to fetch) for each head, in an order
// that memory likes. The CPU's prefetcher finds its stride again only some lines after a jump, and jumps are
// many: at the end of a head's tokens, over the rest of a packed row. So kStreams far neighbours go side by
// side, a head of each in turn: they jump at the same time. And each is fetched ahead, over the jump: a
// widened head is so much work that the CPU does not look far enough by itself. Without the two, strided
// layouts ran at half the speed of contiguous ones (Zen 4).
template <class T, class Head>
HWY_INLINE void for_each_head(const Block<T>& b, int64_t row_pitch, Head&& head) {
  constexpr int64_t kStreams = 8, kFetchAhead = 2048;  // bytes of a stream
  const ops::RopeStrides &from = b.part.from, &to = b.part.to;
  const Axis tokens{b.tokens, from.seq, to.seq, row_pitch}, heads{b.heads, from.head, to.head, 0};
  const Axis near = b.part.head_major ? tokens : heads, far = b.part.head_major ? heads : tokens;
  const int64_t bytes = b.call.problem.head_dim * static_cast<int64_t>(sizeof(T));
  const int64_t heads_ahead = bytes < kFetchAhead ? kFetchAhead / bytes : 1;
  for (int64_t first = 0; first < far.count; first += kStreams) {
    const int64_t group = far.count - first < kStreams ? far.count - first : kStreams;
    for (int64_t n = 0; n < near.count; ++n) {
      const T* in = b.in + first * far.in + n * near.in;
      T* out = b.out + first * far.out + n * near.out;
      int64_t table = first * far.table + n * near.table, ahead = heads_ahead * near.in;
      if (n + heads_ahead >= near.count)  // in the next group, if there is one
        ahead = first + group < far.count ? ahead + group * far.in - near.count * near.in : 0;
      for (int64_t f = 0; f < group; ++f, in += far.in, out += far.out, table += far.table)
        head(in, out, table, ahead);
    }
  }
}

// Elements r .. d-1, moved as integers: a NaN keeps its bits.
template <Store S, class T>
HWY_INLINE void pass_through(const T* in, T* out, int64_t n) {
  using Word = hwy::MakeUnsigned<hwy::UnsignedFromSize<sizeof(T)>>;
  const hn::ScalableTag<Word> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Word* from = reinterpret_cast<const Word*>(in);
  Word* to = reinterpret_cast<Word*>(out);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) put<S>(d, hn::LoadU(d, from + i), to + i);
  const hn::CappedTag<Word, 1> one;
  for (; i < n; ++i) hn::StoreU(hn::LoadU(one, from + i), one, to + i);
}

// kHalf: r/2 where it is a common one, as a constant, else 0. With loops of two or four steps, counting them
// and forming their addresses cost a third of the speed.
template <class T, PairOrder In, PairOrder Out, Store S, int64_t kHalf>
HWY_NOINLINE void rotate_block(const Block<T>& b) {
  constexpr bool kDoubled = form_of<T>(In, Out) == Form::doubled;
  const ops::RopeProblem& p = b.call.problem;
  const int64_t half = kHalf ? kHalf : p.rotary_dim / 2, columns = kHalf ? kHalf : b.columns.count;
  const int64_t j = kHalf ? 0 : b.columns.first, rest = p.head_dim - p.rotary_dim;
  const int64_t from = In == PairOrder::half ? j : 2 * j, to = Out == PairOrder::half ? j : 2 * j;
  const bool pass = rest > 0 && j == 0 && !b.part.in_place;
  for_each_head(b, b.call.pitch * (kDoubled ? 2 : 1),
                [&](const T* in, T* out, int64_t table, int64_t ahead) BRIM_INLINE_LAMBDA {
                  const Run<T> run{in + from, out + to, half, b.tables.cos + table, b.tables.sin + table,
                                   ahead};
                  if constexpr (kDoubled)
                    rotate_doubled<S>(run, columns);
                  else
                    rotate_run<In, Out, S>(run, columns);
                  if (pass) pass_through<S>(in + p.rotary_dim, out + p.rotary_dim, rest);
                });
}

// Heads whose elements are not contiguous: gathered, rotated in half order, scattered.
template <class T>
void rotate_strided_block(const Block<T>& b) {
  constexpr int64_t kPairs = 128;  // at a time
  const ops::RopeProblem& p = b.call.problem;
  const int64_t half = p.rotary_dim / 2, from = b.part.from.dim, to = b.part.to.dim;
  const auto element = [=](PairOrder order, int64_t j, int second) BRIM_INLINE_LAMBDA {
    return order == PairOrder::half ? j + second * half : 2 * j + second;
  };
  for_each_head(b, b.call.pitch, [&](const T* in, T* out, int64_t table, int64_t) BRIM_INLINE_LAMBDA {
    T x[2 * kPairs], y[2 * kPairs];
    for (int64_t first = 0, n; first < b.columns.count; first += n) {
      n = b.columns.count - first < kPairs ? b.columns.count - first : kPairs;
      const int64_t j = b.columns.first + first;
      for (int64_t i = 0; i < n; ++i)
        for (int second = 0; second < 2; ++second)
          x[i + second * kPairs] = in[element(p.in_order, j + i, second) * from];
      const Run<T> run{x, y, kPairs, b.tables.cos + table + first, b.tables.sin + table + first, 0};
      rotate_run<PairOrder::half, PairOrder::half, Store::plain>(run, n);
      for (int64_t i = 0; i < n; ++i)
        for (int second = 0; second < 2; ++second)
          out[element(p.out_order, j + i, second) * to] = y[i + second * kPairs];
    }
    if (b.columns.first == 0 && !b.part.in_place)
      for (int64_t i = p.rotary_dim; i < p.head_dim; ++i) out[i * to] = in[i * from];
  });
}

bool contiguous_heads(const RopePart& part) { return part.from.dim == 1 && part.to.dim == 1; }

template <class T, PairOrder In, PairOrder Out, Store S>
void dispatch_half(const Block<T>& b) {
  const int64_t half = b.call.problem.rotary_dim / 2;
  if (half == 32 && b.columns.count == half) return rotate_block<T, In, Out, S, 32>(b);
  if (half == 64 && b.columns.count == half) return rotate_block<T, In, Out, S, 64>(b);
  if (half == 128 && b.columns.count == half) return rotate_block<T, In, Out, S, 128>(b);
  return rotate_block<T, In, Out, S, 0>(b);
}

template <class T, Store S>
void dispatch_orders(const Block<T>& b) {
  constexpr PairOrder H = PairOrder::half, I = PairOrder::interleaved;
  const ops::RopeProblem& p = b.call.problem;
  if (p.in_order == H) {
    if (p.out_order == H) return dispatch_half<T, H, H, S>(b);
    constexpr Store kStore = sizeof(T) == 2 ? S : Store::plain;  // Highway has no streaming StoreInterleaved2
    return rotate_block<T, H, I, kStore, 0>(b);
  }
  p.out_order == H ? rotate_block<T, I, H, S, 0>(b) : dispatch_half<T, I, I, S>(b);
}

template <class T>
void dispatch_stores(const Block<T>& b) {
  if (!contiguous_heads(b.part)) return rotate_strided_block<T>(b);
  b.part.stream ? dispatch_orders<T, Store::stream>(b) : dispatch_orders<T, Store::plain>(b);
}

struct Unit {
  TokenBlock tokens;
  int64_t head_begin, head_end;  // of q's and k's heads in a row
};

// The part of a unit that q or k has, `before` being the heads that come before its own. `loaded` tells for
// which form the tables are loaded: q and k of one type share them.
template <class T, class C>
void rotate_part(const RopeCall& call, const RopePart& part, const Unit& unit, int64_t before,
                 const ColumnBlock& columns, Tables<C>& tables, int* loaded) {
  const int64_t first = unit.head_begin > before ? unit.head_begin - before : 0;
  const int64_t last = unit.head_end - before < part.heads ? unit.head_end - before : part.heads;
  if (first >= last) return;
  const ops::RopeProblem& p = call.problem;
  // Heads that are not contiguous are rotated in half order, whatever theirs.
  const Form form = contiguous_heads(part) ? form_of<T>(p.in_order, p.out_order)
                                           : form_of<T>(PairOrder::half, PairOrder::half);
  if (*loaded != static_cast<int>(form)) load_tables(call, unit.tokens, columns, form, tables);
  *loaded = static_cast<int>(form);

  const ops::RopeStrides &from = part.from, &to = part.to;
  const TokenBlock& t = unit.tokens;
  const T* in =
      static_cast<const T*>(part.in) + t.batch * from.batch + t.first * from.seq + first * from.head;
  T* out = static_cast<T*>(part.out) + t.batch * to.batch + t.first * to.seq + first * to.head;
  dispatch_stores<T>({call, part, in, out, t.count, last - first, columns, tables});
}

template <class C>
void rotate_unit(const RopeCall& call, int64_t index, Tables<C>& tables) {
  const ops::RopeProblem& p = call.problem;
  const int64_t head_block = index % call.head_blocks, rest = index / call.head_blocks;
  const int64_t first = rest % call.token_blocks * call.tokens_per_unit, left = p.seq - first;
  const Unit unit{
      {rest / call.token_blocks, first, left < call.tokens_per_unit ? left : call.tokens_per_unit},
      head_block * call.heads_per_unit,
      (head_block + 1) * call.heads_per_unit};
  ColumnBlock columns{0, 0};
  do {  // once, unless r/2 is more than the tables hold; once also for r = 0, whose elements all pass through
    columns.count = p.rotary_dim / 2 - columns.first;
    if (columns.count > call.columns) columns.count = call.columns;
    int loaded = -1;
    int64_t before = 0;
    for (const RopePart& part : call.parts) {
      if constexpr (sizeof(C) == 8) {
        rotate_part<double>(call, part, unit, before, columns, tables, &loaded);
      } else {
        switch (part.dtype) {
          case BRIM_BFLOAT16:
            rotate_part<bfloat16>(call, part, unit, before, columns, tables, &loaded);
            break;
          case BRIM_FLOAT16: rotate_part<float16>(call, part, unit, before, columns, tables, &loaded); break;
          default: rotate_part<float>(call, part, unit, before, columns, tables, &loaded);
        }
      }
      before += part.heads;
    }
    columns.first += columns.count;
  } while (columns.first < p.rotary_dim / 2);
}

template <class C>
void rotate_units(const RopeCall& call, int64_t begin, int64_t end) {
  Tables<C> tables;
  for (int64_t unit = begin; unit < end; ++unit) rotate_unit(call, unit, tables);
}

}  // namespace

namespace BRIM_THIS_ISA {

void rope_units(const RopeCall& call, int64_t begin, int64_t end) {
  call.problem.dtype == BRIM_FLOAT64 ? rotate_units<double>(call, begin, end)
                                     : rotate_units<float>(call, begin, end);
  if (call.parts[0].stream || call.parts[1].stream) hwy::FlushStream();
}

}  // namespace BRIM_THIS_ISA
}  // namespace brim::cpu
